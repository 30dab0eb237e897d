"""Parquet files as rows, with ``pyarrow``; rows are numbered from 0, as pandas and the Hub number them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.tasks.readers.encodings import open_file
from bertvision.tasks.readers.hub import class_names, with_names

SUFFIX = ".parquet"


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """All rows, a batch in memory at a time; labels that the Hub stores as numbers get their names back."""
    open_file(path).close()
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise missing_extra("pyarrow", "tables") from None
    number = -1
    try:
        with parquet.ParquetFile(path) as file:
            names = _label_names(path, file.schema_arrow)
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches())
            for number, row in enumerate(rows):
                yield number, with_names(row, names)
    except BadInput:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as Parquet: {shorten(str(error), 200)}; write it again") from None
    if number < 0:
        raise BadInput(f"{path}: a table without rows; expected at least one row")


def _label_names(path: Path, schema: Any) -> Mapping[str, Sequence[str]]:
    """What ``datasets`` writes beside the columns; a file without it has none."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise BadInput(f"{path}: two columns are named {shorten(name)}; rename one")
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return class_names({column: _feature(told) for column, told in features.items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _feature(told: Any) -> SimpleNamespace:
    """A feature as it is written down: ``{"names": [...]}``, or one of a list under ``feature``."""
    inside = told[0] if isinstance(told, list) else told.get("feature")
    names = told.get("names") if isinstance(told, dict) else None
    return SimpleNamespace(names=names, feature=None if inside is None else _feature(inside))
