"""Reader of SQuAD JSON, 1.1 and 2.0: from a file to its questions, for training and for scoring.

Problems of one question go to ``BadRows``; problems of the whole file raise BadInput.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import reject_duplicate_keys
from bertvision.tasks.readers.encodings import is_unicode, open_file
from bertvision.tasks.task import BadRow, BadRows


@dataclass(frozen=True)
class RawQuestion:
    """A question as read from the file, unchecked, with its paragraph and the title of its article."""

    where: str
    group: str
    paragraph: Mapping[str, object]
    question: object


def read_bytes(path: Path, expected: str) -> bytes:
    """What is in a file, which must not be blank; ``expected`` is what the messages say it should be."""
    with open_file(path) as file:
        content = file.read()
    if not content.removeprefix(codecs.BOM_UTF8).strip():
        raise BadInput(f"{path}: the file is empty; expected {expected}")
    return content


def read_json(path: Path, expected: str) -> object:
    """The document of a file. No object may name a key twice: of two values JSON would silently keep the last."""
    content = read_bytes(path, expected)
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=reject_duplicate_keys)
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        raise BadInput(f"{path}: not UTF-8 ({byte}); encoding does not apply to JSON: save it as UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise BadInput(f"{where}: not JSON: {error.msg}; expected {expected}") from None
    except RecursionError:
        raise BadInput(f"{path}: cannot be read as JSON: nested too deeply; expected {expected}") from None
    except ValueError as error:
        raise BadInput(f"{path}: cannot be read as JSON: {error}") from None


def read_questions(path: Path, bad: BadRows) -> list[RawQuestion]:
    """Every question of a file, in order; at least one."""
    document = read_json(path, "SQuAD JSON")
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise BadInput(f'{path}: got {shorten(document)}, expected SQuAD JSON: {{"data": [articles]}}')
    questions: list[RawQuestion] = []
    for number, article in enumerate(articles):
        where = f"{path}, data[{number}]"
        title = article.get("title") if isinstance(article, dict) else None
        # The title only groups examples for splitting, so any unique name can stand in for it.
        group = (isinstance(title, str) and title.strip()) or f"{path.name}[{number}]"
        for paragraph_where, paragraph in _members(article, "paragraphs", where, bad):
            for question_where, question in _members(paragraph, "qas", paragraph_where, bad):
                assert isinstance(paragraph, dict)
                qid = f" (id {shorten(question['id'])})" if isinstance(question, dict) and "id" in question else ""
                questions.append(RawQuestion(question_where + qid, group, paragraph, question))
    if not questions:
        raise BadInput(f"{path}: contains no questions; expected data[].paragraphs[].qas[]")
    return questions


def _members(node: object, key: str, where: str, bad: BadRows) -> Iterator[tuple[str, object]]:
    """The members of the list ``node[key]``, each with its location for messages."""
    with bad.row(where):
        if not isinstance(node, dict):
            raise BadRow("wrong type", f"got {shorten(node)}, expected an object with {key!r}")
        if not isinstance(node.get(key), list):
            raise BadRow("wrong type", f"{key}: got {shorten(node.get(key))}, expected a list")
        for number, member in enumerate(node[key]):
            yield f"{where}.{key}[{number}]", member


def question_fields(raw: RawQuestion) -> Mapping[str, object]:
    """The fields of a question, which must be an object."""
    if not isinstance(raw.question, dict):
        raise BadRow("wrong type", f"got {shorten(raw.question)}, expected a question object")
    return raw.question


def answer_objects(question: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The gold answers of a question as listed; none if it has no list."""
    answers = question.get("answers", [])
    if not isinstance(answers, list):
        raise BadRow("wrong type", f"answers: got {shorten(answers)}, expected a list")
    for answer in answers:
        if not isinstance(answer, dict):
            raise BadRow("wrong type", f"answers: got {shorten(answer)}, expected objects with text and answer_start")
    return answers


def string_field(node: Mapping[str, object], key: str) -> str:
    """A string, which may be blank."""
    value = node.get(key)
    if value is None:
        raise BadRow(f"missing {key}", "expected text")
    if not isinstance(value, str):
        raise BadRow("wrong type", f"{key}: got {shorten(value)}, expected text")
    return value


def text_field(node: Mapping[str, object], key: str) -> str:
    """A string that is not blank and is valid Unicode (JSON can escape half a surrogate pair)."""
    value = string_field(node, key)
    if not value.strip():
        raise BadRow(f"empty {key}", f"got {value[:20]!r}, expected text")
    if not is_unicode(value):
        raise BadRow("broken character", f"{key}: got half a surrogate pair, expected Unicode text")
    return value
