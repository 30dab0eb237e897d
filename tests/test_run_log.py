"""The log of a run: lines of steps and of what was typed, with versions."""

from __future__ import annotations

from pathlib import Path

from bertvision import __version__
from bertvision.run_log import RunLog, note_command, typed


def test_the_log_appends_lines(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run")
    assert log.read() == []
    log.write("tune", seconds=1.5, text="é\n")
    RunLog(tmp_path / "run").write("fit", heads=["probe"])
    lines = log.read()
    assert [line["step"] for line in lines] == ["tune", "fit"]
    assert lines[0]["text"] == "é\n"
    assert all("time" in line for line in lines)
    assert all(line["versions"]["bertvision"] == __version__ and "numpy" in line["versions"] for line in lines)
    nowhere = RunLog(None)
    nowhere.write("tune")
    assert nowhere.read() == []


def test_what_was_typed_is_noted_once_and_in_its_own_folder(tmp_path: Path) -> None:
    note_command(tmp_path)
    with typed(["fit", "s3://me:secret@host/store", "--head", "a b"], tmp_path / "run"):
        note_command()  # there is no folder yet
        (tmp_path / "run").mkdir()
        note_command(tmp_path)
        assert RunLog(tmp_path / "run").read() == []
        note_command(tmp_path / "run" / ".")
        note_command()
    note_command(tmp_path / "run")
    (line,) = RunLog(tmp_path / "run").read()
    assert (line["step"], line["words"]) == ("command", ["fit", "s3://***@host/store", "--head", "a b"])
    assert not (tmp_path / "log.jsonl").exists()
