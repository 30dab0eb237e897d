"""Contracts over all recipes: 28 of them, every name in them exists, and the claims speak of rows that are there."""

from __future__ import annotations

import math
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import parse_spec
from bertvision.encoders.methods import METHODS, read_method
from bertvision.evaluation.analyses.catalogue import ANALYSES
from bertvision.heads.base import canonical_spec
from bertvision.heads.summary import count_head, fits
from bertvision.tasks.task import TASKS
from bertvision.workflows.reproduce.estimate import data_of, plan, sources_of
from bertvision.workflows.reproduce.published import Check, claims, published, published_of
from bertvision.workflows.reproduce.row_sources import head_of
from bertvision.workflows.reproduce.specs import KINDS, SCALES, Item, Line, all_items, find_items, shared_at

ITEMS = list(all_items().values())
EVERY = pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)


def test_all_tables_and_figures_are_there() -> None:
    assert len(ITEMS) == 28
    assert {item.kind for item in ITEMS} == set(KINDS)
    assert find_items("all") == ITEMS
    with pytest.raises(BadInput, match="Did you mean 'bv-table-1'"):
        find_items("bv-tabel-1")


@EVERY
def test_every_row_names_what_exists(item: Item) -> None:
    for line in item.lines:
        named = [line.run, line.curve, line.tune, line.count, line.mean]
        assert sum(one is not None for one in named) == 1, line
        read_method(line.method)
        assert line.head is None or canonical_spec(line.head)
        assert line.study is None or line.study in ANALYSES, line
        assert line.without in (None, "all", "each"), line
        assert line.only in (None, *SCALES), line


@EVERY
@pytest.mark.parametrize("scale", SCALES)
def test_every_row_has_a_source_and_a_task(item: Item, scale: str) -> None:
    shared = shared_at(scale)
    for line in item.lines:
        for source in sources_of(line, shared):
            assert shared.data[line.data or str(source.data)].task in TASKS, line
            assert line.at is None or scale != "paper" or line.at in source.at, line


@EVERY
def test_every_head_can_be_built_at_both_scales(item: Item) -> None:
    kinds: dict[str, Kind] = {"span": "span", "classify": "classify", "regress": "regress"}
    for scale, (layers, width) in {"paper": (25, 1024), "laptop": (7, 384)}.items():
        lines = [shared_at(scale).narrowed(line) for line in item.lines if line.run is not None]
        for spec, kind, outputs in {(head_of(line.who), line.shape, line.outputs) for line in lines}:
            assert spec is None or fits(spec, Shape(layers, width, 384, outputs, kinds[kind])), spec


def test_narrowed_heads_are_the_same_share_of_the_width() -> None:
    asked = {line.who for item in all_items().values() for line in item.lines}
    narrow = shared_at("laptop").narrow
    assert shared_at("paper").narrow == {}
    for wide, narrower in narrow.items():
        assert wide in asked
        options = [parse_spec(spec).options for spec in (wide, narrower)]
        sizes = [float(one.get("size", one.get("scale", 1.0))) for one in options]
        assert sizes[1] / sizes[0] == pytest.approx(384 / 1024, rel=0.01)


def test_a_row_is_narrowed_in_all_that_it_names() -> None:
    row = Line("x", run="squad-1", who="max:compress:size=386", against="compress:size=64")
    narrowed = shared_at("laptop").narrowed(row)
    assert (narrowed.who, narrowed.against) == ("max:compress:size=145", "compress:size=24")
    assert shared_at("laptop").narrowed(replace(row, who="encoder", against=None)) == replace(
        row, who="encoder", against=None
    )
    assert shared_at("paper").narrowed(row) == row


@EVERY
def test_rows_differ_and_published_ones_have_a_counterpart(item: Item) -> None:
    rows = [line.row for line in item.lines]
    assert len(set(rows)) == len(rows)
    lost = {row for row in published_of(item.name) if _elsewhere(row)}
    missing = set(published_of(item.name)) - set(rows) - lost
    assert not missing


def _elsewhere(row: str) -> bool:
    """Of data sets and models that are not part of this."""
    return row.startswith(("CoNLL", "SICK")) or "ELMo" in row or "skip-thoughts" in row


def test_published_numbers_are_numbers_of_known_items() -> None:
    keys = [(one.item, one.row, one.metric) for one in published()]
    assert len(set(keys)) == len(keys)
    for one in published():
        assert one.item in all_items()
        assert math.isfinite(one.value)
        assert one.source
        assert one.printed is None or one.note, f"{one} is corrected without a reason"


def test_published_shares_of_parameters_are_those_of_our_heads() -> None:
    """Heads whose layers are known come to the printed share, own designs within a few per cent of it."""
    for one in [number for number in published() if number.metric == "percent"]:
        line = next((line for line in all_items()[one.item].lines if line.row == one.row), None)
        spec = None if line is None or line.run is None else head_of(line.who)
        if line is not None and spec is not None:
            kind: Kind = "classify" if line.shape == "classify" else "span"
            told = count_head(spec, Shape(line.layers + 1, line.width, line.tokens, line.outputs, kind))
            assert float(str(told["percent"])) == pytest.approx(one.value, rel=0.04, abs=0.0006), one


def test_a_claim_speaks_of_rows_that_are_there() -> None:
    assert [claim.id for claim in claims()] == list(range(1, 25))
    for claim in claims():
        for test in claim.tests:
            rows = [line.row for line in all_items()[test.item].lines]
            for name in (test.a, test.b):
                assert name is None or any(fnmatchcase(row, name) for row in rows), f"claim {claim.id}: {name}"
            assert test.not_at in ("", *SCALES), f"claim {claim.id}"
            assert bool(test.not_at) == bool(test.because), f"claim {claim.id}"


def test_a_test_is_refused_that_says_nothing() -> None:
    with pytest.raises(BadInput, match="Did you mean 'more'"):
        Check("x", "a", "mor", b="b")
    with pytest.raises(BadInput, match="one of both"):
        Check("x", "a", "more")


@pytest.mark.parametrize("scale", SCALES)
def test_a_plan_counts_what_is_shared_once(scale: str) -> None:
    shared = shared_at(scale)
    one, two, both = (plan(find_items(name), shared) for name in ("bv-table-1", "bv-table-3", "bv-table-1"))
    assert one == both
    together = plan([*find_items("bv-table-1"), *find_items("bv-table-3")], shared)
    assert together["hours"] < one["hours"] + two["hours"]
    assert one["shared_hours"] == 0
    assert together["shared_hours"] == pytest.approx(one["hours"] + two["hours"] - together["hours"])
    names = [job["name"] for job in together["jobs"]]
    assert len(set(names)) == len(names)
    squad = next(job for job in one["jobs"] if job["name"] == "run squad-03")
    layers, width = shared.shapes["large"]
    assert squad["bytes"] == squad["windows"] * squad["tokens"] * (layers + 1) * width * 2


def test_counts_need_no_data() -> None:
    item = all_items()["mohebbi-table-1"]
    assert data_of(item, shared_at("paper")) == []
    assert plan([item], shared_at("paper"))["jobs"] == []


def test_methods_that_are_counted_are_methods() -> None:
    counted = [line.count for item in ITEMS for line in item.lines if line.count is not None]
    assert {parse_spec(spec).name in METHODS for spec in counted} == {True, False}


def test_laptop_scale_shares_at_most_ninety_minutes() -> None:
    assert plan(find_items("all"), shared_at("laptop"))["shared_hours"] < 1.5
