"""GLUE from the Hub, with a fake ``datasets`` library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bertvision.core.errors import BadInput
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.task import load_task

ROWS = {"train": 20, "validation": 6, "validation_matched": 7, "validation_mismatched": 8}


class HubRows(list[dict[str, Any]]):
    """Rows with ``features``, as ``datasets`` gives them."""

    def __init__(self, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
        super().__init__(rows)
        self.features = {"label": SimpleNamespace(names=names) if names else SimpleNamespace(dtype="float32")}


Install = Callable[[Callable[..., Any]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    return lambda load: monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))


def hub_rows(config: str, split: str, names: tuple[str, ...]) -> HubRows:
    columns = GLUE[config].columns[1 if config == "mnli" else -1]
    return HubRows(
        [
            {columns.text: f"{split} {i}", columns.pair or "x": f"pair {i}", "label": i % (len(names) or 5), "idx": i}
            for i in range(ROWS[split])
        ],
        names,
    )


@pytest.mark.parametrize("name", [name for name in GLUE if name != "ax"])
def test_hub_task_requests_its_configuration_and_splits(name: str, install: Install) -> None:
    requested = []

    def load(hub: str, config: str, split: str) -> HubRows:
        requested.append((hub, config, split))
        return hub_rows(config, split, GLUE[name].labels)

    install(load)
    task = load_task(name, hub="nyu-mll/glue")
    config = "mnli" if name == "mnli-mm" else name
    dev = {"mnli": "validation_matched", "mnli-mm": "validation_mismatched"}.get(name, "validation")
    assert requested == [("nyu-mll/glue", config, "train"), ("nyu-mll/glue", config, dev)]
    assert [e.id for e in task["dev"]] == [f"{dev}:{i}" for i in range(ROWS[dev])]
    assert [e.label for e in task["dev"]] == [i % (len(GLUE[name].labels) or 5) for i in range(ROWS[dev])]
    assert len(task["train"]) + len(task["inner"]) == 20


def test_hub_labels_in_another_order_are_matched_by_name(install: Install) -> None:
    swapped = ("not_entailment", "entailment")
    install(lambda hub, config, split: hub_rows(config, split, swapped))
    assert [e.label for e in load_task("rte", hub="some/copy")["dev"]] == [1.0, 0.0] * 3


def test_hub_rows_without_a_label_are_bad_rows(install: Install) -> None:
    def load(hub: str, config: str, split: str) -> HubRows:
        rows = hub_rows(config, split, GLUE["rte"].labels)
        rows[2]["label"] = -1
        return rows

    install(load)
    with pytest.raises(BadInput, match="nyu-mll/glue, rte, train, row 2: unknown label: got '-1'"):
        load_task("rte", hub="nyu-mll/glue")
    assert load_task("rte", hub="nyu-mll/glue", skip_bad=True).skipped == {"unknown label": 2}


def test_unreachable_hub_is_a_one_line_error(install: Install) -> None:
    def load(hub: str, config: str, split: str) -> HubRows:
        raise ConnectionError("no route\nto the Hub")

    install(load)
    with pytest.raises(BadInput, match="hub: cannot load rte, split train of nyu-mll/glue: ConnectionError"):
        load_task("rte", hub="nyu-mll/glue")


def test_hub_diagnostic_set_without_labels_is_an_error(install: Install) -> None:
    install(lambda hub, config, split: hub_rows(config, split, GLUE["mnli"].labels))
    with pytest.raises(BadInput, match=r"no labels for task ax; give a data folder with diagnostic-full\.tsv"):
        load_task("ax", hub="nyu-mll/glue")


def test_missing_datasets_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match=r"datasets is not installed.*'\.\[hub\]'"):
        load_task("rte", hub="nyu-mll/glue")
