"""Loading encoders: every family gives all its states, and a missing pooler is dropped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertvision.core.errors import BadInput
from bertvision.core.records import Window
from bertvision.encoders.architectures import FAMILIES, family_of, layer_list
from bertvision.encoders.hidden_states import TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.encoders.partial import truncate_encoder, upper_layers
from bertvision.tasks.task import BadRows, Task
from bertvision.tasks.windows import make_windows
from bertvision.training.tune import tune

POSITIONS = 40
PADDED = ("roberta", "xlm-roberta", "camembert", "mpnet")
"""Families that count positions from behind their padding token, number 1, so that two rows of the table are lost."""
ROTARY = ("modernbert",)
"""Families without a table of positions that could run out."""

every_family = pytest.mark.parametrize("family", FAMILIES)


def tokens(lengths: tuple[int, ...] = (9, 5)) -> TokenBatch:
    ids = [
        np.array([2, *(10 + (7 * i + row) % 50 for i in range(n - 2)), 3], np.int32) for row, n in enumerate(lengths)
    ]
    windows = [
        Window(row, sequence, np.zeros(len(sequence), np.uint8), np.zeros((len(sequence), 2), np.int32), 0, (0.0,))
        for row, sequence in enumerate(ids)
    ]
    return collate(windows, 0, torch.device("cpu"))


@every_family
def test_every_family_gives_all_its_states(family: str, families: dict[str, tuple[Path, Any]]) -> None:
    encoder = load_encoder(str(families[family][0]))
    assert (encoder.layers, encoder.width) == (4, 16)
    batch = tokens()
    with torch.inference_mode():
        states = hidden_states(encoder.model, batch, range(4))
        expected = encoder.model(input_ids=batch.input_ids, attention_mask=batch.mask.long()).last_hidden_state
        selected = hidden_states(encoder.model, batch, (3, 1))
    assert [tuple(layer.shape) for layer in states.layers] == [(2, 9, 16)] * 4
    assert states.stacked().shape == (2, 9, 4, 16)
    torch.testing.assert_close(states.layers[-1][batch.mask], expected[batch.mask])
    assert all(not torch.allclose(a, b) for a, b in zip(states.layers, states.layers[1:], strict=False))
    assert torch.equal(selected.layers[0], states.layers[3])
    assert torch.equal(selected.layers[1], states.layers[1])


@every_family
def test_loaded_weights_equal_saved_ones(family: str, families: dict[str, tuple[Path, Any]]) -> None:
    folder, model = families[family]
    encoder = load_encoder(str(folder))
    saved, loaded = model.state_dict(), encoder.model.state_dict()
    assert set(loaded) == set(saved)
    assert all(torch.equal(loaded[key], saved[key]) for key in saved)
    assert encoder.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert not encoder.model.training
    assert encoder.has_pooler == FAMILIES[family].pooler


@every_family
def test_layers_are_at_the_path_of_the_family_table(family: str, families: dict[str, tuple[Path, Any]]) -> None:
    layers = families[family][1].get_submodule(FAMILIES[family].layers)
    assert len(layers) == (1 if family == "albert" else 3)  # ALBERT uses one layer repeatedly


@every_family
def test_padding_does_not_change_a_window(family: str, families: dict[str, tuple[Path, Any]]) -> None:
    encoder = load_encoder(str(families[family][0]))
    pad = encoder.model.config.pad_token_id
    both, short = tokens((9, 5)), tokens((4, 5))
    both.input_ids[~both.mask] = pad
    short.input_ids[~short.mask] = pad
    with torch.inference_mode():
        wide, narrow = (hidden_states(encoder.model, batch, range(4)).stacked()[1, :5] for batch in (both, short))
    torch.testing.assert_close(wide, narrow, atol=1e-4, rtol=1e-4)


@every_family
def test_longest_window_fits_and_a_longer_one_does_not(family: str, families: dict[str, tuple[Path, Any]]) -> None:
    encoder = load_encoder(str(families[family][0]))
    assert encoder.longest == POSITIONS - 2 * (family in PADDED)
    with torch.inference_mode():
        assert len(hidden_states(encoder.model, tokens((encoder.longest,)), range(4)).layers) == 4
        if family not in ROTARY:
            with pytest.raises((IndexError, RuntimeError)):
                hidden_states(encoder.model, tokens((encoder.longest + 1,)), range(4))


@pytest.mark.parametrize("family", [name for name, row in FAMILIES.items() if row.pooler])
def test_pooler_missing_from_the_checkpoint_is_dropped(
    family: str, families: dict[str, tuple[Path, Any]], tiny_encoder: Encoder, tmp_path: Path
) -> None:
    model = load_encoder(str(families[family][0])).model
    with torch.inference_mode():
        assert hidden_states(model, tokens(), (0,)).pooled is not None
    model.pooler = None
    model.save_pretrained(tmp_path)
    tiny_encoder.tokenizer.save_pretrained(tmp_path)
    for _ in range(2):  # and it stays dropped when saved and loaded again
        encoder = load_encoder(str(tmp_path))
        assert not encoder.has_pooler
        with torch.inference_mode():
            assert hidden_states(encoder.model, tokens(), (0,)).pooled is None
        encoder.save_pretrained(tmp_path)


@every_family
def test_every_family_can_be_tuned(family: str, families: dict[str, tuple[Path, Any]], label_task: Task) -> None:
    encoder = load_encoder(str(families[family][0]))
    tuned = tune(encoder, label_task, epochs=0.4, lr=1e-3, batch=12)
    assert tuned.own is not None
    assert tuned.own.spec == ("probe:read=pooled" if encoder.has_pooler else "probe:layers=last1")
    before, after = encoder.model.state_dict(), tuned.model.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)


@every_family
def test_windows_can_be_made_for_every_family(
    family: str, families: dict[str, tuple[Path, Any]], span_task: Task
) -> None:
    encoder = load_encoder(str(families[family][0]))
    windows = make_windows(span_task["dev"], encoder.tokenizer, "span", 32, 8, BadRows(False))
    assert {window.example for window in windows} == set(range(len(span_task["dev"])))
    assert {window.cls for window in windows} == {0}


def test_saved_and_loaded_encoder_is_the_same(span_encoder: Encoder, tmp_path: Path) -> None:
    span_encoder.save_pretrained(tmp_path)
    loaded = load_encoder(str(tmp_path))
    assert (loaded.name, loaded.record) == (span_encoder.name, span_encoder.record)
    assert loaded.own is not None
    assert span_encoder.own is not None
    assert (loaded.own.spec, loaded.own.shape) == (span_encoder.own.spec, span_encoder.own.shape)
    assert all(torch.equal(loaded.own.state[key], value) for key, value in span_encoder.own.state.items())
    with torch.inference_mode():
        expected, got = (
            hidden_states(encoder.model, tokens(), range(3)).stacked() for encoder in (span_encoder, loaded)
        )
    assert torch.equal(expected, got)
    plain = transformers.AutoModel.from_pretrained(tmp_path, local_files_only=True)
    assert torch.equal(plain.embeddings.word_embeddings.weight, loaded.model.embeddings.word_embeddings.weight)


def test_tuning_does_not_change_the_given_encoder(
    tiny_encoder: Encoder, tiny_encoder_folder: Path, span_encoder: Encoder
) -> None:
    fresh = load_encoder(str(tiny_encoder_folder)).model.state_dict()
    assert all(torch.equal(fresh[key], value) for key, value in tiny_encoder.model.state_dict().items())
    assert tiny_encoder.own is None
    assert any(not torch.equal(fresh[key], value) for key, value in span_encoder.model.state_dict().items())


def test_batch_is_padded_to_its_longest_window() -> None:
    batch = tokens((4, 7, 2))
    assert batch.input_ids.shape == batch.mask.shape == batch.token_types.shape == (3, 7)
    assert batch.mask.sum(1).tolist() == [4, 7, 2]
    assert (batch.input_ids[~batch.mask] == 0).all()


def test_encoder_that_cannot_be_loaded_is_an_error(tiny_encoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no encoder folder at \./nowhere; give a folder with config\.json, a Hub name"):
        load_encoder("./nowhere")
    with pytest.raises(BadInput, match=r"cannot load encoder no-such/encoder: .*or minilm"):
        load_encoder("no-such/encoder")
    with pytest.raises(BadInput, match="cannot load encoder"):
        load_encoder(str(tmp_path))
    shutil.copytree(tiny_encoder_folder, tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"not a tensor in sight")
    with pytest.raises(BadInput, match="cannot load encoder"):
        load_encoder(str(tmp_path / "broken"))


def test_unsupported_family_error_lists_the_supported_ones(tiny_encoder_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_encoder_folder, tmp_path / "gpt2")
    config = json.loads((tmp_path / "gpt2" / "config.json").read_text())
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    with pytest.raises(BadInput, match=r"has model type 'gpt2'; supported: albert, bert, .*xlm-roberta"):
        load_encoder(str(tmp_path / "gpt2"))
    assert family_of("bert", "x").layers == "encoder.layer"


def test_checkpoint_with_missing_weights_is_refused(tiny_encoder_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_encoder_folder, tmp_path / "less")
    config = json.loads((tmp_path / "less" / "config.json").read_text())
    (tmp_path / "less" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(BadInput, match=r"weights are missing: 'encoder\.layer\.2\..* and \d+ more"):
        load_encoder(str(tmp_path / "less"))


@every_family
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_truncated_encoder_gives_the_lower_states(
    family: str, families: dict[str, tuple[Path, Any]], depth: int, tmp_path: Path
) -> None:
    whole = load_encoder(str(families[family][0]))
    short = truncate_encoder(whole, depth)
    short.save_pretrained(tmp_path)
    batch = tokens()
    with torch.inference_mode():
        expected = hidden_states(whole.model, batch, range(4)).layers
        for encoder in (short, load_encoder(str(tmp_path))):
            assert encoder.layers == depth + 1
            states = hidden_states(encoder.model, batch, range(depth + 1)).layers
            assert all(torch.equal(a[batch.mask], b[batch.mask]) for a, b in zip(states, expected, strict=False))
    assert (short.parameters < whole.parameters) == (depth < 3 and (family != "albert" or whole.has_pooler))
    assert whole.layers == 4
    assert short.has_pooler == (whole.has_pooler and depth == 3)


def test_truncation_outside_of_the_encoder_is_refused(tiny_encoder: Encoder) -> None:
    for depth in (0, 3):
        with pytest.raises(BadInput, match=f"at layer {depth}: it has layers 1 to 2"):
            truncate_encoder(tiny_encoder, depth)


@every_family
@pytest.mark.parametrize("k", [0, 1, 2])
def test_upper_layers_alone_give_the_same_states_and_gradients(
    family: str, families: dict[str, tuple[Path, Any]], k: int
) -> None:
    if family == "albert":
        pytest.skip("ALBERT uses one layer repeatedly")
    model = load_encoder(str(families[family][0])).model
    batch = tokens()
    whole = hidden_states(model, batch, range(4)).layers
    gradient = _top_gradient(model, whole[-1][batch.mask].pow(3).sum())
    with upper_layers(model, k) as feed:
        feed.states = whole[k].detach()
        upper = hidden_states(model, batch, range(4 - k)).layers
        upper_gradient = _top_gradient(model, upper[-1][batch.mask].pow(3).sum())
    for j in range(1, 4 - k):
        assert torch.equal(upper[j][batch.mask], whole[k + j][batch.mask]), j
    assert torch.equal(gradient, upper_gradient)
    with torch.inference_mode():
        after = hidden_states(model, batch, range(4)).layers
    assert all(torch.equal(a[batch.mask], b[batch.mask]) for a, b in zip(after, whole, strict=True))


def _top_gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    """The gradient of the first matrix of the last layer."""
    model.zero_grad()
    loss.backward()
    gradient = next(p for p in layer_list(model)[-1].parameters() if p.ndim == 2).grad
    assert gradient is not None
    return gradient.clone()


def test_upper_layers_outside_of_the_encoder_are_refused(tiny_encoder: Encoder) -> None:
    with (
        pytest.raises(BadInput, match="cannot start at state 2: this encoder has layers 1 to 2"),
        upper_layers(tiny_encoder.copy().model, 2),
    ):
        pass


def test_encoder_repr_is_one_line(tiny_encoder: Encoder) -> None:
    expected = f"Encoder({tiny_encoder.name!r}, layers=3, width=16, parameters={tiny_encoder.parameters:,})"
    assert repr(tiny_encoder) == expected
