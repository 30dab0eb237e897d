"""Answerability: labels of questions and of windows, and how a question's windows are merged."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.records import Answer, Example, WindowTable
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.scoring import example_outputs, score_split
from bertvision.model import TextClassifier
from bertvision.tasks.answerability import LABELS, MERGES, load_answerability
from bertvision.tasks.task import BadRows, Task, load_task, read_task, save_task
from bertvision.tasks.windows import make_windows
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.predict import predict
from bertvision.training.tune import tune

QUICK = settings(max_examples=100, deadline=None, derandomize=True)
ANSWERABLE, UNANSWERABLE = (2.0, -1.0), (-1.0, 3.0)  # outputs of a window that is predicted answerable, unanswerable


def document(articles: int, contexts: int = 4) -> dict[str, Any]:
    """Two questions on every context, one of them without an answer."""
    data = []
    for a in range(articles):
        paragraphs = []
        for c in range(contexts):
            name = f"{a}-{c}"
            answered = {"id": f"{name}-yes", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
            without = {"id": f"{name}-no", "question": "When?", "answers": [], "is_impossible": True}
            paragraphs.append({"context": f"Ada wrote {name}.", "qas": [answered, without]})
        data.append({"title": f"article {a}", "paragraphs": paragraphs})
    return {"version": "v2.0", "data": data}


@pytest.fixture
def squad_file(tmp_path: Path) -> Path:
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(document(6)), encoding="utf-8")
    return path


def as_answerability(task: Task) -> Task:
    """A span task of tests with labels instead of spans."""
    splits = {
        split: tuple(replace(e, label=float(not e.answers)) for e in examples)
        for split, examples in task.splits.items()
    }
    merge = "any-answerable"
    return replace(task, kind="classify", splits=splits, labels=LABELS, no_answer=False, merge=merge)


def window_table(*example: int) -> WindowTable:
    count = len(example)
    return WindowTable(np.array(example, np.int64), np.zeros(count, np.int64), [], np.zeros((count, 1)))


def as_outputs(*outputs: tuple[float, ...]) -> list[np.ndarray]:
    return [np.array(row, np.float32) for row in outputs]


def test_answerability_has_two_labels_and_unanswerable_is_positive(squad_file: Path) -> None:
    task = load_task("answerability", train=squad_file)
    assert (task.name, task.kind, task.metric, task.outputs) == ("answerability", "classify", "f1", 2)
    assert task.labels == ("answerable", "unanswerable")
    assert (task.max_length, task.overlap, task.merge, task.no_answer) == (384, 128, "any-answerable", False)
    examples = [e for split in task.splits.values() for e in split]
    assert len(examples) == 48
    for example in examples:
        assert example.label == (0.0 if example.id.endswith("yes") else 1.0)
        assert (example.text, example.pair is not None) == ("Who?" if example.label == 0 else "When?", True)


@pytest.mark.parametrize("articles", [2, 6])
def test_splits_equal_those_of_squad2(tmp_path: Path, articles: int) -> None:
    """With few articles, all questions on a context stay in one split."""
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(document(articles, contexts=10)), encoding="utf-8")
    more = tmp_path / "more.json"
    more.write_text(json.dumps(document(1)).replace('"0-', '"more-'), encoding="utf-8")
    labels, spans = (load_task(name, train=path, extra=more, limit=30) for name in ("answerability", "squad2"))
    for split in spans.splits:
        assert [e.id for e in labels[split]] == [e.id for e in spans[split]]
    assert sum(e.id.startswith("more-") for e in labels["train"]) == 8
    contexts = [{e.pair for e in labels[split]} for split in labels.splits]
    assert sum(len(pairs) for pairs in contexts) == len(set.union(*contexts))


def test_f1_is_that_of_unanswerable_questions(squad_file: Path) -> None:
    task = replace(load_task("answerability", train=squad_file), splits={"dev": examples_of(0, 0, 1, 1)})
    mixed = score_split(
        task, "dev", as_outputs(UNANSWERABLE, ANSWERABLE, UNANSWERABLE, ANSWERABLE), window_table(0, 1, 2, 3)
    )
    assert mixed.scores["f1"] == pytest.approx(50)
    all_unanswerable = score_split(
        task, "dev", as_outputs(UNANSWERABLE, UNANSWERABLE, UNANSWERABLE, UNANSWERABLE), window_table(0, 1, 2, 3)
    )
    assert all_unanswerable.scores["f1"] == pytest.approx(200 / 3)
    assert all_unanswerable.scores["accuracy"] == 50
    assert mixed.answers == {"0": "unanswerable", "1": "answerable", "2": "unanswerable", "3": "answerable"}


def examples_of(*labels: int) -> tuple[Example, ...]:
    return tuple(Example(str(i), "?", "context", label=float(label)) for i, label in enumerate(labels))


def test_options_are_checked(squad_file: Path) -> None:
    assert load_task("answerability", train=squad_file, merge="any-unanswerable").merge == "any-unanswerable"
    with pytest.raises(BadInput, match="no merge named 'any-answerabel'"):
        load_task("answerability", train=squad_file, merge="any-answerabel")
    with pytest.raises(BadInput, match="overlap: got 0, expected an integer of at least 1"):
        load_task("answerability", train=squad_file, overlap=0)
    with pytest.raises(BadInput, match="option of task 'answerability' named 'kind'"):
        load_task("answerability", train=squad_file, kind="classify")


def test_bad_questions_are_counted(tmp_path: Path) -> None:
    content = document(6)
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 7
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert load_task("answerability", train=path, skip_bad=True).skipped == {"answer is not at its offset": 1}
    with pytest.raises(BadInput, match="answer is not at its offset"):
        load_task("answerability", train=path)


LONG = "the old town of Oslo and " * 6 + "Anna lives in Rome " + "and the old town of Lima " * 6
EXAMPLE = Example("q", "where does Anna live", LONG, (Answer("Rome", LONG.index("Rome")),), label=0.0)


def test_windows_without_the_answer_are_labelled_unanswerable(tiny_encoder: Encoder) -> None:
    tokenizer = tiny_encoder.tokenizer
    (rome,) = tokenizer.convert_tokens_to_ids(["rome"])
    windows = make_windows([EXAMPLE], tokenizer, "classify", 32, 8, BadRows(False))
    assert [window.target for window in windows] == [(float(rome not in window.input_ids),) for window in windows]
    assert {window.target for window in windows} == {(0.0,), (1.0,)}
    unanswerable = replace(EXAMPLE, answers=(), label=1.0)
    assert {w.target for w in make_windows([unanswerable], tokenizer, "classify", 32, 8, BadRows(False))} == {(1.0,)}
    unlabelled = replace(EXAMPLE, answers=(), label=None)  # as given by a user at prediction time
    assert all(np.isnan(w.target[0]) for w in make_windows([unlabelled], tokenizer, "classify", 32, 8, BadRows(False)))


def test_windows_equal_those_of_the_span_task(tiny_encoder: Encoder) -> None:
    labels, spans = (
        make_windows([EXAMPLE], tiny_encoder.tokenizer, k, 32, 8, BadRows(False)) for k in ("classify", "span")
    )
    assert len(labels) > 2
    for label_window, span_window in zip(labels, spans, strict=True):
        assert label_window.input_ids.tolist() == span_window.input_ids.tolist()
        assert label_window.target == (float(span_window.target == (span_window.cls, span_window.cls)),)


def test_pairs_without_answers_have_their_label_in_every_window(tiny_encoder: Encoder) -> None:
    """Without answers the label is that of the whole pair; texts and tasks without overlap have one window."""
    tokenizer = tiny_encoder.tokenizer
    examples = [
        Example("a", "good", LONG, label=2.0),
        Example("b", LONG, label=1.0),
        Example("c", "bad", "old", label=0.0),
    ]
    several = make_windows(examples, tokenizer, "classify", 32, 8, BadRows(False))
    assert [w.example for w in several if w.example] == [1, 2]
    assert len(several) > 4
    assert {(w.example, w.target) for w in several} == {(0, (2.0,)), (1, (1.0,)), (2, (0.0,))}
    for kind, overlap in (("classify", 0), ("regress", 8)):
        single = make_windows(examples, tokenizer, kind, 32, overlap, BadRows(False))  # type: ignore[arg-type]
        assert [w.example for w in single] == [0, 1, 2]


def test_question_longer_than_the_window_is_a_bad_row(tiny_encoder: Encoder) -> None:
    bad = BadRows(skip=True)
    examples = [replace(EXAMPLE, text="where " * 40), EXAMPLE]
    windows = make_windows(examples, tiny_encoder.tokenizer, "classify", 32, 8, bad)
    assert {window.example for window in windows} == {1}
    assert bad.counts == {"question longer than the window": 1}
    with pytest.raises(BadInput, match="expected at least 12"):
        make_windows([EXAMPLE], tiny_encoder.tokenizer, "classify", 11, 8, bad)


@pytest.mark.parametrize(
    ("merge", "expected"),
    [("any-answerable", ["answerable", "unanswerable"]), ("any-unanswerable", ["unanswerable", "unanswerable"])],
)
def test_merge_decides_by_a_single_window(squad_file: Path, merge: str, expected: list[str]) -> None:
    """The windows of the first question disagree, both windows of the second are predicted unanswerable."""
    task = load_task("answerability", train=squad_file, merge=merge)
    task = replace(task, splits={"dev": examples_of(0, 1)})
    split_scores = score_split(
        task, "dev", as_outputs(ANSWERABLE, UNANSWERABLE, UNANSWERABLE, UNANSWERABLE), window_table(0, 0, 1, 1)
    )
    assert list(split_scores.answers.values()) == expected


def test_merge_takes_the_window_with_the_extreme_logit_difference() -> None:
    outputs = as_outputs((0, 5), (1, 3), (4, 4.5), (9, 0))
    table = window_table(0, 0, 0, 1)
    assert example_outputs(outputs, table, 2, 0).tolist() == [[4, 4.5], [9, 0]]  # differences 5, 2, 0.5: the smallest
    assert example_outputs(outputs, table, 2, 1).tolist() == [[0, 5], [9, 0]]  # the largest
    assert example_outputs(outputs, table, 2).tolist() == [
        [5 / 3, 12.5 / 3],
        [9, 0],
    ]  # the mean, if no merge is given


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, 3), st.tuples(*[st.floats(-9, 9, width=32)] * 3)), min_size=1, max_size=12),
    st.integers(0, 2),
)
def test_merged_example_has_the_label_iff_one_of_its_windows_has_it(
    windows: list[tuple[int, tuple[float, ...]]], label: int
) -> None:
    example, outputs = [index for index, _ in windows], [row for _, row in windows]
    merged = example_outputs(as_outputs(*outputs), window_table(*example), 4, label)
    for number in range(4):
        its_outputs = [row for index, row in windows if index == number]
        others = np.delete(merged[number], label).max()
        assert (merged[number, label] > others) == any(r[label] > np.delete(r, label).max() for r in its_outputs)
        if its_outputs:
            assert tuple(merged[number]) in its_outputs


@QUICK
@given(st.lists(st.tuples(*[st.floats(-9, 9, width=32)] * 2), min_size=1, max_size=6))
def test_merge_of_a_single_window_is_that_window(outputs: list[tuple[float, float]]) -> None:
    table = window_table(*range(len(outputs)))
    expected = np.array(outputs)
    for label in (None, 0, 1):
        assert np.array_equal(example_outputs(as_outputs(*outputs), table, len(outputs), label), expected)


def test_question_without_a_window_is_unanswerable(squad_file: Path) -> None:
    task = replace(load_task("answerability", train=squad_file), splits={"dev": examples_of(0, 1)})
    split_scores = score_split(task, "dev", as_outputs(ANSWERABLE), window_table(0))
    assert split_scores.answers == {"0": "answerable", "1": "unanswerable"}
    assert all(np.isfinite(list(split_scores.scores.values())))


def test_saved_task_keeps_its_merge(squad_file: Path, tmp_path: Path) -> None:
    for merge in MERGES:
        task = load_answerability(squad_file, merge=merge)
        save_task(task, tmp_path / merge)
        assert read_task(tmp_path / merge) == task
    document = json.loads((tmp_path / merge / "task.json").read_text(encoding="utf-8"))
    del document["merge"]
    (tmp_path / merge / "task.json").write_text(json.dumps(document), encoding="utf-8")
    assert read_task(tmp_path / merge).merge_label is None


def test_saved_model_merges_windows_like_the_scores(tiny_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    """Tune, extract, fit, score and save; the loaded model merges windows like the scores."""
    task = as_answerability(span_task)
    encoder = tune(tiny_encoder, task, epochs=2, lr=3e-3, batch=8)
    store = extract(encoder, task, tmp_path / "store", dtype="f32")
    assert len(store["dev"]) > len(task["dev"])
    (head,) = fit(["probe"], store, epochs=2, lr=1e-2, batch=8)
    (predictions,) = predict(head, store["dev"])
    merged = []
    for label, merge in enumerate(MERGES):
        TextClassifier(encoder, head, replace(task, merge=merge)).save_pretrained(tmp_path / merge)
        model = TextClassifier.from_pretrained(tmp_path / merge)
        assert model.task.merge == merge
        answers = model([e.text for e in task["dev"]], [e.pair or "" for e in task["dev"]])
        split_scores = score_split(replace(task, merge=merge), "dev", predictions.logits, predictions.table)
        assert [answer["label"] for answer in answers] == list(split_scores.answers.values())
        outputs = (
            example_outputs(predictions.logits, predictions.table, len(task["dev"]), label) / head.temperatures["label"]
        )
        merged.append([answer["scores"]["unanswerable"] for answer in answers])
        assert merged[-1] == pytest.approx(1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1])), abs=1e-4)
    lower = [low < high for low, high in zip(*merged, strict=True)]
    several = np.bincount(predictions.table.example) > 1
    assert lower == several.tolist()


DATA = os.environ.get("BERTVISION_DATA")


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="BERTVISION_DATA names no folder")
def test_label_counts_of_the_real_files() -> None:
    folder = Path(DATA or "") / "squad"
    task = load_task("answerability", train=folder / "squad2-train.json", dev=folder / "squad2-dev.json")
    train = [*task["train"], *task["inner"]]
    assert (len(train), sum(e.label == 1 for e in train)) == (8276, 4055)
    assert (len(task["dev"]), sum(e.label == 1 for e in task["dev"])) == (1430, 788)
