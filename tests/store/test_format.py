"""The documented store format: the reader on its page, written without this package, reads every store."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training.extract import extract

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "store-format.md"


@pytest.fixture(scope="module")
def reader() -> Callable[[Path, str], Any]:
    """The function of the page; it may import json, pathlib, numpy and safetensors only."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code) == 1
    assert len(code[0].splitlines()) <= 30
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(code[0]))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported == {"json", "pathlib", "numpy", "safetensors"}
    names: dict[str, Any] = {}
    exec(code[0], names)
    return names["read"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("settings", [{"dtype": "f32"}, {}, {"dtype": "int8"}, {"tokens": "context", "dtype": "int8"}])
def test_documented_reader_reads_the_same_values_as_the_package(
    reader: Callable[[Path, str], Any],
    span_encoder: Encoder,
    span_task: Task,
    tmp_path: Path,
    settings: dict[str, Any],
) -> None:
    store = extract(span_encoder, span_task, tmp_path / "store", batch_tokens=96, **settings)
    for split in ("train", "dev"):
        documented = {
            window: (example, states, target) for window, example, states, target in reader(store.folder, split)
        }
        table = store[split].table()
        assert sorted(documented) == list(range(len(table)))
        for batch in store[split].batches(4):
            for row, window in enumerate(batch.windows.tolist()):
                example, states, target = documented[window]
                assert example == table.example[window]
                assert np.array_equal(target, table.targets[window])
                assert np.allclose(states, batch.hidden[row, : len(states)].numpy(), rtol=1e-6, atol=1e-6)
                assert len(states) == int(batch.mask[row].sum())


def test_format_page_names_every_key_and_tensor(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    store = extract(span_encoder, span_task, tmp_path / "store", dtype="int8", tokens="context")
    shard = next(store["dev"].shards())
    keys = {*store.manifest, *store.manifest["fingerprint"], *store.manifest["splits"]["dev"]}
    assert [name for name in sorted({*keys, *shard}) if f"`{name}`" not in page] == []
