"""Extraction on a Ray cluster gives the same store as one process; run with BERTVISION_SLOW=1, as Ray starts slowly."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import transformers

import bertvision
from bertvision.core.config import ExtractConfig
from bertvision.core.records import Example
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.store.store import MANIFEST
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.extract_ray import LOOPBACK, ray_extract

os.environ.setdefault(LOOPBACK, "0")  # before ray is imported
ray = pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")

pytestmark = [
    pytest.mark.skipif(not os.environ.get("BERTVISION_SLOW"), reason="takes minutes: set BERTVISION_SLOW=1"),
    pytest.mark.filterwarnings("default"),  # Ray's and pandas' own
]

LABELS = ("even", "odd")
SIZES = {"train": 600, "inner": 80, "dev": 80}
ACTOR_TIMEOUT = 150.0
"""Seconds that actors may take to start on a busy machine."""


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """Slow enough that there is time to kill a worker, and deep enough that shards of a megabyte fill quickly."""
    folder = tmp_path_factory.mktemp("encoder") / "slow"
    config = transformers.BertConfig(
        vocab_size=len(tiny_encoder.tokenizer),
        hidden_size=64,
        num_hidden_layers=8,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    tiny_encoder.tokenizer.save_pretrained(folder)
    return load_encoder(str(folder))


@pytest.fixture(scope="module")
def task() -> Task:
    def text(number: int, split: str) -> Example:
        return Example(f"{split}-{number}", f"{split} town {'old ' * (number % 7)}{number}", label=float(number % 2))

    splits = {split: tuple(text(i, split) for i in range(size)) for split, size in SIZES.items()}
    return Task("numbers", "classify", splits, "accuracy", labels=LABELS, max_length=32)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray's processes import this package, and Ray is shut down after each test."""
    monkeypatch.setenv("PYTHONPATH", str(Path(bertvision.__file__).parents[1]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    yield
    ray.shutdown()


def extract_config(**options: Any) -> ExtractConfig:
    return ExtractConfig(batch_tokens=32, shard_mb=1, **options)


def contents(folder: Path) -> dict[str, Any]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def test_ray_extract_makes_the_same_store_as_one_process(encoder: Encoder, task: Task, tmp_path: Path) -> None:
    config = extract_config(dtype="int8")
    local = extract(encoder, task, tmp_path / "alone", config)
    store = ray_extract(encoder, task, tmp_path / "store", config)
    assert contents(store.folder) == contents(local.folder)
    assert not ray.is_initialized()
    finished = ray_extract(encoder, task, tmp_path / "store", config, address="nowhere:1")
    assert finished.id == local.id, "a complete store needs no cluster"


def actors_under(process: int) -> list[int]:
    """Ray Data's actors among the children of a raylet."""
    actors = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == process and b"MapWorker" in path.with_name("cmdline").read_bytes():
                actors.append(int(path.parent.name))
    return actors


class LostMachine:
    """Removes a machine of a local cluster once it works, with its actors stopped so that they do not finish."""

    def __init__(self, cluster: Any, machine: Any, store: Path) -> None:
        self.cluster, self.machine, self.store = cluster, machine, store
        self.shards_made: int | None = None  # number of shards when the machine was removed
        self.thread = threading.Thread(target=self._lose)
        self.thread.start()

    def _lose(self) -> None:
        raylet, deadline = self.machine.all_processes["raylet"][0].process.pid, time.monotonic() + ACTOR_TIMEOUT
        while time.monotonic() < deadline:
            shards_made = len(list(self.store.glob("*/shard-*.json")))
            actors = actors_under(raylet) if shards_made >= 2 else []
            if actors:
                self.shards_made = shards_made
                for actor in actors:
                    os.kill(actor, signal.SIGSTOP)
                self.cluster.remove_node(self.machine, allow_graceful=False)
                for actor in actors:
                    with suppress(ProcessLookupError):
                        os.kill(actor, signal.SIGKILL)
                return
            time.sleep(0.01)


def test_lost_machine_costs_at_most_one_group_of_shards(
    encoder: Encoder, task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray.cluster_utils import Cluster

    config = extract_config(dtype="f32")
    local = extract(encoder, task, tmp_path / "alone", config)
    total = len(list(local.folder.glob("*/*.safetensors")))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        lost_machine = LostMachine(cluster, cluster.add_node(num_cpus=1), tmp_path / "store")
        # All actors start before any finishes.
        ray.data.DataContext.get_current().wait_for_min_actors_s = int(ACTOR_TIMEOUT)
        store = ray_extract(encoder, task, tmp_path / "store", config, address=cluster.address)
        lost_machine.thread.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert lost_machine.shards_made is not None, "no machine was removed in time"
    assert lost_machine.shards_made < total // 2
    retried = re.findall(rf"extract: retrying (\d+) of {total} shards", capsys.readouterr().err)
    assert len(retried) == 1
    assert 1 <= int(retried[0]) <= total // 8, "at most one group"
    assert contents(store.folder) == contents(local.folder)
