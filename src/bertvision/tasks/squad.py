"""SQuAD 1.1 and 2.0: questions about a context, answered by a stretch of it or, in 2.0, by nothing.

Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250, and 2018, https://arxiv.org/abs/1806.03822.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.options import PathsLike, as_paths, check_whole
from bertvision.tasks.splits import make_splits, spread
from bertvision.tasks.squad_json import check_question, walk
from bertvision.tasks.task import TASKS, BadRow, BadRows, Task


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
    check_whole("max_length", max_length, 1)
    check_whole("overlap", overlap, 0)
    bad, seen = BadRows(skip_bad), dict[str, str]()
    no_answer = name == "squad2"
    if threshold is not None and not (no_answer and math.isfinite(threshold)):
        raise BadInput(f"threshold {threshold:g} of task {name!r}: expected a number, and a task that may say nothing")
    if no_answer_share is not None and not (no_answer and 0 < no_answer_share < 1):
        raise BadInput(
            f"no_answer_share {no_answer_share:g} of task {name!r}: expected a number between 0 and 1, and squad2"
        )
    questions = with_share(read_squad(as_paths("train", train), bad, seen, no_answer), no_answer_share, "train")
    held_out = None
    if dev is not None:
        held_out = with_share(read_squad(as_paths("dev", dev), bad, seen, no_answer), no_answer_share, "dev")
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
                _check_new(example.id, found.where, seen)
                examples.append(example)
        if not questions:
            raise BadInput(f"{path}: no questions in it; expected data[].paragraphs[].qas[]")
    if not examples:
        raise BadInput(f"{', '.join(map(str, paths))}: no question can be used; {bad}")
    return examples


def with_share(examples: Sequence[Example], share: float | None, split: str) -> Sequence[Example]:
    """As many as can be kept for ``share`` of them to have no answer, spread over all files, in their order."""
    if share is None:
        return examples
    kinds = [[e for e in examples if bool(e.answers) == answered] for answered in (False, True)]
    parts = (share, 1 - share)
    if not all(kinds):
        raise BadInput(f"no_answer_share {share:g}: all questions of {split} have {'an' if kinds[1] else 'no'} answer")
    total = min(len(kind) / part for kind, part in zip(kinds, parts, strict=True))
    kept = {
        example.id
        for kind, part in zip(kinds, parts, strict=True)
        for example in spread(kind, max(1, round(total * part)), salt="share")
    }
    return [example for example in examples if example.id in kept]


def _check_new(name: str, where: str, seen: dict[str, str]) -> None:
    """The same id in training and dev files would be an answer learnt by heart."""
    if name in seen:
        raise BadRow("duplicate id", f"also at {seen[name]}; ids must differ, also between training and dev files")
    seen[name] = where


for _name, _about in (
    ("squad1", "SQuAD JSON; every question has an answer in its context."),
    ("squad2", "SQuAD JSON; a question may have no answer in its context, and the model may say so."),
):
    _loader = partial(load_squad, _name)
    _loader.__doc__ = _about
    TASKS.register(_name)(_loader)
