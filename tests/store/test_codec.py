"""Codecs: stored values are finite, small and as accurate as their data type allows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertvision.core.errors import BadInput
from bertvision.store.codec import (
    channel_statistics,
    check_finite,
    decode_layer,
    decode_states,
    make_codec,
    state_bytes,
    storage_dtype,
)

STATES = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 9), st.just(2), st.just(5)), elements=st.floats(-1000, 1000, width=32)
)


def round_trip(states: torch.Tensor, dtype: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """States (tokens, layers, width) encoded and decoded, and the stored tensors."""
    codec = make_codec(dtype, channel_statistics([states]) if dtype == "int8" else {})
    stored = codec.buffers(*states.shape)
    for layer in range(states.shape[1]):
        codec.encode(stored, layer, states[:, layer])
    shard = {**stored, **codec.statistics()}
    decoded = decode_states(shard, torch.arange(len(states)))
    for layer in range(states.shape[1]):
        assert torch.equal(decode_layer(shard, slice(0, len(states)), layer), decoded[:, layer])
    return decoded, shard


def test_storage_dtype_maps_names_and_rejects_unknown_ones() -> None:
    assert [storage_dtype(name) for name in ("f32", "f16", "int8")] == [torch.float32, torch.float16, torch.int8]
    with pytest.raises(BadInput, match=r"extract.dtype is 'f8'; expected f32, f16 or int8"):
        storage_dtype("f8")


@given(STATES)
def test_f32_is_exact_and_f16_rounds(states: np.ndarray) -> None:
    exact = torch.from_numpy(states)
    assert torch.equal(round_trip(exact, "f32")[0], exact)
    assert torch.equal(round_trip(exact, "f16")[0], exact.half().float())


@given(STATES)
def test_int8_error_is_at_most_half_a_quantisation_step(states: np.ndarray) -> None:
    exact = torch.from_numpy(states)
    decoded, shard = round_trip(exact, "int8")
    step = shard["scales"].float()[..., None] * shard["spread"]  # (tokens, layers, width)
    # A scale is rounded to f16 too: the largest of 127 steps suffers most, and below the smallest f16 it is 0.
    slack = 1e-3 * exact.abs() + 1e-3 + 127 * 6e-8 * shard["spread"]
    assert bool(((decoded - exact).abs() <= 0.51 * step + slack).all())
    assert int(shard["hidden"].abs().max()) <= 127


def test_int8_outlier_channel_does_not_degrade_the_others() -> None:
    """Trained BERTs have channels tens of times larger than the rest."""
    states = torch.randn(400, 3, 64, generator=torch.Generator().manual_seed(0))
    states[:, :, 7] = 40 + 5 * states[:, :, 7]
    decoded, _ = round_trip(states, "int8")
    others = [channel for channel in range(64) if channel != 7]
    error = (decoded - states)[:, :, others].norm() / states[:, :, others].norm()
    assert float(error) < 0.01


def test_int8_is_exact_for_constant_channels() -> None:
    states = torch.ones(4, 1, 3)
    assert torch.equal(round_trip(states, "int8")[0], states)


def test_state_bytes_per_dtype() -> None:
    assert [state_bytes(name, 384) for name in ("f32", "f16", "int8")] == [1536, 768, 386]
    for width in (384, 768, 1024):
        assert state_bytes("int8", width) / state_bytes("f16", width) <= 0.505


@pytest.mark.parametrize("dtype", ["f16", "int8"])
@pytest.mark.parametrize("bad", [1e9, float("nan"), float("-inf")])
def test_check_finite_rejects_overflow_and_nan(dtype: str, bad: float) -> None:
    states = torch.zeros(3, 1, 2)
    states[1, 0, 1] = bad
    codec = make_codec(dtype, {"mean": torch.zeros(1, 2), "spread": torch.ones(1, 2)})
    stored = codec.buffers(3, 1, 2)
    codec.encode(stored, 0, states[:, 0])
    with pytest.raises(BadInput, match=rf"not finite in {dtype}.*--dtype f32"):
        check_finite(stored, dtype)


def test_check_finite_accepts_the_largest_f16_number() -> None:
    check_finite({"hidden": torch.tensor([65504.0, -65504.0]).half()}, "f16")
    with pytest.raises(BadInput, match=r"not finite in f32.*tune it again"):
        check_finite({"hidden": torch.tensor([float("nan")])}, "f32")
