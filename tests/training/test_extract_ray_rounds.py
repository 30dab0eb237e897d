"""Ray extraction, as far as it can be tested without Ray: retries, packed encoders and user errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bertvision
from bertvision.cli.main import main
from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store.writer import StoreWriter
from bertvision.tasks.task import Task
from bertvision.training.extract_ray import Driver, _connected, _read_record, pack_encoder, unpack_encoder
from bertvision.training.fingerprints import store_fingerprint


class RayError(Exception):
    """Stands for ``ray.exceptions.RayError``."""


class ScriptedDriver(Driver):
    """A driver whose rounds have scripted outcomes."""

    def __init__(self, shards: int, rounds: list[Any]) -> None:
        self.ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=RayError))
        self.plan: Any = SimpleNamespace(jobs=[SimpleNamespace(windows=10)] * shards)
        self.reason, self.rounds, self.rounds_requested = "a machine was lost", iter(rounds), list[list[int]]()

    def _round(self, numbers: list[int]) -> Iterator[int]:
        self.rounds_requested.append(numbers)
        for outcome in next(self.rounds):
            if isinstance(outcome, Exception):
                raise outcome
            if self._check(*(("", False) if isinstance(outcome, int) else outcome)):
                yield outcome


def test_lost_shards_are_retried(capsys: pytest.CaptureFixture[str]) -> None:
    driver, windows = ScriptedDriver(4, [[0, 2], [1, RayError()], [3]]), list[int]()
    driver.run(windows.append)
    assert driver.rounds_requested == [[0, 1, 2, 3], [1, 3], [3]]
    assert sum(windows) == 40
    log = capsys.readouterr().err
    assert "retrying 2 of 4 shards ('a machine was lost')" in log
    assert "retrying 1 of 4 shards ('RayError')" in log


def test_rounds_without_progress_end_with_an_error() -> None:
    driver = ScriptedDriver(2, [[("OSError: far away", False)], [0], [], [RayError()], [("OSError: no", False)], [1]])
    with pytest.raises(RuntimeError, match="1 shards were not made in 3 rounds: OSError: no"):
        driver.run(lambda _: None)
    assert len(driver.rounds_requested) == 5


def test_fatal_error_ends_extraction_at_once() -> None:
    driver = ScriptedDriver(2, [[0, ("cannot write shard", True)], [1]])
    with pytest.raises(BadInput, match="cannot write shard"):
        driver.run(lambda _: None)


def test_packed_encoder_works_in_another_process(span_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    """The other process must compute states: forward hooks are lost by pickling."""
    packed = pack_encoder(span_encoder)
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
    code = f"""
import json, sys
from pathlib import Path
from bertvision.core.config import ExtractConfig
from bertvision.training.extract_ray import unpack_encoder
from bertvision.training.fingerprints import store_fingerprint
from bertvision.training.shard_builder import ExtractionPlan, make_shards
from bertvision.tasks.task import read_task
files = [path for path in Path({str(tmp_path)!r}).iterdir() if path.is_file()]
encoder = unpack_encoder({{path.name: path.read_bytes() for path in files}})
task = read_task(Path({str(tmp_path / "task")!r}))
make_shards(ExtractionPlan(encoder, task, ExtractConfig()), [0], {str(tmp_path / "store")!r})
print(json.dumps(store_fingerprint(encoder, task, ExtractConfig())))
"""
    from bertvision.tasks.task import save_task

    save_task(span_task, tmp_path / "task")
    environment = {"PYTHONPATH": str(Path(bertvision.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == store_fingerprint(span_encoder, span_task, ExtractConfig())
    assert unpack_encoder(packed).name == span_encoder.name


def test_folder_that_is_not_shared_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"is not complete at .* on this machine; give --to a folder that all machines share"
    ):
        _read_record(StoreWriter(tmp_path), "train/shard-00000.safetensors")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_address_without_ray_is_an_error(address: str) -> None:
    ray = SimpleNamespace(is_initialized=lambda: False)
    line = rf"^no Ray at {address}: .*; start one with: ray start --head"
    with pytest.raises(BadInput, match=line), _connected(ray, address):
        pytest.fail("a connection was made")


def extract_arguments(*options: str) -> list[str]:
    return ["extract", "demo", "--to", "nowhere", *options]


def test_ray_options_need_the_ray_engine(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--address", "auto"], ["--actors", "2"]):
        assert main(extract_arguments(*options)) == 2
        assert "need --engine ray; add it" in capsys.readouterr().err
    assert main(extract_arguments("--engine", "ray", "--shard", "1/2")) == 2
    assert main(extract_arguments("--engine", "ray", "--actors", "0")) == 2


def test_missing_ray_names_the_extra(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertvision.training.extract_ray import ray_extract

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"ray is not installed; this needs it: pip install -e '\.\[ray\]'"):
        ray_extract(span_encoder, span_task, tmp_path / "store")
    assert not (tmp_path / "store").exists()
