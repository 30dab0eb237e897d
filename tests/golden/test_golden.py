"""Nothing that users' files or commands depend on changes: ``data`` holds files and facts of version 0.1.0.

Kept fixed are command-line options (``commands.json``), the keys of files and documents (``keys.json``,
``documents.json``), hashes that decide whether a step is repeated (``hashes.json``) and the names of heads'
weights (``state_dict_names.json``). ``data`` also holds files of that version: an encoder, two runs with stores, heads
and models, encoders saved as delta weights, and checkpoints of interrupted work. They must load, give the same outputs
and be resumed. ``BERTVISION_EXACT=1`` asks for equality to the last bit, on the machine that wrote them.

``tools/make_golden.py`` writes ``data``; it says when to run it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.torch import load_file

import bertvision as bv

_spec = importlib.util.spec_from_file_location("golden_facts", Path(__file__).with_name("facts.py"))
assert _spec is not None
assert _spec.loader is not None
facts = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = facts
_spec.loader.exec_module(facts)

DATA: Path = facts.DATA
EXACT = os.environ.get("BERTVISION_EXACT") == "1"
HEADS = [folder for name in ("squad", "text") for folder in facts.head_folders(name)]


def expected(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


HASHES = expected("hashes")
same_transformers = pytest.mark.skipif(
    HASHES["versions"]["transformers"] != transformers.__version__,
    reason="an encoder's hash holds the settings that transformers gives it, and this is another version",
)


def as_json(content: Any) -> Any:
    """As it would be read from a JSON file."""
    return json.loads(json.dumps(content))


def assert_same_rows(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    assert len(got) == len(wanted)
    for got_row, wanted_row in zip(got, wanted, strict=True):
        assert (got_row.shape, got_row.dtype) == (wanted_row.shape, wanted_row.dtype)
        if EXACT:
            assert np.array_equal(got_row, wanted_row)
        np.testing.assert_allclose(got_row, wanted_row, rtol=1e-6, atol=1e-5)


def assert_same_document(got: Any, wanted: Any) -> None:
    """Equal except for rounding of numbers."""
    if EXACT:
        assert got == wanted
    if isinstance(wanted, Mapping):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, list):
        assert len(got) == len(wanted)
        for got_item, wanted_item in zip(got, wanted, strict=True):
            assert_same_document(got_item, wanted_item)
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=1e-6, abs=1e-5)
    else:
        assert got == wanted


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with the encoder and the texts, to run commands in."""
    facts.copy_inputs(tmp_path / "here")
    return tmp_path / "here"


def test_command_line_options_are_unchanged() -> None:
    got = as_json(facts.commands())
    wanted = expected("commands")
    assert list(got) == list(wanted)
    for command, options in wanted.items():
        by_name = {option["names"][-1] if option["names"] else option["dest"]: option for option in got[command]}
        for old in options:  # options may be added, and values may be allowed
            new = by_name[old["names"][-1] if old["names"] else old["dest"]]
            assert {**new, "choices": None} == {**old, "choices": None}, command
            assert new["choices"] is None or set(new["choices"]) >= set(old["choices"]), (command, old["names"])


@pytest.mark.parametrize("name", facts.DOCUMENTS)
def test_listed_heads_tasks_and_encoders_are_unchanged(name: str) -> None:
    assert_same_document(facts.run_command(*facts.DOCUMENTS[name]).document, expected("documents")[name])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("golden") / "here"
    facts.copy_inputs(folder)
    return facts.all_keys(folder)


@pytest.mark.parametrize("sort", ["documents", "files"])
def test_keys_of_written_files_and_documents_are_unchanged(keys: Any, sort: str) -> None:
    got, wanted = (
        {name: group["keys"] for group in groups for name in group["in"]}
        for groups in (keys[sort], expected("keys")[sort])
    )
    assert sorted(got) == sorted(wanted)
    for name, names in wanted.items():
        assert got[name] == names, name


@pytest.mark.parametrize("name", HASHES["free"])
def test_hashes_are_unchanged(name: str) -> None:
    assert as_json(facts.free_hashes()[name]) == HASHES["free"][name]


@same_transformers
def test_hashes_that_include_an_encoder_are_unchanged() -> None:
    hashes = as_json(facts.encoder_hashes())
    for name, wanted in HASHES["encoder"].items():
        assert hashes[name] == wanted, name


def test_weight_names_of_every_head_are_unchanged() -> None:
    assert facts.state_dict_names() == expected("state_dict_names")


@pytest.mark.parametrize("name", HASHES["stores"])
def test_old_store_decodes_to_the_same_states(name: str) -> None:
    assert facts.decoded_hashes(name) == HASHES["stores"][name]


@pytest.mark.parametrize("head", HEADS)
def test_old_head_gives_the_same_outputs(head: str, tmp_path: Path) -> None:
    got, wanted = facts.head_outputs(head, tmp_path), facts.cached_outputs(head)
    assert_same_rows(got["dev"], wanted["dev"])
    # The outputs on inner were computed in another order of batches when the head was fitted.
    for got_row, wanted_row in zip(got["inner"], wanted["inner"], strict=True):
        np.testing.assert_allclose(got_row, wanted_row, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", facts.DELTA_ENCODERS)
def test_old_delta_weights_give_the_same_outputs(name: str) -> None:
    if name == "lora":
        pytest.importorskip("peft", reason="LoRA needs the extra peft")
    wanted = load_file(DATA / name / "expected.safetensors")
    assert_same_rows(facts.own_outputs(name), [wanted[str(number)].numpy() for number in range(len(wanted))])


@pytest.mark.parametrize("name", facts.MODELS)
def test_old_model_gives_the_same_predictions(name: str) -> None:
    assert_same_document(facts.answers(name), expected("answers")[name])


NEW_CONTROLS = {"squad": [], "text": ["ridge:layers=last1", "ridge:layers=last1,read=cls"]}
"""Controls of today that the old runs do not have."""


@same_transformers
@pytest.mark.parametrize("name", ["squad", "text"])
def test_finished_old_run_fits_the_new_controls_and_nothing_else(name: str, workspace: Path) -> None:
    run = Path(shutil.copytree(DATA / name, workspace / name))
    kept = [path for part in ("encoder", "store", "heads") for path in (run / part).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in kept}
    with facts.working_in(workspace):
        result = facts.run_command(*facts.RUNS[name])
    done = [step for step in ("tune", "extract", "fit") if f"{step}: already done, skipping" in result.errors]
    assert done == (["tune", "extract"] if NEW_CONTROLS[name] else ["tune", "extract", "fit"])
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines[len((DATA / name / "log.jsonl").read_text("utf-8").splitlines()) :]]
    assert [step["heads"] for step in steps if step["step"] == "fit"] == (
        [NEW_CONTROLS[name]] if NEW_CONTROLS[name] else []
    )
    assert {path: path.read_bytes() for path in kept} == before
    new = {path.parent.parent.name for path in (run / "heads").rglob("head.json") if path not in before}
    assert new == set(NEW_CONTROLS[name])


@same_transformers
@pytest.mark.parametrize("name", ["squad", "text"])
def test_finished_old_run_has_the_same_scores(name: str, workspace: Path) -> None:
    shutil.copytree(DATA / name, workspace / name)
    with facts.working_in(workspace):
        board = facts.run_command(*facts.RUNS[name]).document
    rows = {row["name"]: row for row in board["rows"]}
    old = json.loads((DATA / name / "leaderboard.json").read_text(encoding="utf-8"))
    same = [row for row in old["rows"] if row["name"] in rows]
    gone = {row["name"] for row in old["rows"]} - set(rows)
    if NEW_CONTROLS[name]:  # the old control, and the ensembles with a head that is no longer the best on inner
        assert gone == {"probe:layers=last1", *(f"{how}(encoder + linear@0)" for how in ("max", "mean", "fitted"))}
        assert {row["name"] for row in rows.values() if row["kind"] == "head"} - {row["name"] for row in same} == {
            *NEW_CONTROLS[name]
        }
    else:
        assert [row["name"] for row in board["rows"]] == [row["name"] for row in old["rows"]]
    for wanted in same:
        got = rows[wanted["name"]]
        assert set(got) - set(wanted) == {"control"}
        changed = {"seconds", "control", "calibration"}  # temperatures that do not help are no longer used
        if NEW_CONTROLS[name] and wanted["name"] == "fitted(encoder + every head)":
            members = {*wanted["members"], *(f"{spec}@0" for spec in NEW_CONTROLS[name])} - {"probe:layers=last1@0"}
            assert set(got["members"]) == members
            continue
        assert_same_document(*({key: row[key] for key in wanted if key not in changed} for row in (got, wanted)))
        for part, fitted in got["calibration"].items():
            assert fitted["ece_raw"] == pytest.approx(wanted["calibration"][part]["ece_raw"], abs=1e-5)
            assert fitted["temperature"] == 1
            assert fitted["ece"] == fitted["ece_raw"]
    assert {row["name"] for row in rows.values() if row["control"]} == {
        (NEW_CONTROLS[name] or ["probe:layers=last1"])[0]
    }


@same_transformers
@pytest.mark.parametrize("name", ["squad", "text"])
def test_old_store_is_updated_without_the_encoder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(DATA / name / "store", tmp_path / "store")
    old = bv.Store(DATA / name / "store")
    task, encoder = facts.read_task(old.folder / "task"), bv.load_encoder(str(DATA / name / "encoder"))
    task = replace(task, splits={**task.splits, "train": task["train"][1:]})
    settings = {"dtype": old.manifest["dtype"], "tokens": old.tokens, **old.manifest["fingerprint"]["plan"]}
    new = bv.extract(encoder, task, tmp_path / "store", **settings)
    assert "the encoder runs on 0" in capsys.readouterr().err
    assert len(new["dev"]) == len(old["dev"])


@same_transformers
def test_interrupted_old_tuning_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = shutil.copy(DATA / "tuning.safetensors", tmp_path)
    base, task = bv.load_encoder(str(DATA / "encoder")), facts.read_task(DATA / "text" / "store" / "task")
    tuned = [bv.tune(base, task, saved=path, **facts.INTERRUPTED_TUNING) for path in (Path(saved), None)]
    assert "resuming after step 3" in capsys.readouterr().err
    outputs = [bv.Model(encoder, "encoder", task).outputs(task["dev"])[0] for encoder in tuned]
    assert_same_rows(*outputs)


@same_transformers
def test_interrupted_old_fit_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = shutil.copy(DATA / "fitting.safetensors", tmp_path)
    store, (specs, settings) = bv.Store(DATA / "squad" / "store"), facts.INTERRUPTED_FIT
    resumed, fitted = (bv.fit(specs, store, saved=path, **settings) for path in (Path(saved), None))
    assert "resuming after epoch 1" in capsys.readouterr().err
    for got, wanted in zip(resumed, fitted, strict=True):
        assert_same_rows(got.inner, wanted.inner)


def test_study_names_are_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra search")
    assert facts.study_names(tmp_path) == HASHES["studies"]


def test_data_contains_no_absolute_paths() -> None:
    for path in DATA.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".toml"):
            assert re.search(r'"/(?!data/)', path.read_text(encoding="utf-8")) is None, path
