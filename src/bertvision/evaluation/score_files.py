"""Scores of label files: all of them for a table of one's own, the official ones for tasks that have a name.

Wang et al. 2018, https://arxiv.org/abs/1804.07461, table 1; the diagnostic set ``ax`` is scored by
Matthews correlation of its three labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.core.registry import unknown
from bertvision.evaluation.label_files import GOLD, PREDICTED, LabelFile, Row, read_labels
from bertvision.evaluation.label_pairs import LabelPairs, pair_labels
from bertvision.evaluation.metrics.labels import classification_scores
from bertvision.evaluation.metrics.squad import read_gold
from bertvision.evaluation.metrics.values import regression_scores


@dataclass(frozen=True)
class Official:
    """How a task is scored: metrics, and labels by number (a file may write either); no labels: values."""

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    headless: tuple[str, ...] = ()  # columns of a gold file that comes without a header


NLI = ("entailment", "neutral", "contradiction")

OFFICIAL: Mapping[str, Official] = {
    "cola": Official(
        ("unacceptable", "acceptable"), ("matthews_correlation",), ("source", "label", "notation", "sentence")
    ),
    "sst2": Official(("negative", "positive")),
    "mrpc": Official(("not_equivalent", "equivalent"), ("accuracy", "f1")),
    "stsb": Official((), ("pearson", "spearmanr")),
    "qqp": Official(("not_duplicate", "duplicate"), ("accuracy", "f1")),
    "mnli": Official(NLI),
    "mnli-mm": Official(NLI),
    "qnli": Official(("entailment", "not_entailment")),
    "rte": Official(("entailment", "not_entailment")),
    "wnli": Official(("not_entailment", "entailment")),
    "ax": Official(NLI, ("matthews_correlation",)),
    "answerability": Official(("answerable", "unanswerable"), ("accuracy", "f1")),
}


def find_official(task: str) -> tuple[str, Official | None]:
    """Canonical name and record, None for ``classify`` and ``regress``; SST-2 is sst2, sts_b is stsb."""
    plain = {_plain(name): name for name in ("classify", "regress", *OFFICIAL)}
    name = plain.get(_plain(task))
    if name is None:
        raise BadInput(unknown("task to score", task, ["squad1", "squad2", *plain.values()]))
    return name, OFFICIAL.get(name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def score_label_files(
    task: str,
    golds: Sequence[Path],
    predicted: Path,
    label_column: str | None = None,
    labels: Sequence[str] = (),
    encoding: str | None = None,
) -> tuple[str, int, dict[str, float]]:
    """(task, rows, scores times 100). ``labels`` are all that there are; of two, the second is the positive one.

    One gold file; the gold of ``answerability`` are SQuAD files, as many as there are.
    """
    name, official = find_official(task)
    values = name == "regress" or (official is not None and not official.labels)
    _check_labels(name, labels, 0 if values else len(official.labels) if official else None)
    if len(golds) != 1 and name != "answerability":
        raise BadInput(f"score {name} needs one gold file and one of predictions, got {len(golds) + 1} files")
    if name == "answerability":
        gold = _squad_labels(golds)
    else:
        gold = read_labels(golds[0], GOLD, label_column, encoding, official.headless if official else ())
    pairs = pair_labels(gold, read_labels(predicted, PREDICTED, encoding=encoding))
    scores = _value_scores(pairs) if values else _class_scores(pairs, _numbers(pairs, official, labels))
    wanted = official.metrics if official else tuple(scores)
    return name, len(pairs.gold), {metric: scores[metric] for metric in wanted}


def _squad_labels(golds: Sequence[Path]) -> LabelFile:
    """Questions with the label that having answers gives them."""
    names = OFFICIAL["answerability"].labels
    rows: list[Row] = []
    for number, (qid, texts) in enumerate(read_gold(golds).items(), 1):
        rows.append((number, {"id": qid, "label": names[not texts]}))
    return LabelFile(golds[0], tuple(rows), ("id", "label"), "label")


def _numbers(pairs: LabelPairs, official: Official | None, labels: Sequence[str]) -> dict[str, int]:
    """The number of everything that a label may be written as."""
    if labels or official is None:
        return {label: number for number, label in enumerate(labels or _label_names(pairs.gold))}
    written = {str(number): number for number in range(len(official.labels))}
    return written | {label: number for number, label in enumerate(official.labels)}


def _check_labels(task: str, labels: Sequence[str], count: int | None) -> None:
    if labels and count == 0:
        raise BadInput(f"--labels: {task} is about numbers; leave it out")
    if labels and count not in (None, len(labels)):
        raise BadInput(f"--labels: got {len(labels)}, expected the {count} of {task}")
    if len(set(labels)) < len(labels) or not all(labels):
        raise BadInput(f"--labels: got {shorten(list(labels))}, expected different names")


def _class_scores(pairs: LabelPairs, numbers: Mapping[str, int]) -> dict[str, float]:
    gold = _numbered(pairs.gold, pairs.gold_places, numbers)
    predicted = _numbered(pairs.predicted, pairs.predicted_places, numbers)
    return classification_scores(gold, predicted, len(set(numbers.values())))


def _value_scores(pairs: LabelPairs) -> dict[str, float]:
    return regression_scores(
        _values(pairs.gold, pairs.gold_places),
        _values(pairs.predicted, pairs.predicted_places),
    )


def _label_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels that occur, numbers by size, else by name; the order in which ``text`` tasks number them."""
    sizes = {name: _number(name) for name in set(labels)}
    by_size = None not in sizes.values()
    return tuple(sorted(sizes, key=lambda name: ((sizes[name] or 0.0) if by_size else 0.0, name)))


def _numbered(labels: Sequence[str], places: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    for label, place in zip(labels, places, strict=True):
        if label not in numbers:
            listed = shorten(list(numbers), 200)
            raise BadInput(f"{place}: got label {shorten(label)}, expected one of {listed} (or give all by --labels)")
    return [numbers[label] for label in labels]


def _values(labels: Sequence[str], places: Sequence[str]) -> list[float]:
    values = []
    for label, place in zip(labels, places, strict=True):
        value = _number(label)
        if value is None:
            raise BadInput(f"{place}: got {shorten(label)}, expected a finite number")
        values.append(value)
    return values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
