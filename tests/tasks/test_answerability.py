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
YES, NO = (2.0, -1.0), (-1.0, 3.0)  # outputs of a window that says answerable, unanswerable


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


def windows_of(*example: int) -> WindowTable:
    count = len(example)
    return WindowTable(np.array(example, np.int64), np.zeros(count, np.int64), [], np.zeros((count, 1)))


def rows(*outputs: tuple[float, ...]) -> list[np.ndarray]:
    return [np.array(row, np.float32) for row in outputs]


def test_questions_become_two_labels_and_unanswerable_is_the_positive_one(squad_file: Path) -> None:
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
def test_the_splits_are_those_of_squad2(tmp_path: Path, articles: int) -> None:
    """With few articles contexts are kept together, answerable and unanswerable questions alike."""
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(document(articles, contexts=10)), encoding="utf-8")
    more = tmp_path / "more.json"
    more.write_text(json.dumps(document(1)).replace('"0-', '"more-'), encoding="utf-8")
    labels, spans = (load_task(name, train=path, extra=more, limit=30) for name in ("answerability", "squad2"))
    for split in spans.splits:
        assert [e.id for e in labels[split]] == [e.id for e in spans[split]]
    assert sum(e.id.startswith("more-") for e in labels["train"]) == 8
    contexts = [{e.pair for e in labels[split]} for split in labels.splits]
    assert sum(len(one) for one in contexts) == len(set.union(*contexts))


def test_f1_is_that_of_the_unanswerable(squad_file: Path) -> None:
    task = replace(load_task("answerability", train=squad_file), splits={"dev": examples_of(0, 0, 1, 1)})
    verdict = score_split(task, "dev", rows(NO, YES, NO, YES), windows_of(0, 1, 2, 3))
    assert verdict.scores["f1"] == pytest.approx(50)
    everything = score_split(task, "dev", rows(NO, NO, NO, NO), windows_of(0, 1, 2, 3))
    assert everything.scores["f1"] == pytest.approx(200 / 3)
    assert everything.scores["accuracy"] == 50
    assert verdict.answers == {"0": "unanswerable", "1": "answerable", "2": "unanswerable", "3": "answerable"}


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
    doc = document(6)
    doc["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 7
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(doc), encoding="utf-8")
    assert load_task("answerability", train=path, skip_bad=True).skipped == {"answer is not at its offset": 1}
    with pytest.raises(BadInput, match="answer is not at its offset"):
        load_task("answerability", train=path)


LONG = "the old town of Oslo and " * 6 + "Anna lives in Rome " + "and the old town of Lima " * 6
ASKED = Example("q", "where does Anna live", LONG, (Answer("Rome", LONG.index("Rome")),), label=0.0)


def test_a_window_is_labelled_by_what_it_holds(tiny_encoder: Encoder) -> None:
    tokenizer = tiny_encoder.tokenizer
    (rome,) = tokenizer.convert_tokens_to_ids(["rome"])
    windows = make_windows([ASKED], tokenizer, "classify", 32, 8, BadRows(False))
    assert [window.target for window in windows] == [(float(rome not in window.input_ids),) for window in windows]
    assert {window.target for window in windows} == {(0.0,), (1.0,)}
    without = replace(ASKED, answers=(), label=1.0)
    assert {w.target for w in make_windows([without], tokenizer, "classify", 32, 8, BadRows(False))} == {(1.0,)}
    asked = replace(ASKED, answers=(), label=None)  # of a user, who does not know
    assert all(np.isnan(w.target[0]) for w in make_windows([asked], tokenizer, "classify", 32, 8, BadRows(False)))


def test_windows_are_the_same_as_for_spans(tiny_encoder: Encoder) -> None:
    labels, spans = (
        make_windows([ASKED], tiny_encoder.tokenizer, k, 32, 8, BadRows(False)) for k in ("classify", "span")
    )
    assert len(labels) > 2
    for one, other in zip(labels, spans, strict=True):
        assert one.input_ids.tolist() == other.input_ids.tolist()
        assert one.target == (float(other.target == (other.cls, other.cls)),)


def test_any_pair_with_an_overlap_keeps_its_label_in_every_window(tiny_encoder: Encoder) -> None:
    """Without answers a label is the whole pair's; single texts and tasks without overlap have one window."""
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


def test_a_question_longer_than_the_window_is_a_bad_row(tiny_encoder: Encoder) -> None:
    bad = BadRows(skip=True)
    examples = [replace(ASKED, text="where " * 40), ASKED]
    windows = make_windows(examples, tiny_encoder.tokenizer, "classify", 32, 8, bad)
    assert {window.example for window in windows} == {1}
    assert bad.counts == {"question longer than the window": 1}
    with pytest.raises(BadInput, match="expected at least 12"):
        make_windows([ASKED], tiny_encoder.tokenizer, "classify", 11, 8, bad)


@pytest.mark.parametrize(
    ("merge", "said"),
    [("any-answerable", ["answerable", "unanswerable"]), ("any-unanswerable", ["unanswerable", "unanswerable"])],
)
def test_one_window_is_enough(squad_file: Path, merge: str, said: list[str]) -> None:
    """The first question has a window that says yes and one that says no, the second only such that say no."""
    task = load_task("answerability", train=squad_file, merge=merge)
    task = replace(task, splits={"dev": examples_of(0, 1)})
    verdict = score_split(task, "dev", rows(YES, NO, NO, NO), windows_of(0, 0, 1, 1))
    assert list(verdict.answers.values()) == said


def test_the_merge_is_the_minimum_or_maximum_of_the_logit_difference() -> None:
    outputs = rows((0, 5), (1, 3), (4, 4.5), (9, 0))
    table = windows_of(0, 0, 0, 1)
    assert example_outputs(outputs, table, 2, 0).tolist() == [[4, 4.5], [9, 0]]  # differences 5, 2, 0.5: the smallest
    assert example_outputs(outputs, table, 2, 1).tolist() == [[0, 5], [9, 0]]  # the largest
    assert example_outputs(outputs, table, 2).tolist() == [
        [5 / 3, 12.5 / 3],
        [9, 0],
    ]  # the mean, where nothing is asked


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, 3), st.tuples(*[st.floats(-9, 9, width=32)] * 3)), min_size=1, max_size=12),
    st.integers(0, 2),
)
def test_an_example_has_the_label_iff_one_of_its_windows_has_it(
    windows: list[tuple[int, tuple[float, ...]]], label: int
) -> None:
    example, outputs = [one for one, _ in windows], [row for _, row in windows]
    merged = example_outputs(rows(*outputs), windows_of(*example), 4, label)
    for number in range(4):
        own = [row for one, row in windows if one == number]
        others = np.delete(merged[number], label).max()
        assert (merged[number, label] > others) == any(r[label] > np.delete(r, label).max() for r in own)
        if own:
            assert tuple(merged[number]) in own


@QUICK
@given(st.lists(st.tuples(*[st.floats(-9, 9, width=32)] * 2), min_size=1, max_size=6))
def test_with_one_window_each_every_merge_is_that_window(outputs: list[tuple[float, float]]) -> None:
    table = windows_of(*range(len(outputs)))
    expected = np.array(outputs)
    for label in (None, 0, 1):
        assert np.array_equal(example_outputs(rows(*outputs), table, len(outputs), label), expected)


def test_a_question_without_a_window_is_not_said_to_be_answerable(squad_file: Path) -> None:
    task = replace(load_task("answerability", train=squad_file), splits={"dev": examples_of(0, 1)})
    verdict = score_split(task, "dev", rows(YES), windows_of(0))
    assert verdict.answers == {"0": "answerable", "1": "unanswerable"}
    assert all(np.isfinite(list(verdict.scores.values())))


def test_a_saved_task_keeps_its_merge(squad_file: Path, tmp_path: Path) -> None:
    for merge in MERGES:
        task = load_answerability(squad_file, merge=merge)
        save_task(task, tmp_path / merge)
        assert read_task(tmp_path / merge) == task
    old = json.loads((tmp_path / merge / "task.json").read_text(encoding="utf-8"))
    del old["merge"]
    (tmp_path / merge / "task.json").write_text(json.dumps(old), encoding="utf-8")
    assert read_task(tmp_path / merge).merge_label is None


def test_from_questions_to_a_saved_model(tiny_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    """Tuned, stored, fitted, scored and saved; the model merges windows as the scores did."""
    task = as_answerability(span_task)
    encoder = tune(tiny_encoder, task, epochs=2, lr=3e-3, batch=8)
    store = extract(encoder, task, tmp_path / "store", dtype="f32")
    assert len(store["dev"]) > len(task["dev"])
    (head,) = fit(["probe"], store, epochs=2, lr=1e-2, batch=8)
    (found,) = predict(head, store["dev"])
    merged = []
    for label, merge in enumerate(MERGES):
        TextClassifier(encoder, head, replace(task, merge=merge)).save_pretrained(tmp_path / merge)
        model = TextClassifier.from_pretrained(tmp_path / merge)
        assert model.task.merge == merge
        said = model([e.text for e in task["dev"]], [e.pair or "" for e in task["dev"]])
        verdict = score_split(replace(task, merge=merge), "dev", found.logits, found.table)
        assert [one["label"] for one in said] == list(verdict.answers.values())
        outputs = example_outputs(found.logits, found.table, len(task["dev"]), label) / head.temperatures["label"]
        merged.append([one["scores"]["unanswerable"] for one in said])
        assert merged[-1] == pytest.approx(1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1])), abs=1e-4)
    lower = [low < high for low, high in zip(*merged, strict=True)]
    several = np.bincount(found.table.example) > 1
    assert lower == several.tolist()


DATA = os.environ.get("BERTVISION_DATA")


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="BERTVISION_DATA names no folder")
def test_counts_of_the_real_files() -> None:
    folder = Path(DATA or "") / "squad"
    task = load_task("answerability", train=folder / "squad2-train.json", dev=folder / "squad2-dev.json")
    train = [*task["train"], *task["inner"]]
    assert (len(train), sum(e.label == 1 for e in train)) == (8276, 4055)
    assert (len(task["dev"]), sum(e.label == 1 for e in task["dev"])) == (1430, 788)
