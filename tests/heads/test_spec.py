"""Head specs: grammar, canonical form and error messages."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.cli.options import expand_heads
from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import choose_layers, parse_spec
from bertvision.heads.base import HEADS, HeadModule, build_head, canonical_spec
from bertvision.heads.info import all_variants, compatible_heads
from bertvision.heads.quick import control_heads, quick_heads

SHAPE = Shape(layers=5, width=8, tokens=4, outputs=3, kind="classify")


@given(st.text(max_size=30))
def test_any_text_parses_or_raises_bad_input(text: str) -> None:
    with suppress(BadInput):
        assert str(parse_spec(str(parse_spec(text)))) == str(parse_spec(text))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("compres:size=64", "no head named 'compres'. Did you mean 'compress'? Known: "),
        ("learned-pool:sise=3", "head learned-pool:sise=3: no option named 'sise'. Known: layers, pooled, read"),
        ("compress:sise=3", "Did you mean 'size'? Known: layers, pooled, read, shared, size, skip"),
        ("compress:size=big", "head compress:size=big: size='big', expected int"),
        ("compress:size=6.5", "size=6.5, expected int"),
        ("compress:size=true", "size=True, expected int"),
        ("compress:skip=1", "skip=1, expected bool"),
        ("compress:skip=yes", "skip='yes', expected bool"),
        ("compress:read=3", "read=3, expected str"),
        ("compress:shape=3", "no option named 'shape'"),
        ("compress:self=3", "no option named 'self'"),
    ],
)
def test_unknown_head_option_or_type_error_says_what_is_expected(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        canonical_spec(spec)
    with pytest.raises(BadInput, match=re.escape(message)):
        build_head(spec, SHAPE)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "probe:read=sum",
            "head probe:read=sum: read=sum, expected pooled, or some of cls, mean, max, first_last, weighted",
        ),
        ("probe:read=pooled,pooled=true", "read=pooled already reads the pooled CLS; remove pooled="),
        ("probe:layers=last6", "layers=last6: there are 5 states, 0 to 4"),
        ("probe:layers=true", "there are 5 states, 0 to 4"),
        ("compress:size=0", "size=0, expected at least 1"),
        ("compress:size=-4,shared=false", "size=-4, expected at least 1"),
        ("pool-compress:pool=max", "pool=max, expected learned or mean"),
        ("pool-compress:size=0", "compress to 0 features: expected at least 1"),
        ("token-cnn:size=0", "size=0, expected at least 1"),
        ("token-cnn:pool=max", "pool=max, expected none, learned or mean"),
        ("token-cnn:compress=8", "compress=8 needs a pool; add pool=learned or pool=mean"),
        ("token-cnn:dropout=1.0", "dropout=1.0, expected 0 to below 1"),
        ("ngrams:longest=0", "size=64, longest=0, expected at least 1 each"),
        ("inception:size=24", "size=24, blocks=6; expected size a multiple of 16 and blocks at least 1"),
        ("text-xception:blocks=-1", "blocks=-1; expected size at least 1 and blocks at least 0"),
        ("xception", "head xception: states of width 8, expected at least 9"),
        ("flatten:size=0", "size=0, expected at least 1"),
        ("bilstm:size=0", "size=0, expected at least 1"),
        ("ladder:size=10", "size=10 with heads=4: expected a multiple of heads"),
        ("attention:heads=0", "size=64 with heads=0: expected a multiple of heads"),
        ("context-conv:maps=0", "size=64, maps=0, taps=3, expected at least 1 each"),
        ("select:strength=-0.1", "strength=-0.1, expected at least 0"),
    ],
)
def test_invalid_option_value_is_bad_input(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        build_head(spec, SHAPE)


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("compress", "compress:size=64"),
        ("compress:skip=false,size=64,shared=true", "compress:size=64"),
        ("compress:skip=true,shared=false,size=386", "compress:size=386,shared=false,skip=true"),
        ("learned-pool:layers=all,read=cls,pooled=false", "learned-pool"),
        ("learned-pool:pooled=true,read=mean,layers=last4", "learned-pool:layers=last4,read=mean,pooled=true"),
        (" mean-pool ", "mean-pool"),
        ("probe:layers=3", "probe:layers=3"),
        ("probe:layers=3+0+12", "probe:layers=0+3+12"),
        ("probe:layers=00+3", "probe:layers=0+3"),
    ],
)
def test_equivalent_specs_have_one_canonical_form(spec: str, canonical: str) -> None:
    assert canonical_spec(spec) == canonical
    assert canonical_spec(canonical) == canonical


def test_int_is_accepted_for_a_float_option(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dropped(HeadModule):
        def __init__(self, shape: Shape, rate: float = 1.0) -> None:
            super().__init__()

    list(HEADS)  # the registry is filled before it is changed
    monkeypatch.setitem(HEADS._entries, "dropped", Dropped)
    assert canonical_spec("dropped:rate=2") == canonical_spec("dropped:rate=2.0") == "dropped:rate=2.0"
    assert canonical_spec("dropped:rate=1") == "dropped"
    with pytest.raises(BadInput, match="rate='high', expected float"):
        canonical_spec("dropped:rate=high")


def test_words_expand_to_heads_for_the_task_and_the_encoder() -> None:
    spans = replace(SHAPE, kind="span")
    assert expand_heads(["control"], SHAPE) == ["ridge:layers=last1", "ridge:layers=last1,read=cls"]
    assert expand_heads(["control"], spans) == ["probe:layers=last1"]
    for tuned in (True, False):
        assert expand_heads(["quick"], SHAPE, tuned=tuned) == list(quick_heads(SHAPE.kind, tuned))
        assert expand_heads(["quick"], spans, tuned=tuned) == list(quick_heads("span", tuned))
    assert expand_heads(["quick"], SHAPE, tuned=True) != expand_heads(["quick"], SHAPE, tuned=False)
    for kind in get_args(Kind):
        assert quick_heads(kind, True)[: len(control_heads(kind))] == control_heads(kind)
        assert all(canonical_spec(spec) == spec for tuned in (True, False) for spec in quick_heads(kind, tuned, True))
    assert "compress:size=64,layers=last4,read=mean" not in expand_heads(
        ["quick"], replace(SHAPE, layers=3), tuned=False
    )
    assert expand_heads(["quick"], SHAPE, tokens="cls", tuned=True) == [
        "ridge:layers=last1,read=cls",
        "ridge:read=cls",
        "compress:size=64",
    ]


def test_words_stay_as_they_are_until_the_shape_is_known() -> None:
    assert expand_heads(["quick"]) == ["quick"]
    assert expand_heads(["compress", "quick", "compress:size=64"]) == ["compress:size=64", "quick"]
    assert expand_heads(["quick", "all", "control"]) == ["quick", "all", "control"]
    everything = expand_heads(["all"], SHAPE)
    assert expand_heads(["all", "quick"], SHAPE)[: len(everything)] == everything
    with pytest.raises(BadInput, match="Did you mean 'probe'"):
        expand_heads(["quick", "prob"])


def test_compatible_heads_are_those_that_fit_the_shape() -> None:
    labels = compatible_heads(replace(SHAPE, width=16))
    assert set(compatible_heads(replace(SHAPE, width=16, kind="span"))) < set(labels) <= set(all_variants())
    assert "xception:pooled=true" in labels
    assert "xception:pooled=true" not in compatible_heads(replace(SHAPE, width=16), pooled=False)
    assert "xception" not in compatible_heads(SHAPE)  # states of width 8 are too narrow for it
    assert "probe:layers=last4" not in compatible_heads(replace(SHAPE, layers=3))


counts = st.integers(1, 40)


@given(counts, st.data())
def test_layer_keywords_select_layers(count: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, count))
    assert choose_layers("all", count) == tuple(range(count))
    assert choose_layers(f"last{number}", count) == tuple(range(count))[-number:]
    assert choose_layers(f"first{number}", count) == tuple(range(count))[:number]
    every = choose_layers(f"every{number}", count)
    assert every[-1] == count - 1
    assert every[0] < number
    assert all(b - a == number for a, b in pairwise(every))


@given(counts, st.data())
def test_layer_numbers_are_sorted(count: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    assert choose_layers("+".join(map(str, chosen)), count) == tuple(sorted(chosen))
