"""Looking at stores, checking them and deleting them, as commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.store.lock import writing

Call = Callable[..., Any]
DAY = 86_400


def test_verify_and_repair(call: Call, squad_run: Path, tmp_path: Path) -> None:
    """The encoder of the run is found beside its store."""
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    good = call("store", "verify", run / "store", "--json").document()
    assert (good["files"], good["damaged"]) == (3, [])
    victim = next((run / "store" / "dev").iterdir())
    content = bytearray(victim.read_bytes())
    content[-3] ^= 64
    victim.write_bytes(content)
    line = call("store", "verify", run / "store").refused()
    assert f"1 of 3 files are damaged: dev/{victim.name} (changed); extract them again with:" in line
    assert f"bertvision store verify {run / 'store'} --repair" in line
    assert call("store", "verify", run / "store", "--repair", "--json").document()["repaired"] == [f"dev/{victim.name}"]
    assert "all 3 files are intact" in call("store", "verify", run / "store").out
    assert "no damaged files" in call("store", "verify", run / "store", "--repair").out
    assert "takes one store" in call("store", "verify", run / "store", run / "store").refused()


def test_a_damaged_shard_met_while_reading_says_what_to_do(call: Call, squad_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    victim = next((run / "store" / "train").iterdir())
    victim.write_bytes(victim.read_bytes()[:99])
    line = call("fit", run / "store", "--head", "probe").refused()
    assert f"bertvision store verify {run / 'store'} --repair" in line


def test_info_tells_tokens_and_encoder(call: Call, squad_run: Path) -> None:
    facts = call("store", "info", squad_run / "store", "--json").document()
    assert (facts["tokens"], facts["dtype"]) == ("all", "f16")
    assert facts["fingerprint"]["windows"]["max_length"] == 48
    assert "tokens all, f16" in call("store", "info", squad_run / "store").out


@pytest.fixture
def stores(squad_run: Path, tmp_path: Path) -> dict[str, Path]:
    """A run with its store, a store of no run, one that a run elsewhere uses, and one that was never finished."""
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    places = {"run": run / "store", **{name: tmp_path / name for name in ("lone", "shared", "begun")}}
    for name in ("lone", "shared", "begun"):
        shutil.copytree(squad_run / "store", places[name])
    (tmp_path / "fits").mkdir()
    (tmp_path / "fits" / "source.json").write_text(json.dumps({"store": str(places["shared"])}))
    manifest = json.loads((places["begun"] / "manifest.json").read_text())
    (places["begun"] / "manifest.json").unlink()
    (places["begun"] / "started.json").write_text(json.dumps(manifest["fingerprint"]))
    for days, name in enumerate(places):
        mark = places[name] / ("started.json" if name == "begun" else "manifest.json")
        os.utime(mark, (mark.stat().st_mtime - days * 10 * DAY,) * 2)
    return places


def test_prune_shows_and_deletes_only_with_yes(call: Call, stores: dict[str, Path], tmp_path: Path) -> None:
    (stores["lone"] / "notes.txt").write_text("mine")
    (stores["lone"] / "train" / "notes.txt").write_text("mine")
    shown = call("store", "prune", tmp_path, "--orphaned", "--json").document()
    chosen = {Path(row["store"]).name for row in shown["stores"] if row["delete"]}
    assert chosen == {"lone", "begun"}
    assert all(place.exists() for place in stores.values())
    said = call("store", "prune", tmp_path, "--orphaned").out
    assert "would be deleted; add --yes to delete" in said
    assert all(place.exists() for place in stores.values())
    assert call("store", "prune", tmp_path, "--orphaned", "--yes", "--json").document()["deleted"]
    assert not stores["begun"].exists()
    left = [str(path.relative_to(stores["lone"])) for path in stores["lone"].rglob("*") if path.is_file()]
    assert sorted(left) == ["notes.txt", "train/notes.txt"]
    assert (stores["run"] / "manifest.json").exists()
    assert (stores["shared"] / "manifest.json").exists()


def test_prune_by_age_and_size(call: Call, stores: dict[str, Path], tmp_path: Path) -> None:
    def chosen(*words: object) -> set[str]:
        rows = call("store", "prune", tmp_path, *words, "--json").document()["stores"]
        return {Path(row["store"]).name for row in rows if row["delete"]}

    assert chosen() == set()
    assert chosen("--older-than", 15) == {"shared", "begun"}
    rows = call("store", "prune", tmp_path, "--json").document()["stores"]
    room = sum(row["bytes"] for row in rows[:3]) / 1e9
    assert chosen("--max-gb", room) == {"begun"}
    assert chosen("--max-gb", 0) == {"store", "lone", "shared", "begun"}
    with writing(stores["begun"]):
        assert chosen("--max-gb", room) == set()
    assert "does not exist" in call("store", "prune", tmp_path / "nowhere").refused()


def test_plan(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    words = ["plan", "text", "--train", data, "--encoder", tiny_encoder_folder, "--max-length", 48]
    document = call(*words, "--json").document()
    assert len(document["rows"]) == 9
    assert document["choice"] == {**document["choice"], "how": "cached", "dtype": "f16", "tokens": "all"}
    assert "recommended: --live: no store" in call(*words, "--max-gb", 1e-9).out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.csv"]


def test_extract_refuses_what_is_too_large(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    words = samples.extraction(samples.write_csv(tmp_path / "my.csv"), tiny_encoder_folder, "text")
    assert "more than --max-gb 1e-06" in call(*words, "--max-gb", 1e-6).refused()
    assert call(*words, "--tokens", "cls", "--dtype", "int8", "--layers", "last2").code == 0
    facts = call("store", "info", tmp_path / "store", "--json").document()
    assert (facts["tokens"], facts["dtype"], facts["layers"]) == ("cls", "int8", [1, 2])
    line = call("fit", tmp_path / "store", "--head", "bilstm", "--out", tmp_path / "run").refused()
    assert "bertvision extract TASK ... --tokens all --to STORE" in line


def test_run_refuses_it_before_anything_is_tuned(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    words = [
        "run",
        "text",
        "--train",
        data,
        "--encoder",
        tiny_encoder_folder,
        "--max-length",
        48,
        "--out",
        tmp_path / "run",
    ]
    line = call(*words, "--max-gb", 1e-6).refused()
    assert "more than --max-gb 1e-06; use --dtype int8" in line
    assert not (tmp_path / "run").exists()
