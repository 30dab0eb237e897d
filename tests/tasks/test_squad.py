"""Reading SQuAD JSON: valid questions, and every kind of invalid question and file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.errors import BadInput
from bertvision.core.records import Answer, Example
from bertvision.tasks.task import Task, load_task

Edit = Callable[[dict[str, Any]], object]


def make_question(name: str, **changes: object) -> dict[str, Any]:
    answers = [{"text": "Ada", "answer_start": 1}]
    return {"id": name, "question": " Who wrote it? ", "answers": answers, "is_impossible": False, **changes}


def make_document(prefix: str = "q", articles: int = 6, paragraphs: int = 2, questions: int = 2) -> dict[str, Any]:
    """Contexts begin with a blank, so that an offset into the stripped text is wrong."""
    data = [
        {
            "title": f"{prefix} article {a}",
            "paragraphs": [
                {
                    "context": f" Ada wrote {prefix}{a}{p}. ",
                    "qas": [make_question(f"{prefix}{a}{p}{q}") for q in range(questions)],
                }
                for p in range(paragraphs)
            ],
        }
        for a in range(articles)
    ]
    return {"version": "v2.0", "data": data}


def first_question(doc: dict[str, Any]) -> dict[str, Any]:
    qa: dict[str, Any] = doc["data"][0]["paragraphs"][0]["qas"][0]
    return qa


def write(folder: Path, doc: object, name: str = "train.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(doc), encoding="utf-8")
    return path


def all_examples(task: Task) -> list[Example]:
    return sorted((e for split in task.splits.values() for e in split), key=lambda e: e.id)


def load_error(name: str = "squad2", **options: object) -> str:
    with pytest.raises(BadInput) as error:
        load_task(name, **options)
    return str(error.value)


def test_questions_are_read_with_context_answers_and_article(tmp_path: Path) -> None:
    doc = make_document()
    first_question(doc)["answers"] = [{"text": "wrote", "answer_start": 5}, *[{"text": "Ada", "answer_start": 1}] * 2]
    task = load_task("squad2", train=str(write(tmp_path, doc)), max_length=64, overlap=16)
    assert all_examples(task)[0] == Example(
        id="q000",
        text="Who wrote it?",
        pair=" Ada wrote q00. ",
        answers=(Answer("wrote", 5), Answer("Ada", 1)),
        group="q article 0",
    )
    assert (task.kind, task.metric, task.no_answer, task.outputs) == ("span", "f1", True, 2)
    assert (task.max_length, task.overlap, task.skipped) == (64, 16, {})
    assert len(all_examples(task)) == 24


def test_articles_are_never_split(tmp_path: Path) -> None:
    task = load_task("squad2", train=write(tmp_path, make_document(articles=20)))
    groups = [{e.group for e in task[split]} for split in ("train", "inner", "dev")]
    assert [len(group) for group in groups] == [16, 2, 2]
    assert len(set.union(*groups)) == 20


def test_several_files_are_combined_and_equal_titles_are_one_group(tmp_path: Path) -> None:
    old_document = make_document("old", articles=5)
    for article in old_document["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                del qa["is_impossible"]
    old_document["data"][0]["title"] = " q article 0 "
    files = [write(tmp_path, make_document(), "new.json"), write(tmp_path, old_document, "old.json")]
    task = load_task("squad2", train=files, dev=write(tmp_path, make_document("dev"), "dev.json"))
    assert len(all_examples(task)) == 24 + 20 + 24
    assert len({e.group for e in task["train"] + task["inner"]}) == 10
    assert {e.group for e in task["dev"]} == {f"dev article {a}" for a in range(6)}


@pytest.mark.parametrize("title", [None, "", "  ", 7])
def test_article_without_a_title_is_named_by_its_index(tmp_path: Path, title: object) -> None:
    doc = make_document()
    doc["data"][1]["title"] = title
    task = load_task("squad2", train=write(tmp_path, doc))
    assert {e.group for e in all_examples(task) if e.id.startswith("q1")} == {"train.json[1]"}


@pytest.mark.parametrize("answers", [[], [{"text": "Ada", "answer_start": 1}], None])
def test_impossible_question_has_no_answers(tmp_path: Path, answers: object) -> None:
    doc = make_document()
    first_question(doc).update(
        is_impossible=True, answers=answers, plausible_answers=[{"text": "Ada", "answer_start": 1}]
    )
    path = write(tmp_path, doc)
    assert all_examples(load_task("squad2", train=path))[0].answers == ()
    assert "unanswerable question: squad1 expects an answer to every question" in load_error("squad1", train=path)
    skipped = load_task("squad1", train=path, skip_bad=True)
    assert skipped.skipped == {"unanswerable question": 1}
    assert not skipped.no_answer


def test_limit_sets_the_number_of_examples(tmp_path: Path) -> None:
    train, dev = write(tmp_path, make_document(articles=30)), write(tmp_path, make_document("d"), "dev.json")
    task = load_task("squad2", train=train, dev=dev, limit=20)
    assert len(task["train"]) + len(task["inner"]) == 20
    assert len(task["dev"]) == 20


def remove_field(key: str) -> Edit:
    return lambda doc: first_question(doc).pop(key)


def set_field(**changes: object) -> Edit:
    return lambda doc: first_question(doc).update(changes)


def set_answer_field(**changes: object) -> Edit:
    return lambda doc: first_question(doc)["answers"][0].update(changes)


AT = "data[0].paragraphs[0].qas[0]"


@pytest.mark.parametrize(
    ("edit", "where", "parts"),
    [
        (set_answer_field(answer_start=2), AT, ["answer is not at its offset", "at 2 is 'da '", "expected 'Ada'"]),
        (set_answer_field(answer_start=-15), AT, ["answer is not at its offset", "at -15"]),
        (set_answer_field(answer_start=99), AT, ["answer is not at its offset", "is ''"]),
        (set_answer_field(answer_start="1"), AT, ["wrong type: answer_start: got '1', expected an integer"]),
        (set_answer_field(answer_start=True), AT, ["wrong type: answer_start: got True"]),
        (set_answer_field(text=None), AT, ["missing text"]),
        (set_answer_field(text=" ", answer_start=0), AT, ["empty text"]),
        (set_field(answers=["Ada"]), AT, ["wrong type: answers: got 'Ada', expected objects"]),
        (set_field(answers={"text": ["Ada"]}), AT, ["wrong type: answers: got {'text': ['Ada']}, expected a list"]),
        (set_field(answers=[]), AT, ["no answer", '"is_impossible": true']),
        (remove_field("answers"), AT, ["no answer"]),
        (set_field(is_impossible="no"), AT, ["wrong type: is_impossible: got 'no', expected true or false"]),
        (remove_field("id"), AT, ["missing id"]),
        (set_field(id=5), AT, ["wrong type: id: got 5, expected text"]),
        (
            set_field(id="q001"),
            "data[0].paragraphs[0].qas[1] (id 'q001')",
            ["duplicate id: also at", f"{AT} (id 'q001')"],
        ),
        (remove_field("question"), AT, ["missing question"]),
        (set_field(question=" \n"), AT, ["empty question"]),
        (set_field(question=["Who?"]), AT, ["wrong type: question: got ['Who?']"]),
        (set_field(question="Who \ud83d?"), AT, ["broken character: question"]),
        (lambda doc: doc["data"][0]["paragraphs"][0].update(qas=[None]), AT, ["wrong type: got None"]),
        (lambda doc: doc["data"][0]["paragraphs"][0].update(qas={}), "data[0].paragraphs[0]", ["qas: got {}"]),
        (lambda doc: doc["data"][0]["paragraphs"].append("text"), "data[0].paragraphs[2]", ["got 'text', expected an"]),
        (lambda doc: doc["data"][0].pop("paragraphs"), "data[0]", ["paragraphs: got None, expected a list"]),
        (lambda doc: doc["data"].append([]), "data[6]", ["got [], expected an object with 'paragraphs'"]),
    ],
)
def test_bad_question_is_an_error_or_counted(tmp_path: Path, edit: Edit, where: str, parts: list[str]) -> None:
    doc = make_document()
    edit(doc)
    path = write(tmp_path, doc)
    message = load_error(train=path)
    for part in [f"{path}, {where}", "--skip-bad", *parts]:
        assert part in message
    task = load_task("squad2", train=path, skip_bad=True)
    assert sum(task.skipped.values()) == 1


@pytest.mark.parametrize(
    ("context", "reason"), [(None, "missing context"), (" ", "empty context"), (5, "wrong type: context: got 5")]
)
def test_all_questions_of_a_bad_context_are_bad(tmp_path: Path, context: object, reason: str) -> None:
    doc = make_document()
    doc["data"][0]["paragraphs"][0]["context"] = context
    path = write(tmp_path, doc)
    assert f"{path}, {AT} (id 'q000'): {reason}" in load_error(train=path)
    assert sum(load_task("squad2", train=path, skip_bad=True).skipped.values()) == 2


def test_error_message_shortens_long_answers(tmp_path: Path) -> None:
    doc = make_document()
    first_question(doc)["answers"][0]["text"] = "Ada " * 5000
    assert len(load_error(train=write(tmp_path, doc))) < 600


def test_duplicate_id_in_train_and_dev_is_an_error(tmp_path: Path) -> None:
    train, dev = make_document(), make_document("dev")
    first_question(dev)["id"] = first_question(train)["id"]
    files = {"train": write(tmp_path, train), "dev": write(tmp_path, dev, "dev.json")}
    message = load_error(train=files["train"], dev=files["dev"])
    assert f"{files['dev']}, {AT} (id 'q000'): duplicate id: also at {files['train']}" in message
    task = load_task("squad2", skip_bad=True, **files)
    assert task.skipped == {"duplicate id": 1}
    assert len(task["dev"]) == 23


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'{"data": [\n1,]}', ["line 2, column", "not JSON"]),
        (b"", ["the file is empty; expected SQuAD JSON"]),
        (b'{"data": "caf\xe9"}', ["not UTF-8 (byte 0xe9 at offset 13)", "encoding does not apply to JSON"]),
        (b"[" * 100_000, ["cannot be read as JSON"]),
        (b'{"data": ' + b"9" * 5000 + b"}", ["cannot be read as JSON"]),
        (b"[]", ["got [], expected SQuAD JSON"]),
        (b'{"data": {}}', ["got {'data': {}}, expected SQuAD JSON"]),
        (b'{"version": "2"}', ["expected SQuAD JSON"]),
        (b'{"data": []}', ["contains no questions"]),
        (b'{"data": [{"paragraphs": [{"context": "c", "qas": []}]}]}', ["contains no questions"]),
    ],
)
def test_bad_file_is_an_error_even_with_skip_bad(tmp_path: Path, content: bytes, parts: list[str]) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(content)
    for skip in (False, True):
        message = load_error(train=path, skip_bad=skip)
        assert all(part in message for part in [str(path), *parts]), message


def test_missing_file_folder_and_no_usable_question_are_errors(tmp_path: Path) -> None:
    assert "none.json: no such file" in load_error(train=tmp_path / "none.json")
    assert "this is a folder" in load_error(train=tmp_path)
    doc = make_document(articles=1, paragraphs=1)
    doc["data"][0]["paragraphs"][0]["context"] = ""
    message = load_error(train=write(tmp_path, doc), skip_bad=True)
    assert "no usable question; skipped 2 bad rows: empty context (2)" in message


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(make_document()), encoding="utf-8-sig")
    assert len(all_examples(load_task("squad2", train=path))) == 24


def test_window_options_are_checked(tmp_path: Path) -> None:
    assert "max_length: got 0" in load_error(train="x", max_length=0)
    assert "overlap: got '1'" in load_error(train="x", overlap="1")


def test_extra_files_are_added_to_train_only(tmp_path: Path) -> None:
    files = {"train": write(tmp_path, make_document()), "dev": write(tmp_path, make_document("d"), "dev.json")}
    more = write(tmp_path, make_document("x"), "extra.json")
    plain, task = load_task("squad2", **files), load_task("squad2", **files, extra=more)
    assert (task["inner"], task["dev"]) == (plain["inner"], plain["dev"])
    assert {e.id[0] for e in task["train"][len(plain["train"]) :]} == {"x"}
    assert len(task["train"]) == len(plain["train"]) + 24


def test_extra_question_must_not_repeat_dev(tmp_path: Path) -> None:
    files = {"train": write(tmp_path, make_document()), "dev": write(tmp_path, make_document("d"), "dev.json")}
    assert "duplicate id" in load_error(**files, extra=files["dev"])


def document_with_unanswerable(kind: str, answered: int, unanswered: int) -> dict[str, Any]:
    """A document with given numbers of questions with and without an answer, five per context."""
    questions = [make_question(f"{kind}{i}") for i in range(answered)]
    questions += [make_question(f"{kind}-{i}", is_impossible=True, answers=[]) for i in range(unanswered)]
    shuffled = random.Random(0).sample(questions, len(questions))
    paragraphs = [{"context": f" Ada {kind} {i}", "qas": shuffled[i : i + 5]} for i in range(0, len(shuffled), 5)]
    return {"data": [{"title": kind, "paragraphs": paragraphs}]}


@pytest.mark.parametrize("task", ["squad2", "answerability"])
def test_no_answer_share_subsamples_train_and_dev(tmp_path: Path, task: str) -> None:
    files = {
        "train": write(tmp_path, document_with_unanswerable("t", 600, 200)),
        "dev": write(tmp_path, document_with_unanswerable("d", 300, 500), "dev.json"),
    }
    whole = load_task(task, **files, no_answer_share=0.5)
    unanswerable = {split: [not example.answers for example in whole[split]] for split in ("train", "inner", "dev")}
    assert sum(unanswerable["train"] + unanswerable["inner"]) == 200
    assert len(unanswerable["train"] + unanswerable["inner"]) == 400
    assert (sum(unanswerable["dev"]), len(unanswerable["dev"])) == (300, 600)
    ids = [example.id for example in load_task(task, **files)["dev"]]
    kept = [example.id for example in whole["dev"]]
    assert kept == [id_ for id_ in ids if id_ in set(kept)], "in the order of the file"
    limited = load_task(task, **files, no_answer_share=0.5, limit=100)["dev"]
    assert 35 <= sum(not example.answers for example in limited) <= 65, "a limit keeps the share"


def test_impossible_no_answer_share_is_an_error(tmp_path: Path) -> None:
    files = {"train": write(tmp_path, document_with_unanswerable("t", 20, 0))}
    with pytest.raises(BadInput, match="all questions of train have an answer"):
        load_task("squad2", **files, no_answer_share=0.5)
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(BadInput, match="between 0 and 1"):
            load_task("squad2", **files, no_answer_share=share)
    with pytest.raises(BadInput, match="squad2"):
        load_task("squad1", **files, no_answer_share=0.5)


def test_threshold_option_needs_squad2(tmp_path: Path) -> None:
    path = write(tmp_path, make_document())
    assert load_task("squad2", train=path, threshold=0.0).threshold == 0.0
    assert load_task("squad2", train=path).threshold is None
    assert "expected a finite number and task 'squad2'" in load_error("squad1", train=path, threshold=0.0)
    assert "expected a finite number" in load_error(train=path, threshold=float("nan"))
