"""SQuAD 1.1 and 2.0: questions about a context, answered by a stretch of it or, in 2.0, by nothing.

Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250, and 2018, https://arxiv.org/abs/1806.03822.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import reject_duplicate_keys
from bertvision.core.records import Answer, Example
from bertvision.tasks.readers.encodings import is_unicode, open_file
from bertvision.tasks.splits import make_splits, spread
from bertvision.tasks.task import TASKS, BadRow, BadRows, PathsLike, Task, as_paths, check_integer


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
        title = article.get("title") if isinstance(article, dict) else None
        named = isinstance(title, str) and title.strip()
        group = named or f"{path.name}[{number}]"  # only groups examples, so any other name will do
        for paragraph_at, paragraph in _items(article, "paragraphs", at, bad):
            for question_at, question in _items(paragraph, "qas", paragraph_at, bad):
                assert isinstance(paragraph, dict)
                name = f" (id {shorten(question['id'])})" if isinstance(question, dict) and "id" in question else ""
                yield Found(question_at + name, group, paragraph, question)


def _load_articles(path: Path) -> list[object]:
    with open_file(path) as file:
        content = file.read()
    try:
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=reject_duplicate_keys)
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


def load_squad(
    name: str,
    train: PathsLike,
    dev: PathsLike | None = None,
    *,
    extra: PathsLike | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    max_length: int = 384,
    overlap: int = 128,
    threshold: float | None = None,
    no_answer_share: float | None = None,
) -> Task:
    """SQuAD JSON files, 1.1 and 2.0 in any mix, as a task with the splits train, inner and dev.

    Without ``dev``, a tenth of the articles is cut off for it. ``limit`` takes that many training
    questions, spread over all files by a hash of their ids, and leaves at most as many for dev.
    ``extra`` files are learned from too but never get into inner: what is fitted there, above all
    the no-answer threshold, must see the mix of questions that will be asked. A ``threshold`` that is
    given is not fitted: at 0 a question goes unanswered where no answer scores higher than any span.
    ``no_answer_share`` leaves questions out of train and of dev until so many of each have no answer.
    """
    check_integer("max_length", max_length, 1)
    check_integer("overlap", overlap, 0)
    bad, seen = BadRows(skip_bad), dict[str, str]()
    no_answer = name == "squad2"
    if threshold is not None and not (no_answer and math.isfinite(threshold)):
        raise BadInput(f"threshold {threshold:g} of task {name!r}: expected a number, and a task that may say nothing")
    if no_answer_share is not None and not (no_answer and 0 < no_answer_share < 1):
        raise BadInput(
            f"no_answer_share {no_answer_share:g} of task {name!r}: expected a number between 0 and 1, and squad2"
        )
    questions = subsample_unanswerable(
        read_squad(as_paths("train", train), bad, seen, no_answer), no_answer_share, "train"
    )
    held_out = None
    if dev is not None:
        held_out = subsample_unanswerable(
            read_squad(as_paths("dev", dev), bad, seen, no_answer), no_answer_share, "dev"
        )
    more = [] if extra is None else read_squad(as_paths("extra", extra), bad, seen, no_answer)
    splits = make_splits(questions, held_out, stratify=False, limit=limit)
    return Task(
        name=name,
        kind="span",
        splits={**splits, "train": (*splits["train"], *more)},
        metric="f1",
        no_answer=no_answer,
        threshold=threshold,
        max_length=max_length,
        overlap=overlap,
        skipped=dict(bad.counts),
    )


def read_squad(paths: Sequence[Path], bad: BadRows, seen: dict[str, str], no_answer: bool) -> list[Example]:
    """The good questions of some files; ``seen`` maps the ids so far to their places, and grows.

    Handing the same ``seen`` to training and dev files keeps a question from being in both.
    """
    examples: list[Example] = []
    for path in paths:
        questions = list(walk(path, bad))
        for found in questions:
            with bad.row(found.where):
                example = check_question(found, no_answer)
                if example.id in seen:  # in training and dev files it would be an answer learnt by heart
                    detail = f"also at {seen[example.id]}; ids must differ, also between training and dev files"
                    raise BadRow("duplicate id", detail)
                seen[example.id] = found.where
                examples.append(example)
        if not questions:
            raise BadInput(f"{path}: no questions in it; expected data[].paragraphs[].qas[]")
    if not examples:
        raise BadInput(f"{', '.join(map(str, paths))}: no question can be used; {bad}")
    return examples


def subsample_unanswerable(examples: Sequence[Example], share: float | None, split: str) -> Sequence[Example]:
    """As many as can be kept for ``share`` of them to have no answer, spread over all files, in their order."""
    if share is None:
        return examples
    unanswerable = [example for example in examples if not example.answers]
    answerable = [example for example in examples if example.answers]
    if not unanswerable or not answerable:
        raise BadInput(
            f"no_answer_share {share:g}: all questions of {split} have {'an' if answerable else 'no'} answer"
        )
    total = min(len(unanswerable) / share, len(answerable) / (1 - share))
    kept: set[str] = set()
    for part, wanted in ((unanswerable, total * share), (answerable, total * (1 - share))):
        kept.update(example.id for example in spread(part, max(1, round(wanted)), salt="share"))
    return [example for example in examples if example.id in kept]


for _name, _about in (
    ("squad1", "SQuAD JSON; every question has an answer in its context."),
    ("squad2", "SQuAD JSON; a question may have no answer in its context, and the model may say so."),
):
    _loader = partial(load_squad, _name)
    _loader.__doc__ = _about
    TASKS.register(_name)(_loader)
