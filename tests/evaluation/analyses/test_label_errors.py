"""Likely label errors: labels changed on purpose are found, on predictions computed by hand or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bertvision.core.records import FOLDS, Example, Predictions, WindowTable
from bertvision.evaluation.analyses.label_errors import (
    COLUMNS,
    MAX_ROWS,
    MAX_TEXT,
    comparable_members,
    doubted_labels,
    doubted_values,
    label_errors,
)
from bertvision.tasks.task import Task

Array = np.ndarray[Any, Any]
LABELS = ("bad", "good", "plain")


def rounded(doubts: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(doubt.row, doubt.given, doubt.suggested, round(doubt.doubt, 6), doubt.agree) for doubt in doubts]


def test_label_is_doubted_above_the_bar_of_the_other_label() -> None:
    gold = np.array([0, 0, 0, 1, 1])
    # Bars: 0.6 for label 0 (0.9, 0.8, 0.1), 0.75 for label 1 (0.9, 0.6).
    bad = np.array([0.9, 0.8, 0.1, 0.1, 0.4])
    probabilities = np.stack([bad, 1 - bad], 1)
    assert rounded(doubted_labels(gold, probabilities, probabilities[None])) == [(2, 0, 1, 0.8, 1)]
    bad[2] = 0.28  # more probable than the given label, but not as probable as that label is for its rows
    gold, bad = np.append(gold, 1), np.append(bad, 0.1)  # bars 0.66 and 0.8
    probabilities = np.stack([bad, 1 - bad], 1)
    assert doubted_labels(gold, probabilities, probabilities[None]) == []


def test_most_heads_have_to_agree() -> None:
    gold, sure = np.array([0, 0, 1, 1]), np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.2, 0.8]])
    other = np.where(np.arange(4)[:, None] == 1, sure[:, ::-1], sure)
    assert [doubt.agree for doubt in doubted_labels(gold, sure, np.stack([sure, sure, other]))] == [2]
    assert doubted_labels(gold, sure, np.stack([sure, other])) == []


def test_label_without_rows_is_not_suggested() -> None:
    probabilities = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    assert doubted_labels(np.array([0, 0, 1]), probabilities, probabilities[None]) == []


def test_values_far_from_the_predicted_ones_are_doubted() -> None:
    predicted = np.linspace(0.0, 1.0, 9)
    gold = predicted + np.array([0.1, -0.1, 0.1, -0.1, 0.0, 0.1, -0.1, 5.0, 0.1])
    (doubt,) = doubted_values(gold, predicted, predicted[None])
    assert (doubt.row, doubt.given, doubt.suggested) == (7, gold[7], predicted[7])
    assert doubt.doubt == pytest.approx(5.1 / (1.4826 * 0.1), rel=0.05)
    assert doubted_values(gold, predicted, np.stack([predicted, gold])) == []
    assert doubted_values(predicted, predicted, predicted[None]) == []


def predictions(logits: Array, targets: Array, spec: str = "probe", split: str = FOLDS, seed: int = 0) -> Predictions:
    count = len(logits)
    table = WindowTable(np.arange(count), np.zeros(count, np.int64), [np.zeros((1, 2), np.int32)] * count, targets)
    return Predictions(spec, spec, "head", split, list(logits.astype(np.float32)), table, seed=seed)


def noisy_heads(logits: Array, targets: Array, specs: int = 3) -> list[Predictions]:
    """Heads with two seeds each, whose outputs differ a little."""
    generator = np.random.default_rng(1)
    pairs = [(f"head{number}", seed) for number in range(specs) for seed in (0, 1)]
    noise = [0.3 * generator.normal(size=logits.shape) for _ in pairs]
    return [
        predictions(logits + more, targets, spec, seed=seed) for (spec, seed), more in zip(pairs, noise, strict=True)
    ]


def task_of(kind: Any, examples: Sequence[Example], labels: Sequence[str] = (), **settings: Any) -> Task:
    cut = len(examples) * 9 // 10
    splits = {"train": tuple(examples[:cut]), "inner": tuple(examples[cut:]), "dev": tuple(examples[:1])}
    return Task("texts", kind, splits, "accuracy", tuple(labels), **settings)


def changed_labels(count: int, changed: int, labels: int) -> tuple[Array, Array]:
    """True labels, and given ones of which the first ``changed`` are wrong."""
    truth = np.random.default_rng(0).integers(0, labels, count)
    given = truth.copy()
    given[:changed] = (truth[:changed] + 1) % labels
    return truth, given


def test_changed_labels_are_listed_first() -> None:
    truth, given = changed_labels(400, 20, 3)
    logits = 2.5 * np.eye(3)[truth] + np.random.default_rng(2).normal(size=(400, 3))
    task = task_of("classify", [Example(f"f:{i}", f"text {i}", label=float(y)) for i, y in enumerate(given)], LABELS)
    finding = label_errors(task, noisy_heads(logits, given[:, None].astype(float)))
    assert finding is not None
    listed = [int(str(row["id"]).removeprefix("f:")) for row in finding.rows]
    assert np.mean([row < 20 for row in listed[:15]]) > 0.9
    assert len(set(listed) & set(range(20))) >= 15
    assert finding.title == f"Likely label errors: {len(listed)} of 400 rows of train and inner"
    assert finding.columns["agree"] == "heads that agree, of 3"
    assert "pair" not in finding.columns
    assert all(tuple(row) == tuple(COLUMNS) for row in finding.rows)
    doubts = [float(row["doubt"] or 0) for row in finding.rows]
    assert doubts == sorted(doubts, reverse=True)
    for row, index in zip(finding.rows, listed, strict=True):
        assert row["given"] == LABELS[given[index]]
        assert row["suggested"] != row["given"]
        assert row["agree"] in (2, 3)
        assert row["doubt"] == pytest.approx(float(row["suggested_probability"]) - float(row["given_probability"]))  # type: ignore[arg-type]


def test_changed_label_sets_are_listed_by_label() -> None:
    truth = np.random.default_rng(0).integers(0, 2, (200, 3))
    given = truth.copy()
    given[:10, 1] = 1 - truth[:10, 1]
    logits = 3.0 * (2 * truth - 1) + np.random.default_rng(2).normal(size=truth.shape)
    examples = [
        Example(f"f:{i}", "text", "more", labels=tuple(np.flatnonzero(y).tolist())) for i, y in enumerate(given)
    ]
    finding = label_errors(task_of("multilabel", examples, LABELS), noisy_heads(logits, given.astype(float)))
    assert finding is not None
    best = finding.rows[:8]
    assert all(int(str(row["id"])[2:]) < 10 for row in best)
    assert {(row["given"], row["suggested"]) for row in best} == {("good: no", "good: yes"), ("good: yes", "good: no")}
    assert finding.rows[0]["pair"] == "more"
    assert "pair" in finding.columns


def test_changed_values_are_listed_on_their_own_scale() -> None:
    truth = np.random.default_rng(0).normal(size=(200, 1))
    given = truth.copy()
    given[:6] += 4.0
    task = task_of(
        "regress",
        [Example(f"f:{i}", "t", label=10 + 2 * float(y[0])) for i, y in enumerate(given)],
        center=10,
        spread=2,
    )
    logits = truth + 0.2 * np.random.default_rng(2).normal(size=truth.shape)
    finding = label_errors(task, noisy_heads(logits, given))
    assert finding is not None
    assert {str(row["id"]) for row in finding.rows[:6]} == {f"f:{i}" for i in range(6)}
    assert finding.rows[0]["given"] == pytest.approx(float(finding.rows[0]["suggested"] or 0) + 8.0, abs=2.0)
    assert "suggested_probability" not in finding.columns


def test_only_inner_is_judged_without_folds() -> None:
    truth, given = changed_labels(50, 3, 2)
    examples = [Example(f"t:{i}", "t", label=0.0) for i in range(450)]
    examples += [Example(f"i:{i}", "t", label=float(y)) for i, y in enumerate(given)]
    member = predictions(4.0 * np.eye(2)[truth], given[:, None].astype(float), split="inner")
    finding = label_errors(task_of("classify", examples, LABELS[:2]), [member])
    assert finding is not None
    assert finding.title == "Likely label errors: 3 of 50 rows of inner"
    assert finding.about.startswith("Only the rows of inner are judged")
    assert [row["id"] for row in finding.rows] == ["i:0", "i:1", "i:2"]


def test_out_of_fold_predictions_come_before_those_on_inner() -> None:
    logits, targets = np.zeros((4, 2)), np.zeros((4, 1))
    both = [predictions(logits, targets, split="inner"), predictions(logits, targets)]
    assert comparable_members(both) == both[1:]
    assert comparable_members(both[:1]) == both[:1]


def test_texts_without_windows_are_not_judged() -> None:
    truth, given = changed_labels(20, 4, 2)
    member = predictions(4.0 * np.eye(2)[truth], given[:, None].astype(float))
    windows = np.arange(1, 20)
    table = replace(member.table, example=windows, cls=member.table.cls[1:], targets=member.table.targets[1:])
    member = replace(member, logits=member.logits[1:], table=table)
    task = task_of("classify", [Example(str(i), "t", label=float(y)) for i, y in enumerate(given)], LABELS[:2])
    finding = label_errors(task, [member])
    assert finding is not None
    assert finding.title == "Likely label errors: 3 of 19 rows of train and inner"
    assert [row["id"] for row in finding.rows] == ["1", "2", "3"]


def test_long_lists_and_texts_are_cut() -> None:
    count, wrong = 3 * MAX_ROWS, MAX_ROWS + 10
    given = np.arange(count) % 2
    truth = np.where(np.arange(count) < wrong, 1 - given, given)
    examples = [Example(str(i), "x" * 1000, label=float(y)) for i, y in enumerate(given)]
    member = predictions(4.0 * np.eye(2)[truth], given[:, None].astype(float))
    finding = label_errors(task_of("classify", examples, LABELS[:2]), [member])
    assert finding is not None
    assert len(finding.rows) == MAX_ROWS
    assert finding.title.startswith("Likely label errors: 1,010 of 3,000 rows")
    assert finding.about.endswith("Of 1,010 doubts the 1,000 largest are kept.")
    assert len(str(finding.rows[0]["text"])) == MAX_TEXT


def test_spans_have_no_labels() -> None:
    member = predictions(np.zeros((4, 2)), np.zeros((4, 2)))
    assert label_errors(task_of("span", [Example("q", "t")] * 4), [member]) is None
