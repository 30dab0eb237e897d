"""Reading SQuAD files to score: both versions, and one clear line per error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertvision.core.errors import BadInput
from bertvision.evaluation.metrics.squad import read_gold, read_predictions


def question(qid: str, *texts: str, **more: object) -> dict[str, object]:
    return {"id": qid, "question": "?", "answers": [{"text": text, "answer_start": 0} for text in texts], **more}


def document(*questions: object) -> dict[str, object]:
    return {"version": "any", "data": [{"title": "t", "paragraphs": [{"context": "c", "qas": list(questions)}]}]}


def write(path: Path, content: object) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def error_message(read: object, *args: object) -> str:
    assert callable(read)
    with pytest.raises(BadInput) as caught:
        read(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_read_gold_reads_several_files_of_both_versions(tmp_path: Path) -> None:
    old = write(tmp_path / "v1.json", document(question("1", "cat", "Cat"), question("2", "dog")))
    impossible = question("3", is_impossible=True, plausible_answers=[{"text": "no", "answer_start": 0}])
    new = write(tmp_path / "v2.json", document(impossible, question("4", "é", is_impossible=False)))
    assert read_gold([old, new]) == {"1": ["cat", "Cat"], "2": ["dog"], "3": [], "4": ["é"]}


def test_read_predictions_reads_answers_by_id(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", {"1": "cat", "2": ""})
    assert read_predictions(path) == {"1": "cat", "2": ""}


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", b'\xef\xbb\xbf{"1": "caf\xc3\xa9"}')
    assert read_predictions(path) == {"1": "café"}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b'{"data": [', "f.json, line 1, column 11: not JSON: Expecting value; expected"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8 (byte 0xff at offset 0)"),
        (b'{"a": "caf\xe9"}', "not UTF-8 (byte 0xe9 at offset 10)"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
    ],
)
def test_files_that_are_not_json_are_errors(tmp_path: Path, content: bytes, part: str) -> None:
    path = write(tmp_path / "f.json", content)
    for text in (error_message(read_gold, [path]), error_message(read_predictions, path)):
        assert text.startswith(str(path))
        assert part in text


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    assert error_message(read_gold, [missing]).startswith(f"{missing}: no such file")
    assert error_message(read_predictions, missing).startswith(f"{missing}: no such file")
    assert error_message(read_predictions, tmp_path).startswith(f"{tmp_path}: this is a folder, expected a file")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ([], 'gold.json: got [], expected SQuAD JSON: {"data": [articles]}'),
        ({"1": "cat"}, "got {'1': 'cat'}, expected SQuAD JSON"),
        ({"data": {}}, "got {'data': {}}, expected SQuAD JSON"),
        ({"data": ["x"]}, "data[0]: wrong type: got 'x', expected an object with 'paragraphs'"),
        ({"data": [{"paragraphs": [{}]}]}, "data[0].paragraphs[0]: wrong type: qas: got None, expected a list"),
        (
            document(question("1"), {"id": "2"}),
            "paragraphs[0].qas[1] (id '2'): missing answers: expected a list",
        ),
        (document({"answers": []}), "qas[0]: missing id: expected text"),
        (document({"id": 5, "answers": []}), "qas[0] (id 5): wrong type: id: got 5, expected text"),
        (document({"id": "1", "answers": None}), "qas[0] (id '1'): wrong type: answers: got None, expected a list"),
        (document({"id": "1", "answers": ["cat"]}), "answers: got 'cat', expected objects with text"),
        (document({"id": "1", "answers": [{"text": 7}]}), "wrong type: text: got 7, expected text"),
        (document(), "contains no questions"),
        ({"data": []}, "contains no questions"),
    ],
)
def test_gold_of_the_wrong_structure_is_an_error(tmp_path: Path, content: object, part: str) -> None:
    path = write(tmp_path / "gold.json", content)
    text = error_message(read_gold, [path])
    assert text.startswith(str(path))
    assert part in text


def test_duplicate_question_is_an_error(tmp_path: Path) -> None:
    first = write(tmp_path / "one.json", document(question("1"), question("2")))
    second = write(tmp_path / "two.json", document(question("2")))
    text = error_message(read_gold, [first, second])
    assert text.startswith(f"{second}, data[0].paragraphs[0].qas[0] (id '2'): duplicate id: also at {first}, data[0]")
    again = write(tmp_path / "again.json", document(question("1"), question("1")))
    assert "qas[1] (id '1'): duplicate id: also at" in error_message(read_gold, [again])


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'[{"id": "1"}]', "$: got [{'id': '1'}], expected one object"),
        (b'"cat"', "$: got 'cat', expected one object"),
        (b"{}", "got no predictions"),
        (b'{"1": "cat", "2": null}', "$['2']: got None, expected a string answer"),
        (b'{"1": ["cat"]}', "$['1']: got ['cat'], expected a string answer"),
        (b'{"1": NaN}', "$['1']: got nan, expected a string answer"),
        (b'{"1": "cat", "1": "dog"}', "the key '1' is given twice"),
    ],
)
def test_predictions_of_the_wrong_structure_are_an_error(tmp_path: Path, content: bytes, part: str) -> None:
    path = write(tmp_path / "p.json", content)
    text = error_message(read_predictions, path)
    assert text.startswith(f"{path}: ")
    assert part in text
