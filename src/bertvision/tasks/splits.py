"""The three splits of a task, out of the examples that were read for it."""

from __future__ import annotations

from collections.abc import Sequence

from bertvision.core.errors import BadInput
from bertvision.core.records import SPLITS, Example
from bertvision.tasks.options import check_whole
from bertvision.tasks.task import cut_inner, stable_hash


def make_splits(
    train: Sequence[Example], dev: Sequence[Example] | None, *, stratify: bool, limit: int | None = None, seed: int = 0
) -> dict[str, tuple[Example, ...]]:
    """Train, inner and dev out of what was read.

    Without dev examples, a tenth of the groups is cut off for dev before anything else, another tenth
    for every ``seed``. ``limit`` then leaves at most that many examples for dev, and as many for train
    and inner together.
    """
    if limit is not None:
        check_whole("limit", limit, 1)
    check_whole("split_seed", seed, 0)
    rows = len(train)
    if dev is None:
        train, dev = cut_inner(train, stratify, salt=f"dev{seed}" if seed else "dev")
    elif seed:
        raise BadInput("--split-seed says which rows are cut off train for dev; there is a dev already: leave one out")
    fit, inner = cut_inner(spread(train, limit), stratify)
    splits = {"train": fit, "inner": inner, "dev": spread(dev, limit)}
    for split in SPLITS:
        if not splits[split]:
            raise BadInput(
                f"{rows} training examples (limit: {limit or 'none'}) leave nothing for {split}: "
                "they need at least two different texts or contexts, three without a dev file; give more data"
            )
    return splits


def spread(examples: Sequence[Example], limit: int | None, salt: str = "") -> tuple[Example, ...]:
    """The ``limit`` examples whose ids hash lowest, in file order: a sample of all articles, not the first few.

    Samples of samples need a ``salt``: by the same hash the second would prefer what the first cut down.
    """
    if limit is None or limit >= len(examples):
        return tuple(examples)
    lowest = sorted(range(len(examples)), key=lambda i: stable_hash(salt + examples[i].id))[:limit]
    return tuple(examples[i] for i in sorted(lowest))
