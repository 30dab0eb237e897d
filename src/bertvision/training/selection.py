"""Choosing with little data: which rows validate, and their folds.

A tenth of a small table is too little to choose by. As long as the encoder has not seen the labels, every row of train
and inner can be predicted by a head that was fitted without it: out-of-fold predictions take the place of inner. All
heads share the folds, so their predictions can be compared and combined row by row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertvision.core.errors import BadInput
from bertvision.core.records import FOLDS, WindowTable
from bertvision.store.states import States, Subset
from bertvision.tasks.splits import assign_folds
from bertvision.tasks.task import Task

NUM_FOLDS = 5

MAX_FOLD_ROWS = 10_000
"""With more rows, inner alone is large enough to choose by: the standard error of an accuracy is about one point."""

INNER = "inner"


def choose_validation(task: Task, states: States, validation: str = "auto") -> str:
    """The split that choices are made on: ``"folds"`` (train and inner, out of fold) or ``"inner"``."""
    if validation == FOLDS and task.kind == "span":
        raise BadInput("fit.validation is folds, which is for labels and values; expected auto or inner for spans")
    if isinstance(states, Subset):  # part of train: its rows have no folds of their own
        return INNER
    if validation != "auto":
        return validation
    few = len(task["train"]) + len(task[INNER]) <= MAX_FOLD_ROWS
    return FOLDS if few and task.kind != "span" and not has_seen_labels(states) else INNER


def has_seen_labels(states: States) -> bool:
    """Whether the encoder was tuned before the states were computed.

    Its states of the training texts then tell their labels, and folds of them would validate nothing.
    """
    tuned = states.manifest["encoder"]["record"].get("tune", {})
    return states.manifest["own"] is not None or bool(tuned.get("steps")) or "before" in tuned


def window_folds(task: Task, table: WindowTable) -> NDArray[np.int64]:
    """The fold of each window of train and inner: (windows,)."""
    stratify = task.kind in ("classify", "multilabel")
    return np.asarray(assign_folds(task[FOLDS], stratify, NUM_FOLDS), np.int64)[table.example]
