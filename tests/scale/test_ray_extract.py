"""A store that a Ray cluster made is that of one process; set BERTVISION_SLOW=1 (starting Ray takes its time)."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

import bertvision
from bertvision.config import ExtractConfig
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.records import Example
from bertvision.scale.ray_extract import LOOPBACK, ray_extract
from bertvision.steps.extract import extract
from bertvision.store.store import MANIFEST
from bertvision.tasks.base import Task

os.environ.setdefault(LOOPBACK, "0")  # before ray is imported
ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'bertvision[ray]'")

pytestmark = [
    pytest.mark.skipif(not os.environ.get("BERTVISION_SLOW"), reason="takes minutes: set BERTVISION_SLOW=1"),
    pytest.mark.filterwarnings("default"),  # Ray's and pandas' own
]

LABELS = ("even", "odd")
SIZES = {"train": 1200, "inner": 150, "dev": 150}
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
        try:
            name, rest = re.fullmatch(r"\d+ \((.*)\) . (.*)", path.read_text().strip(), re.S).groups()  # type: ignore[union-attr]
            words = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(rest.split()[0]) == process and b"MapWorker" in words + name.encode():
            found.append(int(path.parent.name))
    return found


def test_a_machine_lost_costs_what_it_had_in_hand(
    encoder: Encoder, task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray.cluster_utils import Cluster

    config, target = settings(dtype="f32"), tmp_path / "store"
    alone = extract(encoder, task, tmp_path / "alone", config)
    total = len(list(alone.folder.glob("*/*.safetensors")))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        lost = cluster.add_node(num_cpus=1)
        made_before: list[int] = []

        def kill() -> None:
            """As soon as both machines are at work."""
            raylet, deadline = lost.all_processes["raylet"][0].process.pid, time.monotonic() + START
            while time.monotonic() < deadline:
                made = len(list(target.glob("*/shard-*.json")))
                if made >= 4 and actors_under(raylet):
                    made_before.append(made)
                    cluster.remove_node(lost, allow_graceful=False)
                    return
                time.sleep(0.01)

        ray.data.DataContext.get_current().wait_for_min_actors_s = int(START)  # nobody is done before all begin
        killer = threading.Thread(target=kill)
        killer.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = ray_extract(encoder, task, target, config, address=cluster.address)
        killer.join()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert made_before and made_before[0] < total // 2, "nobody was killed in time"
    again = re.findall(rf"extract: (\d+) of {total} shards once more", capsys.readouterr().err)
    assert len(again) == 1 and 1 <= int(again[0]) <= total // 8  # one group
    assert contents(store.folder) == contents(alone.folder)
