"""SQuAD 1.1 and 2.0: extractive question answering; in 2.0 a question may have no answer.

Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250, and 2018, https://arxiv.org/abs/1806.03822.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Answer, Example
from bertvision.tasks.readers.squad_json import RawQuestion, answer_objects, question_fields, read_questions, text_field
from bertvision.tasks.splits import hash_sample, make_splits
from bertvision.tasks.task import TASKS, BadRow, BadRows, PathsLike, Task, as_paths, check_integer


def parse_question(raw: RawQuestion, no_answer: bool) -> Example:
    """Convert a question to an example, or raise :class:`BadRow`.

    The question is stripped; the context is not, because answers are offsets into it.
    """
    question = question_fields(raw)
    qid, text = text_field(question, "id"), text_field(question, "question")
    context = text_field(raw.paragraph, "context")
    answers = _parse_answers(question, context)
    if not answers and not no_answer:
        raise BadRow("unanswerable question", "squad1 expects an answer to every question; load the file as squad2")
    return Example(id=qid, text=text.strip(), pair=context, answers=answers, group=raw.group)


def _parse_answers(question: Mapping[str, object], context: str) -> tuple[Answer, ...]:
    """All distinct gold answers in order; none if ``is_impossible``."""
    impossible = question.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise BadRow("wrong type", f"is_impossible: got {shorten(impossible)}, expected true or false")
    if impossible:
        return ()
    members = answer_objects(question)
    if not members:
        raise BadRow("no answer", 'got no answers, expected one; if there is none, set "is_impossible": true')
    answers = []
    for member in members:
        text, start = text_field(member, "text"), member.get("answer_start")
        if isinstance(start, bool) or not isinstance(start, int):
            raise BadRow("wrong type", f"answer_start: got {shorten(start)}, expected an integer")
        actual = context[start : start + len(text)] if start >= 0 else ""
        if actual != text:
            mismatch = f"the context at {start} is {shorten(actual)}, expected {shorten(text)}"
            raise BadRow("answer is not at its offset", f"{mismatch}; correct answer_start (in characters, from 0)")
        answers.append(Answer(text, start))
    return tuple(dict.fromkeys(answers))


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
    """Load SQuAD JSON files, 1.1 and 2.0 in any mix.

    Args:
        name: ``"squad1"`` or ``"squad2"``.
        train: Training file or files.
        dev: Files to report on; without them a tenth of the training articles is held out.
        extra: More training files that are kept out of inner, where the no-answer threshold is fitted on
            the mix of questions to expect.
        limit: Sample this many training questions by hash of their ids, and at most as many for dev.
        skip_bad: Skip and count questions that cannot be used.
        max_length: Tokens per window.
        overlap: Tokens that neighbouring windows share.
        threshold: No-answer threshold to use instead of fitting one; 0 leaves a question unanswered if
            the null score beats every span.
        no_answer_share: Subsample train and dev so that this fraction of questions is unanswerable.
    """
    check_integer("max_length", max_length, 1)
    check_integer("overlap", overlap, 0)
    bad, seen = BadRows(skip_bad), dict[str, str]()
    no_answer = name == "squad2"
    if threshold is not None and not (no_answer and math.isfinite(threshold)):
        raise BadInput(f"threshold: got {threshold:g} for task {name!r}, expected a finite number and task 'squad2'")
    if no_answer_share is not None and not (no_answer and 0 < no_answer_share < 1):
        raise BadInput(
            f"no_answer_share: got {no_answer_share:g} for task {name!r}, expected a number between 0 and 1 and squad2"
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
    """The good questions of some files.

    ``seen`` maps the ids read so far to their locations and is updated; passing the same dict for training
    and dev files keeps a question from being in both.
    """
    examples: list[Example] = []
    for path in paths:
        for raw in read_questions(path, bad):
            with bad.row(raw.where):
                example = parse_question(raw, no_answer)
                if example.id in seen:
                    detail = f"also at {seen[example.id]}; ids must differ, also between training and dev files"
                    raise BadRow("duplicate id", detail)
                seen[example.id] = raw.where
                examples.append(example)
    if not examples:
        raise BadInput(f"{', '.join(map(str, paths))}: no usable question; {bad}")
    return examples


def subsample_unanswerable(examples: Sequence[Example], share: float | None, split: str) -> Sequence[Example]:
    """The largest sample, in file order, in which the fraction ``share`` of the questions has no answer."""
    if share is None:
        return examples
    unanswerable = [example for example in examples if not example.answers]
    answerable = [example for example in examples if example.answers]
    if not unanswerable or not answerable:
        raise BadInput(
            f"no_answer_share: got {share:g}, but all questions of {split} have {'an' if answerable else 'no'} answer"
        )
    total = min(len(unanswerable) / share, len(answerable) / (1 - share))
    sampled: set[str] = set()
    for group, size in ((unanswerable, total * share), (answerable, total * (1 - share))):
        sampled.update(example.id for example in hash_sample(group, max(1, round(size)), salt="share"))
    return [example for example in examples if example.id in sampled]


for _name, _about in (
    ("squad1", "SQuAD JSON; every question has an answer in its context."),
    ("squad2", "SQuAD JSON; a question may have no answer in its context, and the model may say so."),
):
    _loader = partial(load_squad, _name)
    _loader.__doc__ = _about
    TASKS.register(_name)(_loader)
