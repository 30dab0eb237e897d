"""The same run command after rows of the data were added, removed or relabelled."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.main import main
from bertvision.runs import prepare
from bertvision.store.store import Store
from bertvision.store.writer import StoreWriter
from bertvision.training import shard_builder

SKIPPED = [f"{step}: already done, skipping" for step in ("tune", "extract", "fit")]


class Runs:
    """Runs one command again and again, and counts the windows that the encoder is given in extraction."""

    def __init__(self, folder: Path, words: Sequence[object], capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.words, self.capsys = folder, [str(word) for word in words], capsys
        self.encoded: list[int] = []

    def __call__(self, *more: str, name: str = "run") -> str:
        """Run and return the log."""
        self.encoded.clear()
        self.capsys.readouterr()
        assert main([*self.words, *more, "--out", str(self.folder / name)]) == 0
        return self.capsys.readouterr().err

    def board(self, name: str = "run") -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / name / "leaderboard.json").read_text(encoding="utf-8"))
        return document


@pytest.fixture
def runs(
    samples: Any,
    tmp_path: Path,
    tiny_encoder_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Runs:
    samples.write_csv(tmp_path / "my.csv")
    runs, run = Runs(tmp_path, samples.text_words(tmp_path, tiny_encoder_folder), capsys), shard_builder.hidden_states

    def hidden_states(model: Any, batch: Any, layers: Any) -> Any:
        runs.encoded.append(len(batch.input_ids))
        return run(model, batch, layers)

    monkeypatch.setattr(shard_builder, "hidden_states", hidden_states)
    return runs


def edit(path: Path, add: Sequence[tuple[str, str]] = (), remove: int = 0, relabel: int = 0) -> None:
    """Add rows to a table, remove its first ones, and give the next ones another label."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    rows = rows[remove:]
    rows[:relabel] = [[text, "good" if label != "good" else "bad"] for text, label in rows[:relabel]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows, *add])


NEW = [(f"a bad old town {i}", "bad") for i in range(5)]


def predictors(board: dict[str, Any]) -> set[str]:
    return {row["name"] for row in board["rows"] if row["kind"] == "head"}


def scores(board: dict[str, Any]) -> dict[str, float]:
    return {row["name"]: row["scores"][board["metric"]] for row in board["rows"] if row["kind"] == "head"}


def test_frozen_encoder_runs_on_new_rows_only(runs: Runs) -> None:
    runs("--epochs", "0")
    edit(runs.folder / "my.csv", add=NEW, remove=4, relabel=3)
    log = runs("--epochs", "0")
    assert sum(runs.encoded) == 5
    assert "extract: 36 of 41 texts are already stored; the encoder runs on 5" in log.splitlines()
    assert not [line for line in SKIPPED if line in log], "heads are fitted to the new rows"
    assert not (runs.folder / "run" / "store.previous").exists()
    runs("--epochs", "0", name="fresh")
    assert Store(runs.folder / "run" / "store").id == Store(runs.folder / "fresh" / "store").id
    assert scores(runs.board()) == pytest.approx(scores(runs.board("fresh")))
    log = runs("--epochs", "0")
    assert [line in log for line in SKIPPED] == [True, True, True]


def test_new_labels_need_no_encoder(runs: Runs) -> None:
    runs("--epochs", "0", "--tokens", "cls+mean")
    edit(runs.folder / "my.csv", relabel=10)
    log = runs("--epochs", "0", "--tokens", "cls+mean")
    assert runs.encoded == []
    assert "the encoder runs on 0" in log
    assert "fit: 4 heads x 1 seeds" in log, "two heads, and two of which the better one is the control"


def test_heads_of_earlier_rows_leave_the_leaderboard(runs: Runs) -> None:
    runs("--epochs", "0")
    edit(runs.folder / "my.csv", add=NEW)
    all_heads = list(runs.words)
    runs.words.remove("learned-pool")
    runs("--epochs", "0")
    expected = {"mean-pool", "ridge:layers=last1", "ridge:layers=last1,read=cls"}
    assert (runs.folder / "run" / "heads" / "learned-pool").exists()
    for _ in range(2):
        assert predictors(runs.board()) == expected
        assert main(["evaluate", str(runs.folder / "run")]) == 0
    assert main(["report", str(runs.folder / "run")]) == 0
    runs.words = all_heads
    runs("--epochs", "0")
    assert predictors(runs.board()) == {*expected, "learned-pool"}


def test_killed_run_continues_with_the_old_states(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs("--epochs", "0")
    edit(runs.folder / "my.csv", add=NEW)
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "write_shard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*runs.words, "--epochs", "0", "--out", str(runs.folder / "run")]) != 0
    assert (runs.folder / "run" / "store.previous").exists()
    log = runs("--epochs", "0")
    assert "tune: already done, skipping" in log
    assert sum(runs.encoded) == 5
    assert not (runs.folder / "run" / "store.previous").exists()


@pytest.mark.parametrize("more", [("--epochs", "1"), ("--method", "bitfit"), ("--epochs", "0", "--live")])
def test_tuned_encoder_is_tuned_again(runs: Runs, more: tuple[str, ...]) -> None:
    runs(*more)
    rows = predictors(runs.board())
    edit(runs.folder / "my.csv", add=NEW, remove=2)
    log = runs(*more)
    assert "tune: already done" not in log
    assert ("was made from other inputs and is made again" in log) == ("--live" not in more)
    assert predictors(runs.board()) == rows
    runs(*more, name="fresh")
    assert scores(runs.board()) == pytest.approx(scores(runs.board("fresh")))
    assert "extract: already done" in runs(*more) or "--live" in more


def test_run_killed_after_tuning_again_continues(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs()
    edit(runs.folder / "my.csv", add=NEW)
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "extract", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*runs.words, "--out", str(runs.folder / "run")]) != 0
    edit(runs.folder / "my.csv", add=[("the good town", "good")])
    runs()
    runs(name="fresh")
    assert scores(runs.board()) == pytest.approx(scores(runs.board("fresh")))


def test_row_with_a_new_label(runs: Runs) -> None:
    """Heads have one more output, whether or not the encoder has a head of its own that must change."""
    runs("--epochs", "0")
    edit(runs.folder / "my.csv", add=[(f"the odd town {i}", "odd") for i in range(10)])
    runs("--epochs", "0")
    manifest = Store(runs.folder / "run" / "store").manifest
    assert manifest["shape"]["outputs"] == 4


def test_extract_command(runs: Runs, tiny_encoder_folder: Path, samples: Any) -> None:
    data = ["--train", str(runs.folder / "my.csv"), "--encoder", str(tiny_encoder_folder), "--max-length", "48"]
    command = ["extract", "text", *data, "--to", str(runs.folder / "states")]
    assert main(command) == 0
    edit(runs.folder / "my.csv", add=[*NEW, ("the odd town", "odd"), ("the odd town 2", "odd")], remove=1)
    runs.encoded.clear()
    assert main(command) == 0
    assert sum(runs.encoded) == 7, "no head of the encoder's own depends on the labels"
    samples.write_csv(runs.folder / "my.csv", rows=60)
    edit(runs.folder / "my.csv", remove=40)
    assert main(command) != 0
    error = runs.capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: store {runs.folder / 'states'} was made from other inputs: data is ")
