"""Datasets of the Hub, or its local cache, loaded with the ``datasets`` library."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bertvision.core.errors import BadInput, missing_extra, shorten


def load_hub(hub: str, config: str | None, split: str | None = None) -> Any:
    """One split of a dataset, or all splits by name."""
    try:
        load: Callable[..., Any] = importlib.import_module("datasets").load_dataset
    except ImportError:
        raise missing_extra("datasets", "hub") from None
    try:
        return load(hub, config) if split is None else load(hub, config, split=split)
    except Exception as error:  # the library raises errors of many kinds
        what = ", ".join([config or "it", *([] if split is None else [f"split {split}"])])
        reason = shorten(str(error), 200)
        raise BadInput(f"hub: cannot load {what} of {hub}: {type(error).__name__} {reason}") from error


def label_names_by_column(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Label names of the columns that contain label ids or lists of them."""
    by_column: dict[str, Sequence[str]] = {}
    for column, feature in features.items():
        names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
        if names:
            by_column[column] = tuple(names)
    return by_column


def replace_label_ids(row: Mapping[str, object], names: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """A row with label names instead of ids; None for an id without a name (-1 marks a hidden label)."""
    named = {column: _ids_to_names(row[column], names[column]) for column in names if column in row}
    return {**row, **named}


def _ids_to_names(value: object, names: Sequence[str]) -> object:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_ids_to_names(member, names) for member in value]
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value
