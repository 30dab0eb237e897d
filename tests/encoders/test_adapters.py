"""Adapters, LoRA and bias tuning in every family: tuning, saving as delta weights, loading and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertvision.core.config import TuneConfig
from bertvision.core.errors import BadInput
from bertvision.encoders.adapters import adapters_of, disabled_adapters
from bertvision.encoders.architectures import FAMILIES
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.encoders.methods import inject, prepare
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.tasks.task import Task
from bertvision.training.inputs import encoder_hash
from bertvision.training.tune import choose_lr, resolve_config, tune

States = Callable[[Encoder], torch.Tensor]
Families = dict[str, tuple[Path, Any]]

SETTINGS: dict[str, Any] = {"epochs": 0.4, "lr": 1e-2, "batch": 5}

TWO_STEPS = 2
METHODS = ("adapters:size=4", "adapters:size=4,share=layer,norms=false,unfreeze=1", "bitfit", "lora:r=2")


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in encoder.model.state_dict().items()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_tuned_saved_as_delta_weights_and_loaded(
    family: str, method: str, families: Families, label_task: Task, states: States, tmp_path: Path
) -> None:
    base = load_encoder(str(families[family][0]))
    before = weights(base)
    if (refused := _refusal(family, method)) is not None:
        with pytest.raises(BadInput, match=refused):
            tune(base, label_task, method=method, **SETTINGS)
        return
    tuned = tune(base, label_task, method=method, **SETTINGS)
    assert tuned.record["tune"]["steps"] == TWO_STEPS
    assert not torch.allclose(states(tuned), states(base))
    tuned.save_pretrained(tmp_path / "small")
    assert {path.name for path in (tmp_path / "small").iterdir()} == {
        "bertvision.json",
        "own.safetensors",
        "small.safetensors",
    }
    loaded = load_encoder(str(tmp_path / "small"))
    assert torch.equal(states(loaded), states(tuned))
    assert encoder_hash(loaded) == encoder_hash(tuned)
    assert (loaded.record, loaded.name) == (tuned.record, base.name)
    after = weights(base)
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)


def _refusal(family: str, method: str) -> str | None:
    """The error for methods that ALBERT or ModernBERT does not support."""
    if family == "albert" and method.startswith("adapters"):
        return r"ALBERT uses one layer repeatedly, so its adapters cannot differ .* use share=all"
    if family == "modernbert" and method == "bitfit":
        return "bitfit: encoders of type modernbert have no biases; use another --method"
    return None


def test_albert_supports_a_single_shared_adapter_only(
    families: Families, label_task: Task, states: States, tmp_path: Path
) -> None:
    base = load_encoder(str(families["albert"][0]))
    tuned = tune(base, label_task, method="adapters:size=4,share=all", **SETTINGS)
    tuned.save_pretrained(tmp_path)
    assert torch.equal(states(load_encoder(str(tmp_path))), states(tuned))
    with pytest.raises(BadInput, match="ALBERT uses one layer repeatedly"), disabled_adapters(tuned.model, 1, 1):
        pass
    with pytest.raises(BadInput, match="ALBERT uses one layer repeatedly"):
        tune(base, label_task, method="adapters:share=all,unfreeze=1", **SETTINGS)
    base.model.config.num_hidden_groups = 2
    with pytest.raises(BadInput, match=r"this ALBERT has 2 alternating layers, expected one; use full or lora"):
        tune(base, label_task, method="adapters:share=all", **SETTINGS)


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_with_zero_output_leave_every_state_unchanged(family: str, families: Families, states: States) -> None:
    """Adapters run at both positions of every layer."""
    base = load_encoder(str(families[family][0]))
    encoder = base.copy()
    inject(encoder.model, "adapters:size=2,share=all")
    adapters = adapters_of(encoder.model)
    assert adapters is not None
    calls: list[int] = []
    adapters[0]["attention"].register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        adapters[0]["attention"].up.weight.zero_()
    assert torch.equal(states(encoder), states(base))
    assert len(calls) == 2 * (base.layers - 1)


def test_adapter_tuning_changes_adapters_and_layer_norms_only(tiny_encoder: Encoder, span_task: Task) -> None:
    tuned = tune(tiny_encoder, span_task, method="adapters:size=4", **SETTINGS)
    before, after = weights(tiny_encoder), weights(tuned)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {key for key in before if "LayerNorm" in key}
    assert tuned.delta is not None
    added = {key for key in after if key.startswith("bottlenecks.")}
    assert set(tuned.delta.names) == changed | added
    assert len(added) == 2 * 2 * 4


@pytest.mark.parametrize(
    ("norms", "expected"), [("false", 0), ("layers", 8), ("true", 10)], ids=["none", "in layers", "all"]
)
def test_norms_option_selects_the_trained_layer_norms(tiny_encoder: Encoder, norms: str, expected: int) -> None:
    model = tiny_encoder.copy().model
    prepare(model, f"adapters:norms={norms}", needs_pooler=True)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert len([name for name in names if "LayerNorm" in name]) == expected
    assert not any("pooler" in name for name in names)


def test_interrupted_tuning_with_shared_adapters_resumes_to_the_same_weights(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertvision.training.tuner import Tuner

    settings = {**SETTINGS, "epochs": 2, "method": "adapters:size=4,share=2"}
    whole = tune(tiny_encoder, label_task, **settings)
    real, interruptions = Tuner.step, [3]

    def interrupted_step(self: Tuner, batch: Any) -> None:
        if self.steps_done in interruptions:
            interruptions.remove(self.steps_done)
            raise KeyboardInterrupt
        real(self, batch)

    monkeypatch.setattr(Tuner, "step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        tune(tiny_encoder, label_task, saved=tmp_path / "state", save_minutes=0, **settings)
    resumed = tune(tiny_encoder, label_task, saved=tmp_path / "state", save_minutes=0, **settings)
    expected, got = weights(whole), weights(resumed)
    assert all(torch.equal(expected[key], got[key]) for key in expected)


def test_accumulation_and_checkpointing_give_the_same_weights(tiny_encoder: Encoder, label_task: Task) -> None:
    settings = {**SETTINGS, "lr": 1e-3, "method": "adapters:size=4,share=layer"}
    plain = weights(tune(tiny_encoder, label_task, **settings))
    for option in ({"accumulate": 3}, {"checkpointing": True}):
        got = weights(tune(tiny_encoder, label_task, **settings, **option))
        for key, value in plain.items():
            torch.testing.assert_close(got[key], value, rtol=0, atol=1e-4)


def test_tuning_again_continues_with_existing_adapters(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    method = "adapters:size=4,norms=false"
    tune(tiny_encoder, label_task, method=method, **SETTINGS).save_pretrained(tmp_path / "one")
    first = load_encoder(str(tmp_path / "one"))
    second = tune(first, label_task, method=method, **SETTINGS)
    assert second.delta == first.delta
    same = tune(first, label_task, epochs=0)
    assert same.delta == first.delta
    assert all(torch.equal(a, b) for a, b in zip(weights(same).values(), weights(first).values(), strict=True))
    biases = tune(first, label_task, method="bitfit", **SETTINGS)
    assert biases.delta is not None
    assert first.delta is not None
    assert set(biases.delta.names) > set(first.delta.names)
    layered = tune(tiny_encoder, label_task, method="adapters:size=4,share=layer", **SETTINGS)
    assert tune(layered, label_task, method="adapters:size=4,share=1", **SETTINGS).delta == layered.delta, (
        "share=1 equals share=layer"
    )
    with pytest.raises(BadInput, match=r"contains adapters:size=4,share=none, so adapters:size=8.* cannot be added"):
        tune(first, label_task, method="adapters:size=8", **SETTINGS)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("adapters:size=0", "size: got 0, expected a whole number of at least 1"),
        ("adapters:norms=some", "norms: got 'some', expected true or false or layers"),
        ("adapters:unfreeze=3", "this encoder has 2 layers; expected 0 to 2"),
        ("adapters:head=cnn", "head: got 'cnn', expected linear or tanh"),
        ("adapters:share=some", "expected none, layer, all"),
        ("adapters:siz=3", "Did you mean 'size'"),
        ("lora:r=0", "r: got 0, expected a whole number of at least 1"),
        ("lora:dropout=1", "dropout: got 1, expected a number of at least 0 and at most 0.9"),
        ("adapters:unfreeze=1_0", "unfreeze: got '1_0', expected a whole number of at least 0 or all"),
        ("bitfit:k=1", "bitfit takes no options; remove k"),
        ("freeze", "freeze needs k, e.g. freeze:k=6"),
        ("freeze:6", "'6' is not key=value, e.g. adapters:size=64"),
        ("adapters:share=0+1+2", "has groups for 3 layers, this encoder has 2; use 2 groups, or none"),
    ],
)
def test_invalid_method_error_names_the_option(
    tiny_encoder: Encoder, label_task: Task, method: str, reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        tune(tiny_encoder, label_task, method=method, **SETTINGS)


def test_head_tanh_tunes_with_the_tanh_head(tiny_encoder: Encoder, label_task: Task) -> None:
    tuned = tune(tiny_encoder, label_task, method="adapters:size=4,head=tanh", **SETTINGS)
    assert tuned.own is not None
    assert tuned.own.spec == "tanh:read=pooled"
    with pytest.raises(BadInput, match=r"remove head=tanh or --tune-head probe"):
        tune(tiny_encoder, label_task, method="adapters:head=tanh", head="probe", **SETTINGS)


def test_learning_rate_and_epochs_default_to_those_of_the_papers(tiny_encoder: Encoder, label_task: Task) -> None:
    method = "adapters:size=64"
    assert recipe_defaults("mrpc", method)["tune"] == {"bert_lr": 2e-5, "batch": 32, "lr": 3e-4, "epochs": 10.0}
    assert recipe_defaults("text", method)["tune"] == {"lr": 1e-4, "epochs": 50.0}
    assert recipe_defaults("squad2", method)["tune"] == {"lr": 3e-4, "epochs": 3.0}
    assert recipe_defaults("text")["tune"] == {}
    for unfreeze in ("all", "1"):
        whole = f"{method},unfreeze={unfreeze}"
        assert recipe_defaults("squad2", whole) == recipe_defaults("squad2", "full"), "pretrained weights are trained"
    assert recipe_defaults("squad2", f"{method},unfreeze=0") == recipe_defaults("squad2", method)
    assert recipe_defaults("text", "lora")["tune"] == recipe_defaults("squad2", "bitfit")["tune"] == {"epochs": 3.0}
    few = replace(label_task, splits={**label_task.splits, "train": label_task["train"][:2]})
    record = tune(tiny_encoder, few, method="adapters:size=2").record["tune"]
    assert (record["lr"], record["epochs"], record["warmup"], record["decay"]) == (1e-4, 50.0, 0.1, "linear")
    assert tune(tiny_encoder, few, method="adapters:size=2", epochs=1, lr=0.5).record["tune"]["lr"] == 0.5
    assert tune(tiny_encoder, few, method="bitfit").record["tune"]["lr"] == 3e-3
    rates = [choose_lr(TuneConfig(method=name), width) for name in ("bitfit", "lora") for width in (768, 384)]
    assert rates == [9.8e-4, 3e-3, 4.9e-4, 1.5e-3], "Ben Zaken's and Hu's at BERT's width"
    glue = replace(label_task, name="mrpc")
    assert resolve_config(TuneConfig(method=method), tiny_encoder, glue).lr == 3e-4, (
        "also where a whole config is given"
    )


def test_disabled_adapters_add_nothing(tiny_encoder: Encoder, label_task: Task, states: States) -> None:
    method = "adapters:size=4,share=all,norms=false"
    tuned = tune(tiny_encoder, label_task, method=method, **SETTINGS)
    enabled, plain = states(tuned), states(tiny_encoder)
    with disabled_adapters(tuned.model, 1, 2):
        assert torch.equal(states(tuned), plain)
    with disabled_adapters(tuned.model, 2, 2):
        upper = states(tuned)
    with disabled_adapters(tuned.model, 1, 1):
        lower = states(tuned)
    assert torch.equal(upper[:, :2], enabled[:, :2])
    assert torch.equal(lower[:, 1], plain[:, 1])
    assert not torch.equal(upper[:, 2], enabled[:, 2])
    assert not torch.equal(lower[:, 2], plain[:, 2])
    assert torch.equal(states(tuned), enabled)
    with (
        pytest.raises(BadInput, match="has no adapters to disable"),
        disabled_adapters(tiny_encoder.model, 1, 1),
    ):
        pass
