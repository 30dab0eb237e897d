"""Which adapters are one: the words, any map, and what makes no sense."""

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


def groups_by_words(share: Any, layers: int) -> dict[tuple[int, str], Any]:
    """What the words mean, said another way."""
    rules = {
        "none": lambda layer, site: (layer, site),
        "layer": lambda layer, _: layer,
        "all": lambda *_: 0,
    }
    rule = rules.get(share, lambda layer, _: layer // int(share) if isinstance(share, int) else None)
    return {(layer, site): rule(layer, site) for layer in range(layers) for site in ADAPTER_POSITIONS}


@given(st.sampled_from(["none", "layer", "all"]) | st.integers(1, 30), st.integers(1, 24))
def test_words_share_as_they_say(share: Any, layers: int) -> None:
    found, expected = sharing_groups(share, layers), groups_by_words(share, layers)
    assert set(found) == set(expected)
    for one in found:
        for other in found:
            assert (found[one] == found[other]) == (expected[one] == expected[other])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12), st.integers(1, 12))
def test_any_map_can_be_written_and_read_and_cut(pairs: list[tuple[int, int]], depth: int) -> None:
    text = "+".join(f"{a}-{b}" for a, b in pairs)
    found = sharing_groups(text, len(pairs))
    written = "+".join("-".join(str(found[layer, site]) for site in ADAPTER_POSITIONS) for layer in range(len(pairs)))
    assert sharing_groups(written, len(pairs)) == found
    flat = [group for pair in pairs for group in pair]
    told = [found[layer, site] for layer in range(len(pairs)) for site in ADAPTER_POSITIONS]
    assert [a == b for a in flat for b in flat] == [a == b for a in told for b in told]
    assert set(told) == set(range(len(set(flat))))
    depth = min(depth, len(pairs))
    lower = {place: group for place, group in found.items() if place[0] < depth}
    assert sharing_groups(truncate_share(text, depth), depth) == lower
    plain = "+".join(str(a) for a, _ in pairs)  # one group a layer, written short
    lowest = {place: group for place, group in sharing_groups(plain, len(pairs)).items() if place[0] < depth}
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
def test_maps_that_make_no_sense_are_named(share: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        sharing_groups(share, 2)


@pytest.mark.parametrize("share", ["none", "layer", "all", "2", "0-1+0-2", "0+0"])
def test_shared_places_hold_one_module_and_fingerprints_tell_maps_apart(tiny_encoder: Encoder, share: str) -> None:
    encoder = tiny_encoder.copy()
    torch.manual_seed(0)
    inject(encoder.model, f"adapters:size=3,share={share}")
    adapters = adapters_of(encoder.model)
    assert adapters is not None
    groups = sharing_groups(int(share) if share.isdigit() else share, 2)
    for one, group in groups.items():
        for other, second in groups.items():
            same = adapters[one[0]][one[1]] is adapters[other[0]][other[1]]
            assert same == (group == second)
    assert encoder_hash(encoder) != encoder_hash(tiny_encoder)
