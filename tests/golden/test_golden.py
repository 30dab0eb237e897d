"""Nothing that users' files or commands depend on changes: ``data`` holds what version 0.1.0 wrote and was.

Held fixed are what can be typed (``commands.json``), the keys of files and documents (``keys.json``,
``documents.json``), hashes that tell whether something was done before (``hashes.json``) and the names of heads'
weights (``state_dict_names.json``). Beside them lie files of that version: an encoder, two runs with stores, heads and
models, encoders on a base, and states of work that was ended on the way. They must load, give what they gave, and be
gone on with. ``BERTVISION_EXACT=1`` asks for equality to the last bit, on the machine that wrote them.

``tools/make_golden.py`` writes ``data``; see there when that is right.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
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
HEADS = [place for name in ("squad", "text") for place in facts.head_places(name)]


def known(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


HASHES = known("hashes")
same_transformers = pytest.mark.skipif(
    HASHES["versions"]["transformers"] != transformers.__version__,
    reason="an encoder's hash holds the settings that transformers gives it, and this is another version",
)


def plain(content: Any) -> Any:
    """As it comes out of a file."""
    return json.loads(json.dumps(content))


def same_rows(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if EXACT:
            assert np.array_equal(one, other)
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-5)


def same_document(found: Any, wanted: Any) -> None:
    """Equal, numbers nearly so."""
    if EXACT:
        assert found == wanted
    if isinstance(wanted, Mapping):
        assert list(found) == list(wanted)
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same_document(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-5)
    else:
        assert found == wanted


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the encoder and the texts, to run commands in."""
    facts.inputs_into(tmp_path / "here")
    return tmp_path / "here"


def test_what_can_be_typed() -> None:
    found = plain(facts.commands())
    wanted = known("commands")
    assert list(found) == list(wanted)
    for command, options in wanted.items():
        assert found[command] == options, command


@pytest.mark.parametrize("name", facts.DOCUMENTS)
def test_what_there_is_to_choose_from(name: str) -> None:
    same_document(facts.said(*facts.DOCUMENTS[name]).document, known("documents")[name])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("golden") / "here"
    facts.inputs_into(folder)
    return facts.all_keys(folder)


@pytest.mark.parametrize("sort", ["documents", "files"])
def test_keys_of_what_commands_write(keys: Any, sort: str) -> None:
    found, wanted = (
        {one: each["keys"] for each in some for one in each["in"]} for some in (keys[sort], known("keys")[sort])
    )
    assert sorted(found) == sorted(wanted)
    for one, names in wanted.items():
        assert found[one] == names, one


@pytest.mark.parametrize("name", HASHES["free"])
def test_hashes(name: str) -> None:
    assert plain(facts.free_hashes()[name]) == HASHES["free"][name]


@same_transformers
def test_hashes_of_encoders_and_of_what_is_made_with_them() -> None:
    found = plain(facts.encoder_hashes())
    for name, wanted in HASHES["encoder"].items():
        assert found[name] == wanted, name


def test_names_of_the_weights_of_every_head() -> None:
    assert facts.state_dict_names() == known("state_dict_names")


@pytest.mark.parametrize("name", HASHES["stores"])
def test_a_store_is_read_as_it_was_written(name: str) -> None:
    assert facts.decoded(name) == HASHES["stores"][name]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_says_what_it_said(head: str, tmp_path: Path) -> None:
    found, wanted = facts.head_outputs(head, tmp_path), facts.kept_outputs(head)
    same_rows(found["dev"], wanted["dev"])
    for one, other in zip(found["inner"], wanted["inner"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)  # fitted in batches of another order


@pytest.mark.parametrize("name", facts.SMALL)
def test_an_encoder_on_a_base_gives_what_it_gave(name: str) -> None:
    if name == "lora":
        pytest.importorskip("peft", reason="LoRA needs the extra peft")
    wanted = load_file(DATA / name / "expected.safetensors")
    same_rows(facts.own_outputs(name), [wanted[str(number)].numpy() for number in range(len(wanted))])


@pytest.mark.parametrize("name", facts.MODELS)
def test_a_model_answers_what_it_answered(name: str) -> None:
    same_document(facts.answers(name), known("answers")[name])


@same_transformers
@pytest.mark.parametrize("name", ["squad", "text"])
def test_a_run_that_is_done_is_not_done_again(name: str, place: Path) -> None:
    shutil.copytree(DATA / name, place / name)
    with facts.working_in(place):
        again = facts.said(*facts.RUNS[name])
    assert [step for step in ("tune", "extract", "fit") if f"{step}: already done, skipping" not in again.errors] == []
    before = json.loads((DATA / name / "leaderboard.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in again.document["rows"]] == [row["name"] for row in before["rows"]]
    for found, wanted in zip(again.document["rows"], before["rows"], strict=True):
        same_document(*({key: value for key, value in row.items() if key != "seconds"} for row in (found, wanted)))


@same_transformers
def test_a_tuning_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = shutil.copy(DATA / "tuning.safetensors", tmp_path)
    base, task = bv.load_encoder(str(DATA / "encoder")), facts.read_task(DATA / "text" / "store" / "task")
    tuned = [bv.tune(base, task, saved=path, **facts.HALF) for path in (Path(saved), None)]
    assert "resuming after step 3" in capsys.readouterr().err
    outputs = [bv.Model(one, "encoder", task).outputs(task["dev"])[0] for one in tuned]
    same_rows(*outputs)


@same_transformers
def test_a_fit_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = shutil.copy(DATA / "fitting.safetensors", tmp_path)
    store, (specs, settings) = bv.Store(DATA / "squad" / "store"), facts.HALF_FIT
    found, wanted = (bv.fit(specs, store, saved=path, **settings) for path in (Path(saved), None))
    assert "resuming after epoch 1" in capsys.readouterr().err
    for one, other in zip(found, wanted, strict=True):
        same_rows(one.inner, other.inner)


def test_a_search_goes_on_in_the_same_study(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra search")
    assert facts.study_names(tmp_path) == HASHES["studies"]


def test_no_path_of_a_machine_is_kept() -> None:
    for path in DATA.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".toml"):
            assert re.search(r'"/(?!data/)', path.read_text(encoding="utf-8")) is None, path
