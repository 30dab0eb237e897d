"""A store that a Ray cluster made is that of one process; set BERTVISION_SLOW=1 (starting Ray takes its time)."""

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
START = 150.0
"""Seconds that actors may take to begin, on a busy machine."""


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """Deep and slow enough that there is time to kill somebody, and that a shard of a megabyte is soon full."""
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
    """Ray's processes find this very package; what a test started of Ray ends with it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(bertvision.__file__).parents[1]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    yield
    ray.shutdown()


def settings(**more: Any) -> ExtractConfig:
    return ExtractConfig(batch_tokens=32, shard_mb=1, **more)


def contents(folder: Path) -> dict[str, Any]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files[MANIFEST])
    manifest.pop("seconds")
    return {**files, MANIFEST: manifest}


def test_a_ray_of_its_own_makes_the_store_of_one_process(encoder: Encoder, task: Task, tmp_path: Path) -> None:
    config = settings(dtype="int8")
    alone = extract(encoder, task, tmp_path / "alone", config)
    store = ray_extract(encoder, task, tmp_path / "store", config)
    assert contents(store.folder) == contents(alone.folder)
    assert not ray.is_initialized()
    assert ray_extract(encoder, task, tmp_path / "store", config, address="nowhere:1").id == alone.id  # nothing to do


def actors_under(process: int) -> list[int]:
    """Ray Data's actors among the children of a raylet."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == process and b"MapWorker" in path.with_name("cmdline").read_bytes():
                found.append(int(path.parent.name))
    return found


class Loss:
    """A machine of a cluster on loopback, lost once it works: its actors fall silent, and nobody looks after them."""

    def __init__(self, cluster: Any, machine: Any, store: Path) -> None:
        self.cluster, self.machine, self.store = cluster, machine, store
        self.made: int | None = None  # shards there were then
        self.thread = threading.Thread(target=self._lose)
        self.thread.start()

    def _lose(self) -> None:
        raylet, deadline = self.machine.all_processes["raylet"][0].process.pid, time.monotonic() + START
        while time.monotonic() < deadline:
            made = len(list(self.store.glob("*/shard-*.json")))
            actors = actors_under(raylet) if made >= 2 else []
            if actors:
                self.made = made
                for actor in actors:
                    os.kill(actor, signal.SIGSTOP)
                self.cluster.remove_node(self.machine, allow_graceful=False)
                for actor in actors:
                    with suppress(ProcessLookupError):
                        os.kill(actor, signal.SIGKILL)
                return
            time.sleep(0.01)


def test_a_machine_lost_costs_what_it_had_in_hand(
    encoder: Encoder, task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray.cluster_utils import Cluster

    config = settings(dtype="f32")
    alone = extract(encoder, task, tmp_path / "alone", config)
    total = len(list(alone.folder.glob("*/*.safetensors")))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        loss = Loss(cluster, cluster.add_node(num_cpus=1), tmp_path / "store")
        ray.data.DataContext.get_current().wait_for_min_actors_s = int(START)  # nobody is done before all begin
        store = ray_extract(encoder, task, tmp_path / "store", config, address=cluster.address)
        loss.thread.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert loss.made is not None, "nobody was lost in time"
    assert loss.made < total // 2
    again = re.findall(rf"extract: retrying (\d+) of {total} shards", capsys.readouterr().err)
    assert len(again) == 1
    assert 1 <= int(again[0]) <= total // 8, "one group, and no more"
    assert contents(store.folder) == contents(alone.folder)
