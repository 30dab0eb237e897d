"""Contracts over all recipes: 28 of them, every name in them exists, and the claims speak of rows that are there."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, replace
from fnmatch import fnmatchcase

import pytest

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import parse_spec
from bertvision.encoders.methods import METHODS, parse_method
from bertvision.evaluation.analyses.catalogue import ANALYSES
from bertvision.heads.base import canonical_spec
from bertvision.heads.summary import fits, head_info
from bertvision.tasks.task import TASKS
from bertvision.workflows.reproduce.estimate import data_of, plan
from bertvision.workflows.reproduce.published import Check, claims, published, published_of
from bertvision.workflows.reproduce.specs import (
    HASHED_NAMES,
    HASHED_ROW,
    KINDS,
    ROW_KINDS,
    SCALES,
    AblationRow,
    AnalysisRow,
    BoardRow,
    CountRow,
    CurveRow,
    Item,
    RowSpec,
    TunedRow,
    _rows,
    all_items,
    find_items,
    head_of,
    shared_at,
)

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
    for row in item.rows:
        assert type(row) in ROW_KINDS.values(), row
        assert row.only in (None, *SCALES), row
        match row:
            case TunedRow():
                parse_method(row.method)
                assert row.head is None or canonical_spec(row.head)
                assert not isinstance(row, AblationRow) or row.without in ("all", "each"), row
            case AnalysisRow():
                assert row.study in ANALYSES, row


@EVERY
@pytest.mark.parametrize("scale", SCALES)
def test_every_row_has_a_source_and_a_task(item: Item, scale: str) -> None:
    shared = shared_at(scale)
    for row in item.rows:
        source = shared.source_of(row)
        if source is not None:
            assert shared.data[str(shared.data_of(row))].task in TASKS, row
            assert not isinstance(row, CurveRow) or scale != "paper" or row.at in source.at, row


@EVERY
def test_every_head_can_be_built_at_both_scales(item: Item) -> None:
    kinds: dict[str, Kind] = {"span": "span", "classify": "classify", "regress": "regress"}
    for scale, (layers, width) in {"paper": (25, 1024), "laptop": (7, 384)}.items():
        rows = [row for row in map(shared_at(scale).substitute_heads, item.rows) if isinstance(row, BoardRow)]
        for spec, kind, outputs in {(head_of(row.predictor), row.shape, row.outputs) for row in rows}:
            assert spec is None or fits(spec, Shape(layers, width, 384, outputs, kinds[kind])), spec


def test_narrowed_heads_are_the_same_share_of_the_width() -> None:
    asked = {row.predictor for item in ITEMS for row in item.rows if isinstance(row, BoardRow)}
    narrow = shared_at("laptop").substitutes
    assert shared_at("paper").substitutes == {}
    for wide, narrower in narrow.items():
        assert wide in asked
        options = [parse_spec(spec).options for spec in (wide, narrower)]
        sizes = [float(one.get("size", one.get("scale", 1.0))) for one in options]
        assert sizes[1] / sizes[0] == pytest.approx(384 / 1024, rel=0.01)


def test_a_row_is_narrowed_in_all_that_it_names() -> None:
    row = AnalysisRow(
        name="x", run="squad-1", study="agreement", predictor="max:compress:size=386", versus="compress:size=64"
    )
    narrowed = shared_at("laptop").substitute_heads(row)
    assert isinstance(narrowed, AnalysisRow)
    assert (narrowed.predictor, narrowed.versus) == ("max:compress:size=145", "compress:size=24")
    plain = replace(row, predictor="encoder", versus=None)
    assert shared_at("laptop").substitute_heads(plain) == plain
    assert shared_at("paper").substitute_heads(row) == row


@pytest.mark.parametrize("kind", ROW_KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_kind_of_row_is_hashed_under_all_keys(kind: type[RowSpec]) -> None:
    needed = {one.name: "x" for one in fields(kind) if one.default is MISSING}
    facts = kind(**needed).facts()
    assert set(facts) == set(HASHED_ROW)
    assert facts["row"] == "x"
    assert facts.keys() - {HASHED_NAMES.get(name, name) for name in needed} == {
        key for key, value in facts.items() if value == HASHED_ROW[key]
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "x", "run": "squad-1", "tune": "glue"}, "no setting named 'run'"),
        ({"name": "x", "run": "squad-1", "epoch": 1, "share": 0.1}, "no setting named 'share'"),
        ({"name": "x", "data": "squad2"}, "has none of mean, count"),
        ({"run": "squad-1"}, "setting 'name' is missing"),
    ],
)
def test_a_row_is_of_one_kind(row: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(_rows(row, "recipe y"))


@EVERY
def test_rows_differ_and_published_ones_have_a_counterpart(item: Item) -> None:
    rows = [row.name for row in item.rows]
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
        row = next((row for row in all_items()[one.item].rows if row.name == one.row), None)
        spec = head_of(row.predictor) if isinstance(row, BoardRow) else None
        if row is not None and spec is not None:
            kind: Kind = "classify" if row.shape == "classify" else "span"
            told = head_info(spec, Shape(row.layers + 1, row.width, row.tokens, row.outputs, kind))
            assert float(str(told["percent"])) == pytest.approx(one.value, rel=0.04, abs=0.0006), one


def test_a_claim_speaks_of_rows_that_are_there() -> None:
    assert [claim.id for claim in claims()] == list(range(1, 25))
    for claim in claims():
        for test in claim.tests:
            rows = [row.name for row in all_items()[test.item].rows]
            for name in (test.a, test.b):
                assert name is None or any(fnmatchcase(row, name) for row in rows), f"claim {claim.id}: {name}"
            assert test.not_at in ("", *SCALES), f"claim {claim.id}"
            assert bool(test.not_at) == bool(test.because), f"claim {claim.id}"


def test_a_test_is_refused_that_says_nothing() -> None:
    with pytest.raises(BadInput, match="Did you mean 'more'"):
        Check("x", "a", "mor", b="b")
    with pytest.raises(BadInput, match="either a row b or a number"):
        Check("x", "a", "more")


@pytest.mark.parametrize("scale", SCALES)
def test_a_plan_counts_what_is_shared_once(scale: str) -> None:
    shared = shared_at(scale)
    one, two, both = (plan(find_items(name), shared) for name in ("bv-table-1", "bv-table-3", "bv-table-1"))
    assert one == both
    combine_verdicts = plan([*find_items("bv-table-1"), *find_items("bv-table-3")], shared)
    assert combine_verdicts["hours"] < one["hours"] + two["hours"]
    assert one["shared_hours"] == 0
    assert combine_verdicts["shared_hours"] == pytest.approx(one["hours"] + two["hours"] - combine_verdicts["hours"])
    names = [job["name"] for job in combine_verdicts["jobs"]]
    assert len(set(names)) == len(names)
    squad = next(job for job in one["jobs"] if job["name"] == "run squad-03")
    layers, width = shared.shapes["large"]
    assert squad["bytes"] == squad["windows"] * squad["tokens"] * (layers + 1) * width * 2


def test_counts_need_no_data() -> None:
    item = all_items()["mohebbi-table-1"]
    assert data_of(item, shared_at("paper")) == []
    assert plan([item], shared_at("paper"))["jobs"] == []


def test_methods_that_are_counted_are_methods() -> None:
    counted = [row.count for item in ITEMS for row in item.rows if isinstance(row, CountRow)]
    assert {parse_spec(spec).name in METHODS for spec in counted} == {True, False}


def test_laptop_scale_shares_at_most_ninety_minutes() -> None:
    assert plan(find_items("all"), shared_at("laptop"))["shared_hours"] < 1.5
