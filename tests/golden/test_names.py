"""Fields and attributes may be renamed; hashes and files keep the old names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import bertvision as bv
from bertvision.core.config import DataConfig, ExtractConfig, FitConfig, Recipe, TuneConfig
from bertvision.core.files import hashed_as, hashed_fields, hashed_keys
from bertvision.core.records import Shape
from bertvision.heads.base import HEADS, HeadModule, build_head
from bertvision.training.fitted_head import load_fitted, save_fitted
from bertvision.training.tuner import Tuner
from bertvision.workflows.reproduce.specs import ROW_KINDS, DataSet, Source

DATA = Path(__file__).with_name("data")
HASHED = (DataConfig, TuneConfig, ExtractConfig, FitConfig, Recipe, bv.Task, DataSet, Source)
HASHED += tuple(ROW_KINDS.values())


@pytest.mark.parametrize("cls", HASHED)
def test_every_hashed_field_has_a_key(cls: type) -> None:
    assert set(hashed_keys(cls)) == set(cls.__dataclass_fields__)
    assert all(type(key) is str and key for key in hashed_keys(cls).values())


def test_renamed_field_keeps_its_key() -> None:
    @hashed_as("epochs", rate="lr")
    @dataclass
    class Renamed:
        epochs: int
        rate: float

    assert hashed_fields(Renamed(1, 0.5)) == {"epochs": 1, "lr": 0.5}


@pytest.mark.parametrize(
    ("same", "keys", "message"),
    [
        (("epochs",), {}, "Settings.rate has no key in hashes"),
        (("epochs", "rate", "lr"), {}, "Settings.lr is not a field"),
        (("epochs",), {"rate": "epochs"}, "two fields have the same key"),
    ],
)
def test_field_without_a_key_is_refused(same: tuple[str, ...], keys: dict[str, str], message: str) -> None:
    @dataclass
    class Settings:
        epochs: int
        rate: float

    with pytest.raises(TypeError, match=message):
        hashed_as(*same, **keys)(Settings)
    with pytest.raises(TypeError, match="Settings has no keys for hashes"):
        hashed_fields(Settings(1, 2.0))


class Inner(nn.Module):
    """A submodule of a head whose attributes were renamed."""

    saved_names: ClassVar[Mapping[str, str]] = {"matrix": "weight", "shift": "bias"}

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(outputs, width))
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.matrix, self.shift)


@pytest.fixture
def renamed() -> Iterator[None]:
    """``mean-pool`` with other attributes."""

    class Renamed(HEADS["mean-pool"]):  # type: ignore[misc]
        saved_names: ClassVar[Mapping[str, str]] = {"closing": "dense"}

        def __init__(self, shape: Shape) -> None:
            HeadModule.__init__(self)
            self.closing = Inner(shape.width, shape.outputs)
            self.factor = nn.Parameter(torch.ones(()))
            self.register_buffer("number", torch.zeros(2))

        def forward(self, states: Tensor) -> Tensor:
            mean = states.mean(-2)
            outputs: Tensor = self.closing(self.factor * mean)
            return outputs

        layer_rows = HeadModule.layer_rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS._entries, "mean-pool", Renamed)
        yield


def test_renamed_head_attribute_keeps_its_old_name_in_files(renamed: None, tmp_path: Path) -> None:
    head = build_head("mean-pool", Shape(3, 8, 16, 3, "classify"))
    names = ["body.factor", "body.number", "body.dense.weight", "body.dense.bias"]
    assert list(head.state_dict()) == names
    assert next(iter(nn.ModuleDict({"a": head}).state_dict())) == "a.body.factor"
    state = {key: torch.randn(value.shape) for key, value in head.state_dict().items()}
    head.load_state_dict(state)
    assert torch.equal(head.module.closing.matrix, state["body.dense.weight"])
    with pytest.raises(RuntimeError, match="Unexpected key"):
        head.load_state_dict({**state, "body.other": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="Missing key"):
        head.load_state_dict({key: state[key] for key in names[:3]})


def test_old_file_loads_into_a_renamed_head(tmp_path: Path) -> None:
    old, _ = load_fitted(DATA / "text" / "heads" / "linear" / "seed0")
    old_weights = load_file(DATA / "text" / "heads" / "linear" / "seed0" / "head.safetensors")

    class Renamed(HeadModule):
        pointwise = True
        supports_spans = False
        saved_names: ClassVar[Mapping[str, str]] = {"closing": "dense"}

        def __init__(self, shape: Shape) -> None:
            super().__init__()
            self.closing = nn.Linear(shape.layers * shape.width, shape.outputs)

        def forward(self, states: Tensor) -> Tensor:
            outputs: Tensor = self.closing(states.flatten(-2))
            return outputs

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS._entries, "linear", Renamed)
        loaded, made_from = load_fitted(DATA / "text" / "heads" / "linear" / "seed0")
        save_fitted(loaded, tmp_path, made_from)
    assert isinstance(loaded.head.module, Renamed)
    new_weights = load_file(tmp_path / "head.safetensors")
    assert list(new_weights) == list(old_weights)
    assert all(torch.equal(new_weights[key], old_weights[key]) for key in old_weights)
    hidden = torch.randn(2, 3, loaded.head.shape.layers, loaded.head.shape.width)
    mask = torch.ones(2, 3, dtype=torch.bool)
    with torch.inference_mode():
        assert torch.allclose(loaded.head(hidden, mask), old.head(hidden, mask), atol=1e-6)


def test_interrupted_tuning_keeps_old_names_in_files(renamed: None, tmp_path: Path) -> None:
    encoder = bv.load_encoder(str(DATA / "encoder"))
    config = TuneConfig(lr=1e-3)
    tuners = [
        Tuner(encoder.copy(), build_head("mean-pool", shape), config, 1, torch.device("cpu"))
        for shape in 2 * [Shape(3, 8, 16, 3, "classify")]
    ]
    with torch.no_grad():
        tuners[0].head.module.closing.matrix.fill_(2.0)
        tuners[0].head.module.number.fill_(3.0)
    tuners[0].save(tmp_path / "state", "x")
    names = set(load_file(tmp_path / "state"))
    assert {"head.body.dense.weight", "head.body.factor", "buffer.body.number"} <= names
    assert not any("closing" in name for name in names)
    assert tuners[1].restore(tmp_path / "state", "x")
    assert float(tuners[1].head.module.closing.matrix.detach().mean()) == 2.0
    assert float(tuners[1].head.module.number.mean()) == 3.0
