"""What a search tries of every head: options it has, values that can be built, the default among them."""

from __future__ import annotations

import pytest
import torch

from bertvision.heads.base import HEADS, build_head, head_options
from bertvision.records import Shape
from bertvision.registry import Spec
from bertvision.spaces import Choice, Range, space_of

SHAPE = Shape(layers=13, width=768, tokens=128, outputs=2, kind="classify")


@pytest.mark.parametrize("name", list(HEADS))
def test_every_choice_can_be_built(name: str) -> None:
    options = head_options(name)
    for key, values in HEADS[name].choices.items():
        assert options[key] in values
        assert len(set(values)) == len(values) > 1
        for value in values:
            with torch.device("meta"):
                build_head(Spec(name, {key: value}), SHAPE)


def test_a_space_leaves_out_what_is_fixed_and_what_does_not_fit() -> None:
    tiny = Shape(layers=3, width=16, tokens=8, outputs=2, kind="span")
    space = space_of(
        ["compress:skip=true", "probe"], tiny, pooled=False, typed=["compress.size=2..9", "fit.batch=8|16"]
    )
    first = space.heads["compress:skip=true"]
    assert first["size"] == Range(2, 9, whole=True)
    assert "skip" not in first
    assert first["layers"] == Choice(("all", "last1", "last2", "every2"))
    assert set(space.heads["probe"]) == {"layers"}  # spans read every token
    assert space.fit["batch"] == Choice((8, 16))
    labels = space_of(["probe"], SHAPE, pooled=True)
    assert set(labels.heads["probe"]) == {"layers", "read", "pooled"}
    assert Range(1e-4, 1e-2).log
    assert not Range(0.0, 1.0).log
