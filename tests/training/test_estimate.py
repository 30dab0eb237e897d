"""What is said beforehand is what comes, and what cannot fit is not begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertvision.core.config import ExtractConfig, Recipe
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training import estimate as forecast
from bertvision.training.estimate import live_tokens, plan, plan_text, recommend_storage, store_bytes, token_choices
from bertvision.training.extract import extract
from bertvision.training.shard_builder import ExtractionPlan

HEADER = 1500  # bytes of a shard's, at most


@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "int8"])
def test_bytes_are_those_of_the_store(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, dtype: str, tiny_encoder: Encoder
) -> None:
    task, tuned = request.getfixturevalue(f"{kind}_task"), request.getfixturevalue(f"{kind}_encoder")
    for encoder in (tuned, tiny_encoder):
        usual = ExtractionPlan(encoder, task, ExtractConfig())
        for tokens in token_choices(task.kind):
            config = ExtractConfig(dtype=dtype, tokens=tokens)
            store = extract(encoder, task, tmp_path / tokens / str(encoder is tuned), config)
            expected = store_bytes(ExtractionPlan(encoder, task, config))
            assert expected == store_bytes(usual, dtype, tokens)
            statistics = 3 * 2 * 4 * 3 * 16 if dtype == "int8" else 0
            found = sum(split["bytes"] for split in store.manifest["splits"].values())
            assert expected + statistics <= found <= expected + statistics + 3 * HEADER


@pytest.mark.parametrize("dtype", ["f16", "int8"])
def test_bytes_a_token_of_a_real_width(tiny_encoder: Encoder, span_task: Task, dtype: str) -> None:
    """Of width 384 and 7 states everything else is within 1 % (f16), and int8 is at most 0.52 of f16."""
    per_token = {"f16": 7 * 384 * 2, "int8": 7 * (384 + 2)}[dtype]
    beside = forecast.TOKEN_BYTES + 8 + (forecast.WINDOW_BYTES + 8 + 2 * 384) / 150
    assert per_token + beside <= {"f16": 1.01, "int8": 0.52 * 1.0}[dtype] * 2 * 7 * 384


def test_too_large_a_store_is_not_begun(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"more than --max-gb 1e-06; use --dtype int8.*bertvision plan TASK"):
        extract(tiny_encoder, label_task, tmp_path / "store", max_gb=1e-6)
    monkeypatch.setattr(forecast, "free_bytes", lambda _: 1000)
    with pytest.raises(BadInput, match=r"more at .*, but only 0.00 MB are free; use --dtype int8"):
        extract(tiny_encoder, label_task, tmp_path / "store")
    assert not list(tmp_path.iterdir())


def test_what_it_costs_is_said_first(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extract(tiny_encoder, label_task, tmp_path / "few", dtype="int8")
    said = capsys.readouterr().err
    assert said.startswith("extract: 0.0")
    assert "MB of int8, tokens all; " in said
    assert "min at" not in said  # too few batches to measure on
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "MIN_BATCHES", 1)
        extract(tiny_encoder, label_task, tmp_path / "many", batch_tokens=16)
    said = capsys.readouterr().err
    assert "min at" in said
    assert "tokens/s" in said
    assert "GB memory" in said


def test_a_plan_shows_every_choice(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    recipe = Recipe(task="text")
    document = plan(recipe, tiny_encoder, label_task, ["probe", "probe:read=mean"], tmp_path)
    rows = {(row["dtype"], row["tokens"]): row for row in document["rows"]}
    assert set(rows) == {(dtype, tokens) for dtype in ("f32", "f16", "int8") for tokens in ("all", "cls", "mean")}
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


def row(dtype: str, tokens: str, size: float, fits: bool, serves: bool = True) -> dict[str, Any]:
    return {"dtype": dtype, "tokens": tokens, "bytes": size, "minutes": 1.0, "fits": fits, "serves": serves}


def test_what_is_taken() -> None:
    live = {"minutes": 5.0, "memory": 1}
    small = [row("f16", "all", 9e9, False), row("f16", "cls", 1e8, True), row("int8", "all", 5e9, True)]
    taken = recommend_storage(small, live, 6e9)
    assert (taken["dtype"], taken["tokens"]) == ("f16", "cls")
    assert "9.00 GB) exceeds 6.00 GB" in taken["why"]
    small[1]["serves"] = False
    taken = recommend_storage(small, live, 6e9)
    assert (taken["dtype"], taken["tokens"]) == ("int8", "all")
    small[2]["fits"] = False
    assert recommend_storage(small, live, 6e9)["how"] == "live"


def test_live_reads_train_and_inner_every_epoch() -> None:
    assert live_tokens({"train": 100, "inner": 10, "dev": 7}, epochs=5) == 557
