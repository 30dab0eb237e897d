"""--pairs from the command line: a run on texts that are encoded apart, its model, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.encoders.loading import load_encoder
from bertvision.model import TextClassifier
from bertvision.runs.folder import head_folder
from bertvision.tasks.task import read_task
from bertvision.training.fitted_head import load_fitted

Call = Callable[..., Any]

TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Cairo")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs that name the same town, or two towns."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [
            (f"the old town of {TOWNS[i % 5]}", f"in {TOWNS[(i + i // 5 % 2) % 5]}", ("same", "other")[i // 5 % 2])
            for i in range(60)
        ]
        csv.writer(file).writerows([("text", "other", "label"), *rows])
    return path


@pytest.fixture
def words(table: Path, tiny_encoder_folder: Path) -> list[object]:
    settings = ["--encoder", tiny_encoder_folder, "--max-length", 32]
    return ["text", "--train", table, "--pair-column", "other", *settings]


@pytest.mark.parametrize("pairs", ["apart", "both"])
def test_run_on_texts_apart_ends_in_a_model_that_predicts_as_it_did(
    call: Call, words: list[object], tmp_path: Path, pairs: str
) -> None:
    run = tmp_path / "run"
    head = "ridge:read=difference+product"
    call("run", *words, "--epochs", 0, "--pairs", pairs, "--heads", head, "--out", run)
    assert f'pairs = "{pairs}"' in (run / "recipe.toml").read_text(encoding="utf-8")
    task = read_task(run / "store" / "task")
    fitted, _ = load_fitted(head_folder(run, head, 0))
    model = TextClassifier(load_encoder(str(run / "encoder")), fitted, task)
    texts, others = zip(*((example.text, example.pair) for example in task["dev"]), strict=True)
    expected = json.loads((run / "predictions" / f"{head}@0.json").read_text(encoding="utf-8"))
    assert [row["label"] for row in model(texts, others)] == list(expected.values())
    single = call("predict", run / "model", "--text", texts[0], "--pair", others[0], "--json").document()
    assert set(single["scores"]) == {"same", "other"}
    info = call("store", "info", run / "store")
    assert f"pairs {pairs}" in info.out


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--shard", "1/2"], "leave --shard 1/2 out"),
        (["--finalize"], "leave --finalize out"),
        (["--engine", "ray"], "leave --engine ray out"),
    ],
)
def test_extraction_by_several_processes_is_refused(
    call: Call, words: list[object], tmp_path: Path, more: list[str], expected: str
) -> None:
    assert expected in call("extract", *words, "--pairs", "both", "--to", tmp_path / "store", *more).refused()


def test_questions_are_refused_before_the_run_starts(
    call: Call, tiny_encoder_folder: Path, tmp_path: Path, samples: Any
) -> None:
    train = samples.write_squad(tmp_path / "train.json")
    words = ["run", "squad2", "--train", train, "--encoder", tiny_encoder_folder, "--max-length", 48]
    error = call(*words, "--pairs", "apart", "--out", tmp_path / "run").refused()
    assert "questions and contexts are read together" in error
    assert not (tmp_path / "run").exists()


def test_plan_counts_the_texts(call: Call, words: list[object]) -> None:
    apart, both = (call("plan", *words, "--pairs", pairs, "--json").document() for pairs in ("apart", "both"))
    assert 0 < apart["tokens"] < both["tokens"]
    assert {row["tokens"] for row in apart["rows"]} == {"none"}
