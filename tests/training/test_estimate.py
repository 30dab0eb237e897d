"""Estimates before extraction, and the recommendation of how to store states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertvision.core.config import ExtractConfig, Recipe
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training import estimate
from bertvision.training.estimate import live_tokens, plan, plan_text, recommend_storage
from bertvision.training.extract import extract
from bertvision.training.shard_builder import ExtractionPlan


def test_extraction_logs_its_estimate(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extract(tiny_encoder, label_task, tmp_path / "few", dtype="int8")
    log = capsys.readouterr().err
    assert log.startswith("extract: 0.0")
    assert "MB of int8, tokens all; " in log
    assert "min at" not in log  # too few batches to measure on
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "MIN_BATCHES", 1)
        extract(tiny_encoder, label_task, tmp_path / "many", batch_tokens=16)
    log = capsys.readouterr().err
    assert "min at" in log
    assert "tokens/s" in log
    assert "GB memory" in log


def test_plan_lists_every_storage_option(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    recipe = Recipe(task="text")
    document = plan(recipe, tiny_encoder, label_task, ["probe", "probe:read=mean"], tmp_path)
    rows = {(option["dtype"], option["tokens"]): option for option in document["rows"]}
    assert set(rows) == {
        (dtype, tokens) for dtype in ("f32", "f16", "int8") for tokens in ("all", "cls", "mean", "cls+mean+max")
    }
    assert rows["f16", "all"]["serves"]
    assert not rows["f16", "cls"]["serves"]
    assert rows["f16", "cls"]["bytes"] < rows["int8", "all"]["bytes"] < rows["f16", "all"]["bytes"]
    assert document["choice"]["how"] == "cached"
    assert (document["choice"]["dtype"], document["choice"]["tokens"]) == ("f16", "all")
    assert document["live"]["minutes"] > rows["f16", "all"]["minutes"] > 0
    assert rows["f16", "all"]["memory"] > 1e7
    assert "recommended: --dtype f16 --tokens all: it fits" in plan_text(document)
    assert document["tokens"] == sum(
        map(len, (w for ws in ExtractionPlan(tiny_encoder, label_task, ExtractConfig()).windows.values() for w in ws))
    )


def option(dtype: str, tokens: str, size: float, fits: bool, serves: bool = True) -> dict[str, Any]:
    return {"dtype": dtype, "tokens": tokens, "bytes": size, "minutes": 1.0, "fits": fits, "serves": serves}


def test_recommend_storage() -> None:
    live = {"minutes": 5.0, "memory": 1}
    options = [option("f16", "all", 9e9, False), option("f16", "cls", 1e8, True), option("int8", "all", 5e9, True)]
    choice = recommend_storage(options, live, 6e9)
    assert (choice["dtype"], choice["tokens"]) == ("f16", "cls")
    assert "9.00 GB) exceeds 6.00 GB" in choice["why"]
    options[1]["serves"] = False
    choice = recommend_storage(options, live, 6e9)
    assert (choice["dtype"], choice["tokens"]) == ("int8", "all")
    options[2]["fits"] = False
    assert recommend_storage(options, live, 6e9)["how"] == "live"


def test_live_tokens_count_train_and_inner_every_epoch() -> None:
    assert live_tokens({"train": 100, "inner": 10, "dev": 7}, epochs=5) == 557
