"""SQuAD 2.0 as a question of yes or no: can the question be answered from this context?

Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822, asked as in section 3.2 of the BERTVision
paper. Label 1 is "unanswerable", so that F1 is that of the unanswerable questions, and EM is accuracy.

A long context is cut into overlapping windows, and each window is labelled by what *it* holds, as
in the paper: one without the whole answer is "unanswerable", also if the question is not. A question
is scored by its own label, so its windows must be merged. ``any-answerable``, the rule that fits such
labels: one window with an answer is enough. ``any-unanswerable`` is the paper's: one window without
is enough, so that a long context makes a question unanswerable.
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

    The splits are those that squad2 makes of the same files with the same options.
    """
    check_integer("overlap", overlap, 1)  # 0 would be one window, and the rest of a long context lost
    if merge not in MERGES:
        raise BadInput(unknown_name("merge of windows", merge, MERGES))
    asked = load_squad(
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
    # Labels are put on last: examples are kept together by context as long as they have none.
    # The answers stay, because windows are labelled by them.
    splits = {
        split: tuple(replace(example, label=0.0 if example.answers else UNANSWERABLE) for example in examples)
        for split, examples in asked.splits.items()
    }
    return replace(
        asked, name="answerability", kind="classify", splits=splits, labels=LABELS, no_answer=False, merge=merge
    )
