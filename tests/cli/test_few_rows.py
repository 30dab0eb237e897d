"""Runs on very little data: a few rows per label, labels of one or two rows, a few values and sets of labels."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
SPLITS = ("train", "inner", "dev")


def write(path: Path, labels: Sequence[object]) -> Path:
    """A table of these labels, with a word in each text that depends on the label."""
    words = ("good", "bad", "plain", "old", "odd")
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("text", "label"))
        for number, label in enumerate(labels):
            lines.writerow((f"the {words[sum(map(ord, str(label))) % len(words)]} town {number}", label))
    return path


EVEN = ["yes", "no"] * 8
RARE = ["yes"] * 12 + ["no"] * 10 + ["twice"] * 2 + ["once"]
VALUES = [0.5 * number for number in range(12)]
SETS = ["a", "b", "a|b", "b|c", "a|c", "b", "a", "c", "a|b", "c", "b", "a|b|c", "a", "b"]


@pytest.mark.parametrize("epochs", [0, 1])
@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (EVEN, ()),
        (EVEN, ("--metric", "matthews_correlation", "--prefer", "small")),
        (EVEN, ("--class-weights", "balanced", "--prefer", "fast")),
        (RARE, ()),
        (RARE, ("--metric", "macro_f1")),
        (VALUES, ("--kind", "regress")),
        (SETS, ("--kind", "multilabel", "--label-separator", "|")),
    ],
    ids=["even", "matthews", "weights", "rare", "rare-macro", "values", "sets"],
)
def test_run_on_few_rows_ends_in_a_model(
    call: Call,
    tmp_path: Path,
    tiny_encoder_folder: Path,
    labels: Sequence[object],
    options: tuple[str, ...],
    epochs: int,
) -> None:
    data, run = write(tmp_path / "my.csv", labels), tmp_path / "run"
    command = ["run", "text", "--train", data, "--encoder", tiny_encoder_folder, "--epochs", epochs, "--out", run]
    board = call(*command, *options, "--max-length", 24, "--json").document()
    names = {row["name"] for row in board["rows"]}
    assert ("encoder" in names) == (epochs > 0)
    assert ("weighted(every head)" in names) == (epochs == 0)
    assert [row["seed"] for row in board["rows"] if row["name"] == "ridge:layers=last1"] == [0]
    assert board["selection"]["split"] == ("inner" if epochs else "folds")
    task = json.loads((run / "store" / "task" / "task.json").read_text(encoding="utf-8"))
    texts = {split: (run / "store" / "task" / f"{split}.jsonl").read_text(encoding="utf-8") for split in SPLITS}
    counts = {split: len(text.splitlines()) for split, text in texts.items()}
    assert sum(counts.values()) == len(labels)
    rows = counts["inner"] if epochs else counts["train"] + counts["inner"]
    assert board["selection"]["rows"] == rows
    answer = call("predict", run / "model", "--text", "the good town", "--json").document()
    assert set(answer) >= ({"value"} if task["kind"] == "regress" else {"scores"})


def test_every_label_of_few_rows_can_be_predicted(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data, run = write(tmp_path / "my.csv", RARE), tmp_path / "run"
    command = ["run", "text", "--train", data, "--encoder", tiny_encoder_folder, "--epochs", 0, "--max-length", 24]
    assert call(*command, "--heads", "ridge", "--out", run).code == 0
    answer = call("predict", run / "model", "--text", "the good town", "--json").document()
    assert set(answer["scores"]) == {"yes", "no", "twice", "once"}
    assert sum(answer["scores"].values()) == pytest.approx(1)


def test_seeds_of_a_run_do_not_repeat_solved_heads(call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data, run = write(tmp_path / "my.csv", EVEN), tmp_path / "run"
    command = ["run", "text", "--train", data, "--encoder", tiny_encoder_folder, "--epochs", 0, "--out", run]
    command += ["--heads", "ridge", "mean-pool", "--seeds", "1,2", "--max-length", 24]
    boards = [call(*command, "--json") for _ in range(2)]
    for board in boards:
        seeds = [(row["name"], row["seed"]) for row in board.document()["rows"] if row["kind"] == "head"]
        controls = [("ridge:layers=last1", 0), ("ridge:layers=last1,read=cls", 0)]
        assert sorted(seeds) == sorted([*controls, ("mean-pool", 1), ("mean-pool", 2), ("ridge", 0)])
    assert "fit: already done, skipping" in boards[1].err
