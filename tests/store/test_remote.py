"""Remote stores: uploaded shard by shard, and read through a cache of limited size."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.store import writer
from bertvision.store.remote import CACHE_FOLDER, CACHE_GB, Remote, cache_folder
from bertvision.store.store import MANIFEST, Store, find_damage
from bertvision.tasks.task import Task, read_task
from bertvision.training.extract import STARTED, extract, extract_share, finalize, repair
from bertvision.training.fit import fit

fsspec = pytest.importorskip("fsspec")

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1, "dtype": "int8"}
S3 = bool(os.environ.get("BERTVISION_S3"))
"""BERTVISION_S3=1 also runs these tests against a local S3 server (needs moto[server] and s3fs)."""

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.skipif(not S3, reason="BERTVISION_S3 not set"))])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return f"memory://bucket/{tmp_path.name}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3_server"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    bucket = f"b{abs(hash(tmp_path)) % 10**9}"
    fsspec.filesystem("s3").mkdir(bucket)
    return f"s3://{bucket}/store"


def remote_files(url: str) -> dict[str, bytes]:
    """The content of every file below a URL, by relative path."""
    remote = Remote(url)
    root = remote.root.rstrip("/") + "/"
    return {name.split(root, 1)[1]: remote.files.cat_file(name) for name in remote.files.find(root)}


def same_files(remote: dict[str, bytes], local: Path) -> bool:
    expected = {str(path.relative_to(local)): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    manifests = [json.loads(files.pop(MANIFEST)) for files in (remote, expected)]
    for manifest in manifests:
        manifest.pop("seconds")
    return remote == expected and manifests[0] == manifests[1]


def test_remote_store_equals_a_local_one(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, url: str, cache: Path
) -> None:
    local = extract(span_encoder, span_task, tmp_path / "local", **SMALL_SHARDS)
    store = extract(span_encoder, span_task, url, **SMALL_SHARDS)
    assert same_files(remote_files(url), local.folder)
    assert not list(cache.rglob("shard-*"))  # uploaded, and not read yet
    assert store.id == Store(url).id == Store(cache_folder(url)).id == local.id
    assert read_task(store.folder / "task") == span_task
    for batch, local_batch in zip(store["dev"].batches(4), local["dev"].batches(4), strict=True):
        assert torch.equal(batch.hidden, local_batch.hidden)
    assert fit(["mean-pool"], store, epochs=1)[0].history == fit(["mean-pool"], local, epochs=1)[0].history
    before = remote_files(url)
    assert extract(span_encoder, span_task, url, **SMALL_SHARDS).id == local.id
    assert remote_files(url) == before


class Interrupted(Exception):
    pass


def test_interrupted_upload_resumes(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = extract(span_encoder, span_task, tmp_path / "local", **SMALL_SHARDS)
    original_put, sent = Remote.put, []

    def put(self: Remote, path: Path, name: str) -> None:
        if name.endswith("shard-00002.safetensors"):
            raise Interrupted
        sent.append(name)
        original_put(self, path, name)

    monkeypatch.setattr(Remote, "put", put)
    with pytest.raises(Interrupted):
        extract(span_encoder, span_task, url, **SMALL_SHARDS)
    monkeypatch.setattr(Remote, "put", original_put)
    shards_sent = [name for name in sent if name.endswith(".safetensors") and "shard" in name]
    assert len(shards_sent) == 2
    assert MANIFEST not in remote_files(url)
    assert STARTED in remote_files(url)
    with pytest.raises(BadInput, match="no finished store at"):
        Store(url)
    with pytest.raises(BadInput, match="dtype is int8 there and f16 here"):
        extract(span_encoder, span_task, url, **{**SMALL_SHARDS, "dtype": "f16"})
    written: list[str] = []
    monkeypatch.setattr(
        writer, "write_shard", lambda shard, path, w=writer.write_shard: written.append(path.name) or w(shard, path)
    )
    extract(span_encoder, span_task, url, **SMALL_SHARDS)
    assert same_files(remote_files(url), local.folder)
    total = sum(len(split["shards"]) for split in local.manifest["splits"].values())
    assert len(written) == total - 2


def test_manifest_is_uploaded_last(
    span_encoder: Encoder, span_task: Task, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_put, sent = Remote.put, []
    monkeypatch.setattr(Remote, "put", lambda self, path, name: sent.append(name) or original_put(self, path, name))
    extract(span_encoder, span_task, url, **SMALL_SHARDS)
    assert sent[-1] == MANIFEST
    assert sent[0] == STARTED


def test_cache_stays_within_its_limit(
    span_encoder: Encoder, span_task: Task, url: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = extract(span_encoder, span_task, url, **SMALL_SHARDS)
    largest = max(entry["bytes"] for split in store.manifest["splits"].values() for entry in split["shards"])
    monkeypatch.setenv(CACHE_GB, str(2.5 * largest / 1e9))
    fetched: list[str] = []
    original_get = Remote.get
    monkeypatch.setattr(Remote, "get", lambda self, name, path: fetched.append(name) or original_get(self, name, path))
    for _ in store["train"].batches(4):
        cached = list(cache.rglob("shard-*.safetensors"))
        assert sum(path.stat().st_size for path in cached) <= 2.5 * largest
    shards = len(store["train"].sizes)
    assert len(fetched) == shards > 3
    list(store["dev"].batches(4))
    before = len(fetched)
    list(store["dev"].shards())
    assert len(fetched) - before <= len(store["dev"].sizes)
    monkeypatch.setenv(CACHE_GB, "much")
    with pytest.raises(BadInput, match="BERTVISION_CACHE_GB is 'much'"):
        list(store["train"].shards())


def test_changed_remote_shard_is_detected_and_repaired(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, url: str
) -> None:
    store, remote = extract(span_encoder, span_task, url, **SMALL_SHARDS), Remote(url)
    name = store.manifest["splits"]["dev"]["shards"][0]["file"]
    original = remote.files.cat_file(remote._path(name))
    (tmp_path / "bad").write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    remote.put(tmp_path / "bad", name)
    with pytest.raises(BadInput, match=r"has changed \(its sha256 differs\)"):
        list(store["dev"].shards())
    assert [damage.file for damage in find_damage(store)] == [name]
    repair(url, span_encoder)
    assert remote.files.cat_file(remote._path(name)) == original
    assert find_damage(Store(url)) == []


def test_new_store_at_the_same_url_is_not_read_from_the_cache(
    span_encoder: Encoder, tiny_encoder: Encoder, span_task: Task, url: str
) -> None:
    first = extract(span_encoder, span_task, url, **SMALL_SHARDS)
    old = next(first["dev"].shards())["hidden"].clone()
    remote = Remote(url)
    for name in remote_files(url):
        remote.remove(name)
    second = extract(tiny_encoder, span_task, url, **SMALL_SHARDS)
    assert second.id != first.id
    assert not torch.equal(next(second["dev"].shards())["hidden"], old)


def test_shares_extracted_on_several_machines_are_combined(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine has its own cache and shares only the URL."""
    local = extract(span_encoder, span_task, tmp_path / "local", **SMALL_SHARDS)
    for machine in (2, 1):
        monkeypatch.setenv(CACHE_FOLDER, str(tmp_path / f"machine{machine}"))
        assert extract_share(span_encoder, span_task, url, (machine, 2), **SMALL_SHARDS) > 0
    monkeypatch.setenv(CACHE_FOLDER, str(tmp_path / "machine3"))
    finalize(span_encoder, span_task, url, **SMALL_SHARDS)
    assert same_files(remote_files(url), local.folder)


def test_unknown_locations_are_named(span_encoder: Encoder, span_task: Task) -> None:
    for location in ("nosuch://a/b", "memory://nothing/here"):
        with pytest.raises(BadInput) as error:
            Store(location)
        assert location in str(error.value)
