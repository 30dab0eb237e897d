"""The three splits of a task, out of the examples that were read for it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from bertvision.core.errors import BadInput
from bertvision.core.records import SPLITS, Example
from bertvision.tasks.task import check_integer

INNER_SHARE = 0.10

ENOUGH_GROUPS = 5


def split_off(
    examples: Sequence[Example], stratify: bool, salt: str = "inner"
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Split training examples into (train, inner): 10 % of the groups, by hash, whatever the seed.

    Groups are articles if there are at least five, else contexts; rows without a group are their
    own text, so that equal texts stay together, and are drawn per label, or set of labels. Another
    ``salt`` is another draw: dev, where the user has none, is cut off in the same way.
    """
    keys = [_group_key(example) for example in examples]
    if any(example.group for example in examples) and len({e.group for e in examples}) >= ENOUGH_GROUPS:
        keys = [example.group for example in examples]
    strata = [str(e.label if e.labels is None else e.labels) if stratify else "" for e in examples]
    chosen = _choose_groups(keys, strata, salt)
    train: list[Example] = []
    inner: list[Example] = []
    for example, key in zip(examples, keys, strict=True):
        (inner if key in chosen else train).append(example)
    return tuple(train), tuple(inner)


def _group_key(example: Example) -> str:
    """Contexts group questions; texts group rows, so that a duplicate never straddles the cut."""
    unlabelled = example.label is None and example.labels is None
    if example.answers or (unlabelled and example.pair is not None):
        return example.pair or ""
    return f"{example.text}\x00{example.pair or ''}"


def _choose_groups(keys: Sequence[str], strata: Sequence[str], salt: str) -> set[str]:
    """Per stratum the groups that hash lowest, as long as each brings the total nearer to a tenth.

    The rounding is carried from stratum to stratum, so that many rare labels still make a tenth
    together. The last group of each stratum stays, so that training knows every label. If no group
    is small enough, the smallest that is not alone is taken: an inner split too large beats none.
    """
    owner: dict[str, str] = {}  # a group with rows of several strata belongs to the first by name
    for key, stratum in zip(keys, strata, strict=True):
        owner[key] = min(stratum, owner.get(key, stratum))
    sizes: dict[str, Counter[str]] = defaultdict(Counter)  # rows per group in each stratum
    for key in keys:
        sizes[owner[key]][key] += 1
    chosen: set[str] = set()
    spare: Counter[str] = Counter()
    wanted, taken = 0.0, 0
    for _, groups in sorted(sizes.items()):
        wanted += INNER_SHARE * groups.total()
        spare += groups if len(groups) > 1 else Counter()
        for key in sorted(groups, key=lambda key: stable_hash(f"{salt}\x00{key}"))[:-1]:
            if taken + groups[key] / 2 <= wanted:
                chosen.add(key)
                taken += groups[key]
    if not chosen and len(set(keys)) > 1:
        spare = spare or Counter(keys)
        chosen = {min(spare, key=lambda key: (spare[key], stable_hash(f"{salt}\x00{key}")))}
    return chosen


def stable_hash(text: str) -> str:
    """The same on every machine and in every run; half a surrogate pair is text too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make_splits(
    train: Sequence[Example], dev: Sequence[Example] | None, *, stratify: bool, limit: int | None = None, seed: int = 0
) -> dict[str, tuple[Example, ...]]:
    """Train, inner and dev out of what was read.

    Without dev examples, a tenth of the groups is cut off for dev before anything else, another tenth
    for every ``seed``. ``limit`` then leaves at most that many examples for dev, and as many for train
    and inner together.
    """
    if limit is not None:
        check_integer("limit", limit, 1)
    check_integer("split_seed", seed, 0)
    rows = len(train)
    if dev is None:
        train, dev = split_off(train, stratify, salt=f"dev{seed}" if seed else "dev")
    elif seed:
        raise BadInput("--split-seed says which rows are cut off train for dev; there is a dev already: leave one out")
    fit, inner = split_off(spread(train, limit), stratify)
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
