"""A shard file written in chunks equals that of safetensors, and its hash is that of its bytes."""

from __future__ import annotations

import hashlib
import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from bertvision.store import shard_file
from bertvision.store.shard_file import NAMES, write_hashed

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3)
TENSORS = st.dictionaries(
    st.text('abz_é"', min_size=1, max_size=4), st.tuples(st.sampled_from(list(NAMES)), SHAPES), min_size=1, max_size=5
)


@given(TENSORS)
def test_written_bytes_equal_those_of_safetensors(specs: dict[str, tuple[torch.dtype, list[int]]]) -> None:
    tensors = {
        name: torch.arange(torch.Size(shape).numel()).to(dtype).view(shape) for name, (dtype, shape) in specs.items()
    }
    file = io.BytesIO()
    digest = write_hashed(tensors, file)
    assert file.getvalue() == save(tensors)
    assert digest == hashlib.sha256(file.getvalue()).hexdigest()


def test_chunked_write_loads_as_the_same_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_file, "CHUNK", 7)
    file = io.BytesIO()
    states = torch.randn(11, 3, 5).half()
    write_hashed({"hidden": states}, file)
    assert torch.equal(load(file.getvalue())["hidden"], states)
