"""SQuAD 2.0 as binary classification: can the question be answered from this context?

Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822, asked as in section 3.2 of the BERTVision
paper. Label 1 is "unanswerable", so that F1 is that of the unanswerable questions, and EM is accuracy.

A long context is split into overlapping windows, and each window is labelled by what *it* contains, as
in the paper: a window without the whole answer is "unanswerable" even if the question is answerable. A
question is scored by its own label, so the predictions of its windows are merged. ``any-answerable``, which
fits these labels, predicts "answerable" if any window does. ``any-unanswerable`` is the paper's rule: it
predicts "unanswerable" if any window does, so that long contexts make most questions unanswerable.
"""

from __future__ import annotations

from dataclasses import replace

from bertvision.core.errors import BadInput
from bertvision.core.registry import unknown_name
from bertvision.tasks.squad import load_squad
from bertvision.tasks.task import TASKS, PathsLike, Task, check_integer
from bertvision.tasks.windows import UNANSWERABLE

LABELS = ("answerable", "unanswerable")
MERGES = ["any-answerable", "any-unanswerable"]


@TASKS.register("answerability")
def load_answerability(
    train: PathsLike,
    dev: PathsLike | None = None,
    *,
    extra: PathsLike | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    max_length: int = 384,
    overlap: int = 128,
    merge: str = MERGES[0],
    no_answer_share: float | None = None,
) -> Task:
    """SQuAD JSON; can the question be answered from its context or not: two labels.

    The splits are the same as squad2's with the same files and options.
    """
    check_integer("overlap", overlap, 1)  # 0 would give one window and drop the rest of a long context
    if merge not in MERGES:
        raise BadInput(unknown_name("merge", merge, MERGES))
    task = load_squad(
        "squad2",
        train,
        dev,
        extra=extra,
        limit=limit,
        skip_bad=skip_bad,
        max_length=max_length,
        overlap=overlap,
        no_answer_share=no_answer_share,
    )
    # Labels are added after splitting, which groups unlabelled examples by context. The answers stay,
    # because windows are labelled by them.
    splits = {}
    for split, examples in task.splits.items():
        splits[split] = tuple(replace(e, label=0.0 if e.answers else UNANSWERABLE) for e in examples)
    return replace(
        task, name="answerability", kind="classify", splits=splits, labels=LABELS, no_answer=False, merge=merge
    )
