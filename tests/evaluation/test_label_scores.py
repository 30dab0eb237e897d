"""Scores of label files: the official metrics for GLUE, all metrics for other tables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from sklearn import metrics

from bertvision.core.errors import BadInput
from bertvision.evaluation.score_files import GOLD as GOLD_COLUMNS
from bertvision.evaluation.score_files import TASK_SCORING, find_task_scoring, read_labels, score_label_files

GOLD, PREDICTED = "1 1 1 0 0", "1 1 0 1 0"


def table(path: Path, column: str, values: str) -> Path:
    path.write_text("\n".join([column, *values.split()]) + "\n")
    return path


def scores(tmp_path: Path, task: str, gold: str, predicted: str, **options: object) -> dict[str, float]:
    gold_file = table(tmp_path / "g.csv", "label", gold)
    predictions_file = table(tmp_path / "p.csv", "prediction", predicted)
    name, count, result = score_label_files(task, [gold_file], predictions_file, **options)  # type: ignore[arg-type]
    assert (name, count) == (find_task_scoring(task)[0], len(gold.split()))
    return result


def test_glue_tasks_have_their_official_metrics() -> None:
    """As the benchmark's table 1 lists them."""
    named = {name: official.metrics for name, official in TASK_SCORING.items() if official.metrics != ("accuracy",)}
    assert named == {
        "cola": ("matthews_correlation",),
        "mrpc": ("accuracy", "f1"),
        "stsb": ("pearson", "spearmanr"),
        "qqp": ("accuracy", "f1"),
        "ax": ("matthews_correlation",),
        "answerability": ("accuracy", "f1"),
    }
    assert set(TASK_SCORING) - set(named) == {"sst2", "mnli", "mnli-mm", "qnli", "rte", "wnli"}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("cola", {"matthews_correlation": 100 / 6}),
        ("SST-2", {"accuracy": 60}),
        ("mrpc", {"accuracy": 60, "f1": 200 / 3}),
        ("qqp", {"accuracy": 60, "f1": 200 / 3}),
        ("WNLI", {"accuracy": 60}),
    ],
)
def test_binary_tasks_give_their_official_scores(tmp_path: Path, task: str, expected: dict[str, float]) -> None:
    result = scores(tmp_path, task, GOLD, PREDICTED)
    assert list(result) == list(expected)
    assert result == pytest.approx(expected)


def test_labels_may_be_words(tmp_path: Path) -> None:
    assert scores(tmp_path, "rte", "entailment not_entailment", "entailment entailment") == {"accuracy": 50}
    words = "entailment neutral contradiction neutral"
    predicted = "entailment neutral neutral contradiction"
    assert scores(tmp_path, "MNLI-mm", words, predicted) == {"accuracy": 50}
    expected = 100 * metrics.matthews_corrcoef(words.split(), predicted.split())
    assert scores(tmp_path, "ax", words, predicted) == {"matthews_correlation": pytest.approx(expected)}


def test_labels_may_be_written_as_numbers_or_names(tmp_path: Path) -> None:
    """Label numbers are those of the Hub: in WNLI 1 is entailment, in RTE 0."""
    assert scores(tmp_path, "wnli", "1 0", "entailment not_entailment") == {"accuracy": 100}
    assert scores(tmp_path, "rte", "entailment not_entailment", "0 1") == {"accuracy": 100}
    assert scores(tmp_path, "mrpc", "1 1 0", "equivalent 0 1") == pytest.approx({"accuracy": 100 / 3, "f1": 50})


def test_answerability_gold_is_read_from_squad_files(tmp_path: Path) -> None:
    """Three of four are right; one of two unanswerable questions is recognised, without false alarms."""
    golds = []
    for name, questions in (("a", {"q1": ["x"], "q2": []}), ("b", {"q3": [], "q4": ["y", "z"]})):
        qas = [{"id": qid, "answers": [{"text": text} for text in texts]} for qid, texts in questions.items()]
        golds.append(tmp_path / f"{name}.json")
        golds[-1].write_text(json.dumps({"data": [{"paragraphs": [{"qas": qas}]}]}))
    predicted = {"q4": "answerable", "q3": "answerable", "q2": "unanswerable", "q1": "answerable"}
    (tmp_path / "predicted.json").write_text(json.dumps(predicted))
    result = score_label_files("answerability", golds, tmp_path / "predicted.json")
    assert result == ("answerability", 4, {"accuracy": 75, "f1": pytest.approx(200 / 3)})
    with pytest.raises(BadInput, match="score mrpc needs one gold file and one of predictions, got 3 files"):
        score_label_files("mrpc", golds, tmp_path / "predicted.json")


def test_value_tasks_give_correlations(tmp_path: Path) -> None:
    result = scores(tmp_path, "STS-B", "1 2 3", "1 1 4")
    assert list(result) == ["pearson", "spearmanr"]
    assert list(scores(tmp_path, "regress", "1 2 3", "1 1 4.5e0")) == ["pearson", "spearmanr", "rmse"]


def test_classify_scores_any_labels(tmp_path: Path) -> None:
    result = scores(tmp_path, "classify", "ham spam spam", "ham spam ham")
    assert result["f1"] == pytest.approx(200 / 3)  # of spam, the second by name
    swapped = scores(tmp_path, "classify", "ham spam spam", "ham spam ham", labels=("spam", "ham"))
    assert swapped["f1"] == pytest.approx(200 / 3)
    assert swapped["accuracy"] == result["accuracy"]
    assert "f1" not in scores(tmp_path, "classify", "a b c", "a b c")


def test_numeric_labels_are_ordered_by_value(tmp_path: Path) -> None:
    """ "10" is the positive one, though "9" is the later text."""
    assert scores(tmp_path, "classify", "9 9 10 9", "9 10 10 9")["f1"] == pytest.approx(200 / 3)
    assert scores(tmp_path, "classify", "9 9 nan 9", "9 nan nan 9")["f1"] == pytest.approx(200 / 3)  # by name


def test_label_missing_from_gold_must_be_given_as_option(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"p.csv, line 3: got label 'c', expected one of \['a', 'b'\] \(or give all"):
        scores(tmp_path, "classify", "a b", "a c")
    assert scores(tmp_path, "classify", "a b", "a c", labels=("a", "b", "c"))["accuracy"] == 50


@pytest.mark.parametrize(
    ("task", "gold", "predicted", "labels", "part"),
    [
        (
            "mrpc",
            "0 2",
            "0 1",
            (),
            "g.csv, line 3: got label '2', expected one of ['0', '1', 'not_equivalent', 'equivalent']",
        ),
        ("rte", "entailment", "yes", (), "p.csv, line 2: got label 'yes', expected one of ['0', '1', 'entailment',"),
        ("rte", "entailment", "0", ("entailment", "x"), "p.csv, line 2: got label '0', expected one of ['entailment'"),
        ("stsb", "1 2", "1 x", (), "p.csv, line 3: got 'x', expected a finite number"),
        ("regress", "1 nan", "1 2", (), "g.csv, line 3: got 'nan', expected a finite number"),
        ("mrpc", "0 1", "0 1", ("0", "1", "2"), "labels: got 3, expected the 2 of mrpc"),
        ("stsb", "0 1", "0 1", ("0", "1"), "labels: stsb predicts values"),
        ("classify", "0 1", "0 1", ("0", "0"), "expected different names"),
        ("classify", "0 1", "0 1", ("0", ""), "expected different names"),
    ],
)
def test_invalid_labels_are_one_line_errors(
    tmp_path: Path, task: str, gold: str, predicted: str, labels: tuple[str, ...], part: str
) -> None:
    with pytest.raises(BadInput) as caught:
        scores(tmp_path, task, gold, predicted, labels=labels)
    assert part in str(caught.value)


def test_unknown_task_error_suggests_a_known_one() -> None:
    with pytest.raises(BadInput, match=r"no task to score named 'mrcp'. Did you mean 'mrpc'\? Known: .*squad2"):
        find_task_scoring("mrcp")


DATA = os.environ.get("BERTVISION_DATA")


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="BERTVISION_DATA names no folder")
@pytest.mark.parametrize(
    ("task", "file", "rows"),
    [
        ("cola", "CoLA/dev.tsv", 1043),
        ("sst2", "SST-2/dev.tsv", 872),
        ("mrpc", "MRPC/dev.tsv", 408),
        ("stsb", "STS-B/dev.tsv", 1500),
        ("qnli", "QNLI/dev.tsv", 5463),
        ("rte", "RTE/dev.tsv", 277),
        ("wnli", "WNLI/dev.tsv", 71),
        ("mnli", "MNLI/dev_matched.jsonl", 9815),
    ],
)
def test_official_gold_files_score_100_against_themselves(tmp_path: Path, task: str, file: str, rows: int) -> None:
    gold = Path(DATA or "") / "glue" / file
    labels = read_labels(gold, GOLD_COLUMNS, headerless_columns=TASK_SCORING[task].headerless_columns).labels
    lines = ["index\tprediction", *(f"{row}\t{label}" for row, label in enumerate(labels))]
    (tmp_path / "predicted.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _, count, result = score_label_files(task, [gold], tmp_path / "predicted.tsv")
    assert count == rows
    assert list(result.values()) == pytest.approx([100] * len(result))
