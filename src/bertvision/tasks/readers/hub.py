"""Data sets of the Hub, or of its cache, by way of the ``datasets`` library."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bertvision.core.errors import BadInput, missing_extra, shorten


def load_hub(hub: str, config: str | None, split: str | None = None) -> Any:
    """One split of a data set, or all by name; the library's errors are of many kinds, so all are caught."""
    try:
        load: Callable[..., Any] = importlib.import_module("datasets").load_dataset
    except ImportError:
        raise missing_extra("datasets", "hub") from None
    which = {} if split is None else {"split": split}
    try:
        return load(hub, config, **which)
    except Exception as error:
        what = ", ".join([config or "it", *([] if split is None else [f"split {split}"])])
        reason = shorten(str(error), 200)
        raise BadInput(f"--hub {hub}: cannot load {what}: {type(error).__name__} {reason}") from error


def label_names_by_column(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """The names of the labels that a column, or the lists in a column, hold as numbers."""
    found: dict[str, Sequence[str]] = {}
    for column, feature in features.items():
        names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
        if names:
            found[column] = tuple(names)
    return found


def replace_label_ids(row: Mapping[str, object], names: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """A row with its labels by name; a number that is none of them (-1 marks a hidden label) is a blank."""
    named = {column: _named(row[column], names[column]) for column in names if column in row}
    return {**row, **named}


def _named(value: object, names: Sequence[str]) -> object:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_named(item, names) for item in value]
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value
