"""Delta weights: tied to their base, several on one base, in models, truncated, and from peft."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertvision.cli.main import main
from bertvision.core.errors import BadInput
from bertvision.core.files import folder_bytes
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.encoders.partial import truncate_encoder
from bertvision.model import Model
from bertvision.tasks.task import Task
from bertvision.training.extract import extract
from bertvision.training.inputs import encoder_hash
from bertvision.training.tune import tune
from bertvision.training.tune_from_store import tune_from_store

States = Callable[[Encoder], torch.Tensor]

SETTINGS: dict[str, Any] = {"epochs": 0.4, "lr": 1e-2, "batch": 5}


def test_loading_onto_another_base_is_refused(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, states: States, tmp_path: Path
) -> None:
    tuned = tune(tiny_encoder, label_task, method="adapters:size=4", **SETTINGS)
    tuned.save_pretrained(tmp_path / "small")
    with pytest.raises(BadInput, match=r"belongs to another base: .*pass the encoder that it was tuned from"):
        load_encoder(str(tmp_path / "small"), base=label_encoder)
    cased = load_encoder(str(tiny_encoder.source))
    cased.tokenizer.backend_tokenizer.normalizer = None  # the same weights with another tokenisation
    with pytest.raises(BadInput, match=r"belongs to another base: .* with tokenizer .*pass the encoder"):
        load_encoder(str(tmp_path / "small"), base=cased)
    loaded = load_encoder(str(tmp_path / "small"), base=tiny_encoder)
    assert torch.equal(states(loaded), states(tuned))
    with pytest.raises(BadInput, match=r"base: encoder .* has no base"):
        load_encoder(str(tiny_encoder.source), base=tiny_encoder)


def test_missing_or_unsaved_base_is_an_error(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    unsaved = tune(label_encoder, label_task, method="adapters:size=4", **SETTINGS)
    with pytest.raises(BadInput, match=r"was tuned and has not been saved; save it with save_pretrained"):
        unsaved.save_pretrained(tmp_path / "no")
    label_encoder.save_pretrained(tmp_path / "base")
    tuned = tune(load_encoder(str(tmp_path / "base")), label_task, method="bitfit", **SETTINGS)
    tuned.save_pretrained(tmp_path / "small")
    with pytest.raises(
        BadInput, match=r"base contains the base of this encoder and cannot be overwritten; choose another"
    ):
        tuned.save_pretrained(tmp_path / "base")
    (tmp_path / "base").rename(tmp_path / "moved")
    message = (
        r"small stores only weight differences, and its base encoder was not found: no encoder.*or --base to predict"
    )
    with pytest.raises(BadInput, match=message):
        load_encoder(str(tmp_path / "small"))
    load_encoder(str(tmp_path / "small"), base=str(tmp_path / "moved"))


def test_predict_base_option_replaces_a_base_that_was_moved(
    label_encoder: Encoder, label_task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label_encoder.save_pretrained(tmp_path / "base")
    tuned = tune(load_encoder(str(tmp_path / "base")), label_task, method="adapters:size=4", **SETTINGS)
    Model(tuned, "encoder", label_task).save_pretrained(tmp_path / "model")
    (tmp_path / "base").rename(tmp_path / "moved")
    command = ["predict", str(tmp_path / "model"), "--text", label_task["dev"][0].text, "--json"]
    assert main(command) == 2
    assert "stores only weight differences, and its base encoder was not found" in capsys.readouterr().err
    assert main([*command, "--base", str(tmp_path / "moved")]) == 0
    assert "label" in capsys.readouterr().out


def test_loading_lora_does_not_freeze_the_shared_base(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="LoRA needs the extra peft")
    tune(tiny_encoder, label_task, method="lora:r=2", **SETTINGS).save_pretrained(tmp_path)
    before = [parameter.requires_grad for parameter in tiny_encoder.model.parameters()]
    load_encoder(str(tmp_path), base=tiny_encoder)
    assert [parameter.requires_grad for parameter in tiny_encoder.model.parameters()] == before
    assert any(before)


def test_saving_over_another_encoder_leaves_none_of_its_files(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, states: States, tmp_path: Path
) -> None:
    """Full and delta encoders have different files, and none of the other form may be left."""
    small = tune(tiny_encoder, label_task, method="adapters:size=4", **SETTINGS)
    for encoder in (label_encoder, small, label_encoder):
        encoder.save_pretrained(tmp_path / "one")
        assert (tmp_path / "one" / "model.safetensors").exists() == (encoder.delta is None)
        assert (tmp_path / "one" / "small.safetensors").exists() == (encoder.delta is not None)
        assert torch.equal(states(load_encoder(str(tmp_path / "one"))), states(encoder))


def test_weights_that_do_not_match_the_record_are_refused(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    tune(tiny_encoder, label_task, method="adapters:size=4", **SETTINGS).save_pretrained(tmp_path)
    record = (tmp_path / "bertvision.json").read_text(encoding="utf-8")
    (tmp_path / "bertvision.json").write_text(record.replace("adapters:size=4,share", "adapters:size=5,share"))
    with pytest.raises(BadInput, match=r"the weights of 'bottlenecks.* do not match its bertvision.json"):
        load_encoder(str(tmp_path))
    (tmp_path / "bertvision.json").write_text(record)
    (tmp_path / "small.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"small\.safetensors cannot be read"):
        load_encoder(str(tmp_path))


def test_several_delta_encoders_share_one_base(
    tiny_encoder: Encoder, label_task: Task, span_task: Task, states: States, tmp_path: Path
) -> None:
    made = {}
    for name, task, method in (
        ("labels", label_task, "adapters:size=4"),
        ("spans", span_task, "adapters:size=3,share=all"),
        ("biases", label_task, "bitfit"),
    ):
        tuned = tune(tiny_encoder, task, method=method, **SETTINGS)
        tuned.save_pretrained(tmp_path / name)
        made[name] = states(tuned)
    plain = states(tiny_encoder)
    loaded = {name: load_encoder(str(tmp_path / name), base=tiny_encoder) for name in made}
    for name in ("labels", "spans", "biases", "labels"):
        assert torch.equal(states(loaded[name]), made[name])
        assert torch.equal(states(tiny_encoder), plain)
        table = loaded[name].model.embeddings.word_embeddings.weight
        assert table is tiny_encoder.model.embeddings.word_embeddings.weight


def test_upper_layers_above_adapters_are_tuned_from_stored_states(
    tiny_encoder: Encoder, label_task: Task, states: States, tmp_path: Path
) -> None:
    tune(tiny_encoder, label_task, method="adapters:size=4", **SETTINGS).save_pretrained(tmp_path / "one")
    adapted = load_encoder(str(tmp_path / "one"))
    tuned = tune_from_store(adapted, label_task, tmp_path / "store", method="freeze:k=1", **SETTINGS)
    tuned.save_pretrained(tmp_path / "two")
    loaded_states = states(load_encoder(str(tmp_path / "two")))
    assert torch.equal(loaded_states, states(tuned))
    assert torch.equal(loaded_states[:, :2], states(adapted)[:, :2])
    assert not torch.allclose(loaded_states[:, 2], states(adapted)[:, 2])


def test_model_with_adapters_is_small_and_gives_the_same_outputs_after_loading(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path
) -> None:
    tuned = tune(tiny_encoder, label_task, method="adapters:size=4", **{**SETTINGS, "epochs": 3})
    store = extract(tuned, label_task, tmp_path / "store", dtype="f32")
    assert store.manifest["fingerprint"]["encoder"] == encoder_hash(tuned)
    model = Model(tuned, "encoder", label_task)
    model.save_pretrained(tmp_path / "model")
    assert folder_bytes(tmp_path / "model" / "encoder") < folder_bytes(Path(str(tiny_encoder.source))) / 2
    loaded = Model.from_pretrained(tmp_path / "model")
    expected, got = model.outputs(label_task["dev"])[0], loaded.outputs(label_task["dev"])[0]
    assert all((a == b).all() for a, b in zip(expected, got, strict=True))
    with pytest.raises(BadInput, match="was made from other inputs: encoder is"):
        extract(tiny_encoder, label_task, tmp_path / "store", dtype="f32")


@pytest.mark.parametrize(
    "method", ["adapters:size=4,share=0-1+1-2", "adapters:size=4,share=none", "lora:r=2", "bitfit"]
)
def test_truncated_adapted_encoder_is_saved_as_delta_weights(
    tiny_encoder: Encoder, label_task: Task, states: States, tmp_path: Path, method: str
) -> None:
    whole = tune(tiny_encoder, label_task, method=method, **SETTINGS)
    short = truncate_encoder(whole, 1)
    short.save_pretrained(tmp_path)
    loaded = load_encoder(str(tmp_path))
    assert loaded.layers == 2
    assert torch.equal(states(loaded), states(whole)[:, :2])
    assert encoder_hash(loaded) == encoder_hash(short)


def test_lora_gives_the_states_of_a_peft_model(
    tiny_encoder: Encoder, label_task: Task, states: States, tmp_path: Path
) -> None:
    """The same weights in a model that peft made, and in a peft folder that is merged when loaded."""
    peft = pytest.importorskip("peft", reason="LoRA needs the extra peft")
    tuned = tune(tiny_encoder, label_task, method="lora:r=2,alpha=8,dropout=0", **SETTINGS)
    config = peft.LoraConfig(
        r=2, lora_alpha=8, target_modules=["query", "value"], base_model_name_or_path=tiny_encoder.source
    )
    theirs = peft.get_peft_model(tiny_encoder.copy().model, config)
    ours = {name: value for name, value in tuned.model.named_parameters() if ".lora_" in name}
    with torch.no_grad():
        for name, parameter in theirs.base_model.model.named_parameters():
            if ".lora_" in name:
                parameter.copy_(ours[name])
    as_encoder = replace(tiny_encoder, model=theirs.base_model.model)
    assert torch.equal(states(as_encoder), states(tuned))
    theirs.peft_config["default"].base_model_name_or_path = tiny_encoder.source
    theirs.save_pretrained(tmp_path / "peft")
    read = load_encoder(str(tmp_path / "peft"))
    torch.testing.assert_close(states(read), states(tuned), atol=1e-5, rtol=1e-5)
    read.save_pretrained(tmp_path / "whole")
    assert torch.equal(states(load_encoder(str(tmp_path / "whole"))), states(read))
    store = extract(read, label_task, tmp_path / "store")
    assert store.shape.layers == 3


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForQuestionAnswering"])
def test_peft_folder_of_a_task_model_is_loaded(
    kind: str, tiny_encoder: Encoder, states: States, tmp_path: Path
) -> None:
    """Its weights are named after the task model, whose head is not loaded; another depth is refused."""
    peft = pytest.importorskip("peft", reason="LoRA needs the extra peft")
    model = getattr(transformers, kind)(tiny_encoder.model.config)
    missing = model.bert.load_state_dict(tiny_encoder.model.state_dict(), strict=False)
    assert not missing.missing_keys
    config = peft.LoraConfig(r=2, task_type="SEQ_CLS" if "Sequence" in kind else "QUESTION_ANS")
    theirs = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if ".lora_B" in name:
                parameter.add_(torch.arange(parameter.numel()).reshape(parameter.shape) / parameter.numel())
    theirs.peft_config["default"].base_model_name_or_path = tiny_encoder.source
    theirs.save_pretrained(tmp_path / "peft")
    read = load_encoder(str(tmp_path / "peft"))
    adapted = replace(tiny_encoder, model=theirs.merge_and_unload().bert.eval())
    assert not torch.allclose(states(read), states(tiny_encoder), atol=1e-3)
    torch.testing.assert_close(states(read), states(adapted), atol=1e-5, rtol=1e-5)
    with pytest.raises(BadInput, match="do not fit BertModel"):
        load_encoder(str(tmp_path / "peft"), base=truncate_encoder(tiny_encoder, 1))


def test_lora_without_peft_names_the_extra_to_install(
    tiny_encoder: Encoder, label_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(BadInput, match=r"peft is not installed; this needs it: pip install -e '\.\[peft\]'"):
        tune(tiny_encoder, label_task, method="lora:r=2", **SETTINGS)
