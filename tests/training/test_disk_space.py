"""Disk space: the computed size is that of the store, and stores that do not fit are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training import disk_space
from bertvision.training.disk_space import store_bytes
from bertvision.training.estimate import token_choices
from bertvision.training.extract import extract
from bertvision.training.shard_builder import ExtractionPlan

HEADER = 1500  # maximum bytes of a shard's header


@pytest.mark.parametrize("kind", ["span", "label", "set", "value"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "int8"])
def test_estimated_bytes_equal_those_of_the_store(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, dtype: str, tiny_encoder: Encoder
) -> None:
    task, tuned = request.getfixturevalue(f"{kind}_task"), request.getfixturevalue(f"{kind}_encoder")
    for encoder in (tuned, tiny_encoder):
        default_plan = ExtractionPlan(encoder, task, ExtractConfig())
        for tokens in token_choices(task.kind):
            config = ExtractConfig(dtype=dtype, tokens=tokens)
            store = extract(encoder, task, tmp_path / tokens / str(encoder is tuned), config)
            expected = store_bytes(ExtractionPlan(encoder, task, config))
            assert expected == store_bytes(default_plan, dtype, tokens)
            statistics = 3 * 2 * 4 * 3 * 16 if dtype == "int8" else 0
            actual = sum(split["bytes"] for split in store.manifest["splits"].values())
            assert expected + statistics <= actual <= expected + statistics + 3 * HEADER


@pytest.mark.parametrize("dtype", ["f16", "int8"])
def test_overhead_per_token_is_small_at_a_real_width(tiny_encoder: Encoder, span_task: Task, dtype: str) -> None:
    """At width 384 with 7 states the overhead is below 1 % (f16), and int8 takes at most 0.52 of f16."""
    per_token = {"f16": 7 * 384 * 2, "int8": 7 * (384 + 2)}[dtype]
    overhead = disk_space.TOKEN_BYTES + 8 + (disk_space.WINDOW_BYTES + 8 + 2 * 384) / 150
    assert per_token + overhead <= {"f16": 1.01, "int8": 0.52 * 1.0}[dtype] * 2 * 7 * 384


def test_extraction_that_does_not_fit_is_an_error(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"more than --max-gb 1e-06; use --dtype int8.*bertvision plan TASK"):
        extract(tiny_encoder, label_task, tmp_path / "store", max_gb=1e-6)
    monkeypatch.setattr(disk_space, "free_bytes", lambda _: 1000)
    with pytest.raises(BadInput, match=r"more at .*, but only 0.00 MB are free; use --dtype int8"):
        extract(tiny_encoder, label_task, tmp_path / "store")
    assert not list(tmp_path.iterdir())
