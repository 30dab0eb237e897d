"""``store`` commands, ``plan``, and the limit on the size of a store."""

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


def test_verify_finds_damaged_files_and_repair_extracts_them_again(call: Call, squad_run: Path, tmp_path: Path) -> None:
    """The encoder is found in the run folder of the store."""
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


def test_damaged_shard_error_suggests_repair(call: Call, squad_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    victim = next((run / "store" / "train").iterdir())
    victim.write_bytes(victim.read_bytes()[:99])
    line = call("fit", run / "store", "--head", "probe").refused()
    assert f"bertvision store verify {run / 'store'} --repair" in line


def test_info_shows_tokens_dtype_and_fingerprint(call: Call, squad_run: Path) -> None:
    facts = call("store", "info", squad_run / "store", "--json").document()
    assert (facts["tokens"], facts["dtype"]) == ("all", "f16")
    assert facts["fingerprint"]["windows"]["max_length"] == 48
    assert "tokens all, f16" in call("store", "info", squad_run / "store").out


@pytest.fixture
def stores(squad_run: Path, tmp_path: Path) -> dict[str, Path]:
    """A run with its store, a store without a run, one that another run uses, and an unfinished one."""
    run = Path(shutil.copytree(squad_run, tmp_path / "run"))
    folders = {"run": run / "store", **{name: tmp_path / name for name in ("lone", "shared", "begun")}}
    for name in ("lone", "shared", "begun"):
        shutil.copytree(squad_run / "store", folders[name])
    (tmp_path / "fits").mkdir()
    (tmp_path / "fits" / "source.json").write_text(json.dumps({"store": str(folders["shared"])}))
    manifest = json.loads((folders["begun"] / "manifest.json").read_text())
    (folders["begun"] / "manifest.json").unlink()
    (folders["begun"] / "started.json").write_text(json.dumps(manifest["fingerprint"]))
    for days, name in enumerate(folders):
        mark = folders[name] / ("started.json" if name == "begun" else "manifest.json")
        os.utime(mark, (mark.stat().st_mtime - days * 10 * DAY,) * 2)
    return folders


def test_prune_deletes_orphaned_stores_only_with_yes(call: Call, stores: dict[str, Path], tmp_path: Path) -> None:
    (stores["lone"] / "notes.txt").write_text("mine")
    (stores["lone"] / "train" / "notes.txt").write_text("mine")
    shown = call("store", "prune", tmp_path, "--orphaned", "--json").document()
    chosen = {Path(row["store"]).name for row in shown["stores"] if row["delete"]}
    assert chosen == {"lone", "begun"}
    assert all(folder.exists() for folder in stores.values())
    output = call("store", "prune", tmp_path, "--orphaned").out
    assert "would be deleted; add --yes to delete" in output
    assert all(folder.exists() for folder in stores.values())
    assert call("store", "prune", tmp_path, "--orphaned", "--yes", "--json").document()["deleted"]
    assert not stores["begun"].exists()
    left = [str(path.relative_to(stores["lone"])) for path in stores["lone"].rglob("*") if path.is_file()]
    assert sorted(left) == ["notes.txt", "train/notes.txt"]
    assert (stores["run"] / "manifest.json").exists()
    assert (stores["shared"] / "manifest.json").exists()


def test_prune_selects_by_age_and_size(call: Call, stores: dict[str, Path], tmp_path: Path) -> None:
    def chosen(*options: object) -> set[str]:
        rows = call("store", "prune", tmp_path, *options, "--json").document()["stores"]
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


def test_plan_recommends_a_store_within_the_limit(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    command = ["plan", "text", "--train", data, "--encoder", tiny_encoder_folder, "--max-length", 48]
    document = call(*command, "--json").document()
    assert len(document["rows"]) == 12
    assert document["choice"] == {**document["choice"], "how": "cached", "dtype": "f16", "tokens": "all"}
    assert "recommended: --live: no store" in call(*command, "--max-gb", 1e-9).out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.csv"]


def test_extract_refuses_a_store_that_is_too_large(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    command = samples.extraction(samples.write_csv(tmp_path / "my.csv"), tiny_encoder_folder, "text")
    assert "more than --max-gb 1e-06" in call(*command, "--max-gb", 1e-6).refused()
    assert call(*command, "--tokens", "cls", "--dtype", "int8", "--layers", "last2").code == 0
    facts = call("store", "info", tmp_path / "store", "--json").document()
    assert (facts["tokens"], facts["dtype"], facts["layers"]) == ("cls", "int8", [1, 2])
    line = call("fit", tmp_path / "store", "--head", "bilstm", "--out", tmp_path / "run").refused()
    assert "bertvision extract TASK ... --tokens all --to STORE" in line


def test_run_refuses_a_store_that_is_too_large_before_tuning(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    command = [
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
    line = call(*command, "--max-gb", 1e-6).refused()
    assert "more than --max-gb 1e-06; use --dtype int8" in line
    assert not (tmp_path / "run").exists()
