"""Splitting examples into train, inner and dev: by group, stratified by label, by hash instead of by seed."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from bertvision.core.errors import BadInput
from bertvision.core.records import SPLITS, Example
from bertvision.tasks.task import check_integer

HELD_OUT_SHARE = 0.10

MIN_ARTICLES = 5
"""Questions are grouped by article if there are at least this many articles, else by context."""


def split_off(
    examples: Sequence[Example], stratify: bool, salt: str = "inner"
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Split examples into (rest, held out), holding out the 10 % of the groups whose hashes are lowest.

    Groups are articles if there are at least five, else contexts. A row without a group is grouped by
    its text, so that duplicates stay together. With ``stratify``, groups are drawn per label or set of
    labels. A different ``salt`` gives a different draw.
    """
    keys = group_keys(examples)
    strata = [str(e.label if e.labels is None else e.labels) if stratify else "" for e in examples]
    chosen = _choose_groups(keys, strata, salt)
    train: list[Example] = []
    inner: list[Example] = []
    for example, key in zip(examples, keys, strict=True):
        (inner if key in chosen else train).append(example)
    return tuple(train), tuple(inner)


def group_keys(examples: Sequence[Example]) -> list[str]:
    """The group of each example; examples of a group are never divided between splits or folds."""
    groups = {example.group for example in examples}
    if any(groups) and len(groups) >= MIN_ARTICLES:
        return [example.group for example in examples]
    return [_group_key(example) for example in examples]


def assign_folds(examples: Sequence[Example], stratify: bool, count: int) -> list[int]:
    """The fold of each example: groups are dealt out in the order of their hashes, per label.

    There are at most as many folds as groups. A label is dealt on where the label before it ended, so that folds have
    equal sizes.
    """
    keys = group_keys(examples)
    strata: dict[str, str] = {}  # a group with examples of several labels belongs to the first by name
    for key, example in zip(keys, examples, strict=True):
        label = str(example.label if example.labels is None else example.labels) if stratify else ""
        strata[key] = min(label, strata.get(key, label))
    order = sorted(strata, key=lambda key: (strata[key], stable_hash(f"fold\x00{key}")))
    folds = {key: position % count for position, key in enumerate(order)}
    return [folds[key] for key in keys]


def _group_key(example: Example) -> str:
    """The context of a question, the text (and pair) of a row."""
    unlabelled = example.label is None and example.labels is None
    if example.answers or (unlabelled and example.pair is not None):
        return example.pair or ""
    return f"{example.text}\x00{example.pair or ''}"


def _choose_groups(keys: Sequence[str], strata: Sequence[str], salt: str) -> set[str]:
    """The groups to hold out: per stratum, in order of hash, while each brings the total nearer to a tenth.

    Rounding errors carry over from stratum to stratum, so that many rare labels still add up to a tenth.
    The last group of each stratum is never held out, so that train has every label. If every group is
    too large, the smallest one whose stratum has others is held out: too large an inner split beats none.
    """
    stratum_of: dict[str, str] = {}  # a group with rows of several strata belongs to the first by name
    for key, stratum in zip(keys, strata, strict=True):
        stratum_of[key] = min(stratum, stratum_of.get(key, stratum))
    sizes: dict[str, Counter[str]] = defaultdict(Counter)  # rows per group in each stratum
    for key in keys:
        sizes[stratum_of[key]][key] += 1
    chosen: set[str] = set()
    candidates: Counter[str] = Counter()  # groups that are not alone in their stratum
    target, held_out = 0.0, 0
    for _, groups in sorted(sizes.items()):
        target += HELD_OUT_SHARE * groups.total()
        candidates += groups if len(groups) > 1 else Counter()
        for key in sorted(groups, key=lambda key: stable_hash(f"{salt}\x00{key}"))[:-1]:
            if held_out + groups[key] / 2 <= target:
                chosen.add(key)
                held_out += groups[key]
    if not chosen and len(set(keys)) > 1:
        candidates = candidates or Counter(keys)
        chosen = {min(candidates, key=lambda key: (candidates[key], stable_hash(f"{salt}\x00{key}")))}
    return chosen


def stable_hash(text: str) -> str:
    """SHA-256 of a text, the same on every machine and in every run; accepts lone surrogates."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make_splits(
    train: Sequence[Example], dev: Sequence[Example] | None, *, stratify: bool, limit: int | None = None, seed: int = 0
) -> dict[str, tuple[Example, ...]]:
    """Make the splits train, inner and dev.

    Without dev examples, a tenth of the groups is first held out as dev, a different tenth for each
    ``seed``. ``limit`` then caps the number of dev examples, and that of train and inner together.
    """
    if limit is not None:
        check_integer("limit", limit, 1)
    check_integer("split_seed", seed, 0)
    rows = len(train)
    if dev is None:
        train, dev = split_off(train, stratify, salt=f"dev{seed}" if seed else "dev")
    elif seed:
        raise BadInput("split_seed chooses the rows of train that are held out as dev; give either split_seed or dev")
    fit, inner = split_off(hash_sample(train, limit), stratify)
    splits = {"train": fit, "inner": inner, "dev": hash_sample(dev, limit)}
    for split in SPLITS:
        if not splits[split]:
            raise BadInput(
                f"{rows} training examples (limit: {limit or 'none'}) leave no examples for {split}: "
                "expected at least two different texts or contexts, three without a dev file; give more data"
            )
    return splits


def hash_sample(examples: Sequence[Example], limit: int | None, salt: str = "") -> tuple[Example, ...]:
    """The ``limit`` examples whose ids have the lowest hashes, in file order: a sample of the whole file.

    To sample from a sample, give another ``salt``: the hashes of a sample are all low already.
    """
    if limit is None or limit >= len(examples):
        return tuple(examples)
    lowest = sorted(range(len(examples)), key=lambda i: stable_hash(salt + examples[i].id))[:limit]
    return tuple(examples[i] for i in sorted(lowest))
