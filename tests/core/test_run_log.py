"""The log of a run: steps and typed commands, with library versions."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from bertvision import __version__
from bertvision.core.run_log import LIBRARIES, RunLog, log_command, record_command, versions


def test_log_appends_lines_with_time_and_versions(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run")
    assert log.read() == []
    log.write("tune", seconds=1.5, text="é\n")
    RunLog(tmp_path / "run").write("fit", heads=["probe"])
    lines = log.read()
    assert [line["step"] for line in lines] == ["tune", "fit"]
    assert lines[0]["text"] == "é\n"
    assert all("time" in line for line in lines)
    assert all(line["versions"]["bertvision"] == __version__ and "numpy" in line["versions"] for line in lines)
    without_folder = RunLog(None)
    without_folder.write("tune")
    assert without_folder.read() == []


@pytest.mark.parametrize("torn", ['{"step": "tu', '{"step": "tune", "loss": 1', "7", "\x00\x00", "\xff"])
def test_torn_lines_are_skipped_and_do_not_damage_later_ones(tmp_path: Path, torn: str) -> None:
    log = RunLog(tmp_path)
    log.write("tune")
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(torn.encode("latin-1"))
    assert [line["step"] for line in log.read()] == ["tune"]
    log.write("extract")
    log.write("fit")
    assert [line["step"] for line in log.read()] == ["tune", "extract", "fit"]
    assert (tmp_path / "log.jsonl").read_bytes().count(b"\n") == 4


def test_versions_lists_installed_libraries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(versions()) == ["python", "bertvision", *LIBRARIES]
    assert versions()["tokenizers"] == metadata.version("tokenizers")

    def version_without_peft(name: str) -> str:
        if name == "peft":
            raise metadata.PackageNotFoundError
        return "1"

    monkeypatch.setattr(metadata, "version", version_without_peft)
    assert list(versions.__wrapped__()) == ["python", "bertvision", *LIBRARIES[:-1]]


def test_command_is_logged_once_in_its_own_folder_without_secrets(tmp_path: Path) -> None:
    log_command(tmp_path)
    with record_command(["fit", "s3://me:secret@host/store", "--head", "a b"], tmp_path / "run"):
        log_command()  # the folder does not exist yet
        (tmp_path / "run").mkdir()
        log_command(tmp_path)
        assert RunLog(tmp_path / "run").read() == []
        log_command(tmp_path / "run" / ".")
        log_command()
    log_command(tmp_path / "run")
    (line,) = RunLog(tmp_path / "run").read()
    assert (line["step"], line["words"]) == ("command", ["fit", "s3://***@host/store", "--head", "a b"])
    assert line["where"] == str(Path.cwd())
    assert not (tmp_path / "log.jsonl").exists()
