"""Search choices of every head: options that exist, values that can be built and include the default."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.core.registry import Spec
from bertvision.heads.base import HEADS, build_head, head_options
from bertvision.workflows.search.space import (
    FeatureInfo,
    build_space,
    expand_head_names,
    make_choice,
    make_range,
    parse_space,
)

SEARCH = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="needs the extra search")

SHAPE = Shape(layers=13, width=768, tokens=128, outputs=2, kind="classify")


@pytest.mark.parametrize("name", list(HEADS))
def test_choices_of_every_head_can_be_built_and_include_the_default(name: str) -> None:
    options = head_options(name)
    for key, values in HEADS[name].choices.items():
        assert options[key] in values
        assert len(set(values)) == len(values) > 1
        for value in values:
            with torch.device("meta"):
                build_head(Spec(name, {key: value}), SHAPE)


@SEARCH
def test_space_skips_options_fixed_in_the_spec_and_values_that_do_not_fit() -> None:
    tiny = Shape(layers=3, width=16, tokens=8, outputs=2, kind="span")
    features = FeatureInfo(tiny, pooled=False)
    space = build_space(["compress:skip=true", "probe"], features, ["compress.size=2..9", "fit.batch=8|16"])
    first = space.heads["compress:skip=true"]
    assert first["size"] == make_range(2, 9)
    assert "skip" not in first
    assert first["layers"] == make_choice(("all", "last1", "last2", "every2"))
    assert set(space.heads["probe"]) == {"layers"}  # options that read one vector do not apply to spans
    assert space.fit["batch"] == make_choice((8, 16))
    labels = build_space(["probe"], FeatureInfo(SHAPE))
    assert set(labels.heads["probe"]) == {"layers", "read", "pooled"}
    assert make_range(1e-4, 1e-2).log
    assert not make_range(0.0, 1.0).log


@SEARCH
def test_space_for_cls_only_states_offers_read_cls_only() -> None:
    space = build_space(["probe"], FeatureInfo(SHAPE, tokens="cls"))
    assert space.heads["probe"]["read"] == make_choice(("cls",))
    with pytest.raises(BadInput, match=r"mean is not valid: .* these states are cls of each text"):
        build_space(["probe"], FeatureInfo(SHAPE, tokens="cls"), ["probe.read=cls|mean"])


@SEARCH
def test_quick_and_all_expand_to_heads_without_fixed_options() -> None:
    spans = FeatureInfo(replace(SHAPE, kind="span"))
    assert expand_head_names(["quick"], spans) == ("probe", "mean-pool", "learned-pool", "compress")
    assert expand_head_names(["quick"], FeatureInfo(SHAPE)) == ("compress",)
    whole = expand_head_names(["all", "compress:skip=true"], FeatureInfo(SHAPE))
    assert {"compress", "tanh", "compress:skip=true"} <= set(whole)
    assert set(build_space(whole, FeatureInfo(SHAPE)).heads) == set(whole)


@SEARCH
def test_solved_heads_are_not_searched() -> None:
    assert "ridge" not in expand_head_names(["all", "quick"], FeatureInfo(SHAPE))
    with pytest.raises(BadInput, match="head ridge:layers=last1 is solved for, there is nothing to search"):
        expand_head_names(["probe", "ridge:layers=last1"], FeatureInfo(SHAPE))


@SEARCH
def test_space_values_have_the_type_of_their_setting() -> None:
    space = build_space(["compress"], FeatureInfo(SHAPE), ["fit.lr=1|1.0|2", "compress.size=8|16|8"])
    assert [type(value) for value in space.fit["lr"].choices] == [float, float]
    assert space.heads["compress"]["size"] == make_choice((8, 16))


def test_space_errors_are_raised_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    (item,) = parse_space(["fit.lr=1e-4..1e-2"])
    assert (item.values, item.is_range) == ((1e-4, 1e-2), True)
    for word, why in (
        ("fit.lr=1..0.1", "two numbers, the smaller first"),
        ("fit.rate=1|2", "no setting named 'rate'"),
        ("fit.batch=0|32", "0 is not valid"),
        ("nothing.size=1|2", "no section named 'nothing'"),
        ("compress.width=1|2", "no option named 'width'"),
        ("compress.size=x|y", "x is not valid"),
        ("fit.lr=1e-4..1e-2", r"pip install -e '.\[search\]'"),
    ):
        with pytest.raises(BadInput, match=why):
            build_space(["compress"], FeatureInfo(SHAPE), [word])
