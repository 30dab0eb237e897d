"""Shared adapters: keywords, explicit maps and invalid settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.encoders.adapters import ADAPTER_POSITIONS, adapters_of, sharing_groups, truncate_share
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import inject
from bertvision.training.inputs import encoder_hash

States = Callable[[Encoder], torch.Tensor]
Families = dict[str, tuple[Path, Any]]

SETTINGS: dict[str, Any] = {"epochs": 0.4, "lr": 1e-2, "batch": 5}


def expected_groups(share: Any, layers: int) -> dict[tuple[int, str], Any]:
    """The groups of every keyword, computed another way."""
    rules = {
        "none": lambda layer, position: (layer, position),
        "layer": lambda layer, _: layer,
        "all": lambda *_: 0,
    }
    rule = rules.get(share, lambda layer, _: layer // int(share) if isinstance(share, int) else None)
    return {(layer, position): rule(layer, position) for layer in range(layers) for position in ADAPTER_POSITIONS}


@given(st.sampled_from(["none", "layer", "all"]) | st.integers(1, 30), st.integers(1, 24))
def test_sharing_keywords_group_the_documented_positions(share: Any, layers: int) -> None:
    groups, expected = sharing_groups(share, layers), expected_groups(share, layers)
    assert set(groups) == set(expected)
    for first in groups:
        for second in groups:
            assert (groups[first] == groups[second]) == (expected[first] == expected[second])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12), st.integers(1, 12))
def test_sharing_map_round_trips_and_is_truncated(pairs: list[tuple[int, int]], depth: int) -> None:
    text = "+".join(f"{a}-{b}" for a, b in pairs)
    groups = sharing_groups(text, len(pairs))
    written = "+".join(
        "-".join(str(groups[layer, position]) for position in ADAPTER_POSITIONS) for layer in range(len(pairs))
    )
    assert sharing_groups(written, len(pairs)) == groups
    flat = [group for pair in pairs for group in pair]
    assigned = [groups[layer, position] for layer in range(len(pairs)) for position in ADAPTER_POSITIONS]
    assert [a == b for a in flat for b in flat] == [a == b for a in assigned for b in assigned]
    assert set(assigned) == set(range(len(set(flat))))
    depth = min(depth, len(pairs))
    lower = {key: group for key, group in groups.items() if key[0] < depth}
    assert sharing_groups(truncate_share(text, depth), depth) == lower
    plain = "+".join(str(a) for a, _ in pairs)  # one group per layer, in short form
    lowest = {key: group for key, group in sharing_groups(plain, len(pairs)).items() if key[0] < depth}
    assert sharing_groups(truncate_share(plain, depth), depth) == lowest


@pytest.mark.parametrize(
    ("share", "reason"),
    [
        ("sum", "expected none, layer, all"),
        (0, "expected none, layer, all"),
        (0.5, "expected none, layer, all"),
        (True, "expected none, layer, all"),
        ("0+1+", "expected none, layer, all"),
        ("0+1+2", "has groups for 3 layers, this encoder has 2"),
    ],
)
def test_invalid_sharing_is_an_error(share: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        sharing_groups(share, 2)


@pytest.mark.parametrize("share", ["none", "layer", "all", "2", "0-1+0-2", "0+0"])
def test_shared_positions_hold_one_module_and_change_the_encoder_hash(tiny_encoder: Encoder, share: str) -> None:
    encoder = tiny_encoder.copy()
    torch.manual_seed(0)
    inject(encoder.model, f"adapters:size=3,share={share}")
    adapters = adapters_of(encoder.model)
    assert adapters is not None
    groups = sharing_groups(int(share) if share.isdigit() else share, 2)
    for key, group in groups.items():
        for other_key, other_group in groups.items():
            shared = adapters[key[0]][key[1]] is adapters[other_key[0]][other_key[1]]
            assert shared == (group == other_group)
    assert encoder_hash(encoder) != encoder_hash(tiny_encoder)
