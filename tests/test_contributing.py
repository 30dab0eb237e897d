"""The examples of CONTRIBUTING.md work as they are printed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertvision.core.config import DataConfig, Recipe
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, build_head
from bertvision.runs.prepare import load_recipe_task
from bertvision.tasks.task import TASKS

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
HEAD, TASK = (textwrap.dedent(block) for block in re.findall(r"```python\n(.*?) *```", TEXT, flags=re.DOTALL))


@pytest.fixture(autouse=True)
def _registries_as_before() -> Iterator[None]:
    list(HEADS), list(TASKS)  # discovery first, so that only the example is new
    before = [dict(registry._entries) for registry in (HEADS, TASKS)]
    yield
    for registry, items in zip((HEADS, TASKS), before, strict=True):
        registry._entries.clear()
        registry._entries.update(items)


def test_example_head_gives_outputs_of_the_right_shape() -> None:
    exec(compile(HEAD, "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    head = build_head("yours:size=32", Shape(3, 8, 16, 2, "span"))
    hidden, mask = torch.randn(2, 5, 3, 8), torch.ones(2, 5, dtype=torch.bool)
    assert head(hidden, mask).shape == (2, 5, 2)


def test_example_task_is_loaded_from_a_recipe(tmp_path: Path) -> None:
    exec(compile(TASK, "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    rows = [f"{'yes' if i % 2 else 'no'}\ttext number {i}" for i in range(60)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows), encoding="utf-8")
    task = load_recipe_task(Recipe("yours", data=DataConfig(train=(str(tmp_path / "rows.tsv"),))))
    assert (sum(map(len, task.splits.values())), task.labels) == (60, ("no", "yes"))
