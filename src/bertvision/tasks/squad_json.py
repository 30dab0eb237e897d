"""SQuAD JSON, versions 1.1 and 2.0: from a file to questions, each with the place it was found at.

``{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers", "is_impossible"}]}]}]}``
with answers ``{"text", "answer_start"}``. A question is a row. A part that holds no list of questions
where there should be one counts as one bad row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.convert import distinct_keys
from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Answer, Example
from bertvision.tasks.readers.encodings import open_file
from bertvision.tasks.readers.files import is_unicode
from bertvision.tasks.task import BadRow, BadRows


@dataclass(frozen=True)
class Found:
    """A question as it stands in the file, not yet checked, with what is around it."""

    where: str
    group: str
    paragraph: Mapping[str, object]
    question: object


def walk(path: Path, bad: BadRows) -> Iterator[Found]:
    """Every question of a file, in order."""
    for number, article in enumerate(_load_articles(path)):
        at = f"{path}, data[{number}]"
        group = _group(article, f"{path.name}[{number}]")
        for paragraph_at, paragraph in _items(article, "paragraphs", at, bad):
            for question_at, question in _items(paragraph, "qas", paragraph_at, bad):
                assert isinstance(paragraph, dict)
                name = f" (id {shorten(question['id'])})" if isinstance(question, dict) and "id" in question else ""
                yield Found(question_at + name, group, paragraph, question)


def _load_articles(path: Path) -> list[object]:
    with open_file(path) as file:
        content = file.read()
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=distinct_keys)
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at position {error.start}"
        raise BadInput(f"{path}: not UTF-8: {byte}; --encoding does not apply to JSON: save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON that can be read: {error}") from None
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise BadInput(f'{path}: got {shorten(document)}, expected SQuAD JSON: {{"data": [articles]}}')
    return articles


def _group(article: object, otherwise: str) -> str:
    """The title, which names the article in every file; it serves grouping only, so any other will do."""
    title = article.get("title") if isinstance(article, dict) else None
    return title.strip() if isinstance(title, str) and title.strip() else otherwise


def _items(node: object, key: str, where: str, bad: BadRows) -> Iterator[tuple[str, object]]:
    """The members of the list ``node[key]``, each with its place."""
    with bad.row(where):
        if not isinstance(node, dict):
            raise BadRow("wrong type", f"got {shorten(node)}, expected an object with {key!r}")
        if not isinstance(node.get(key), list):
            raise BadRow("wrong type", f"{key}: got {shorten(node.get(key))}, expected a list")
        for number, item in enumerate(node[key]):
            yield f"{where}.{key}[{number}]", item


def check_question(found: Found, no_answer: bool) -> Example:
    """The example that a question is, or :class:`BadRow`.

    The context stays as it is, because answers point into it; the question loses its outer blanks.
    """
    question = found.question
    if not isinstance(question, dict):
        raise BadRow("wrong type", f"got {shorten(question)}, expected a question object")
    name, text, context = _text(question, "id"), _text(question, "question"), _text(found.paragraph, "context")
    answers = _answers(question, context)
    if not answers and not no_answer:
        raise BadRow("unanswerable question", "squad1 asks only what can be answered; load the file as squad2")
    return Example(id=name, text=text.strip(), pair=context, answers=answers, group=found.group)


def _answers(question: Mapping[str, object], context: str) -> tuple[Answer, ...]:
    """All distinct gold answers in order; none where the question says that it has none."""
    impossible = question.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise BadRow("wrong type", f"is_impossible: got {shorten(impossible)}, expected true or false")
    if impossible:
        return ()
    listed = question.get("answers", [])
    if not isinstance(listed, list):
        raise BadRow("wrong type", f"answers: got {shorten(listed)}, expected a list")
    if not listed:
        raise BadRow("no answer", 'got no answers, expected one; if there is none, say "is_impossible": true')
    return tuple(dict.fromkeys(_answer(item, context) for item in listed))


def _answer(item: object, context: str) -> Answer:
    if not isinstance(item, dict):
        raise BadRow("wrong type", f"answers: got {shorten(item)}, expected objects with text and answer_start")
    text, start = _text(item, "text"), item.get("answer_start")
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRow("wrong type", f"answer_start: got {shorten(start)}, expected a whole number")
    there = context[start : start + len(text)] if start >= 0 else ""
    if there != text:
        at = f"the context at {start} is {shorten(there)}, expected {shorten(text)}"
        raise BadRow("answer is not at its offset", f"{at}; correct answer_start (it counts characters from 0)")
    return Answer(text, start)


def _text(node: Mapping[str, object], key: str) -> str:
    """A string that is not blank and can be written as UTF-8 (JSON can spell half a character)."""
    value = node.get(key)
    if value is None:
        raise BadRow(f"missing {key}", "expected text")
    if not isinstance(value, str):
        raise BadRow("wrong type", f"{key}: got {shorten(value)}, expected text")
    if not value.strip():
        raise BadRow(f"empty {key}", f"got {value[:20]!r}, expected text")
    if not is_unicode(value):
        raise BadRow("broken character", f"{key}: got half a surrogate pair, expected Unicode text")
    return value
