"""Contracts over all 28 recipes: every name in them exists, and claims refer to existing rows."""

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
from bertvision.heads.info import fits, head_info
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
FOR_EVERY_ITEM = pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)


def test_all_tables_and_figures_have_a_recipe() -> None:
    assert len(ITEMS) == 28
    assert {item.kind for item in ITEMS} == set(KINDS)
    assert find_items("all") == ITEMS
    with pytest.raises(BadInput, match="Did you mean 'bv-table-1'"):
        find_items("bv-tabel-1")


@FOR_EVERY_ITEM
def test_row_settings_exist(item: Item) -> None:
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


@FOR_EVERY_ITEM
@pytest.mark.parametrize("scale", SCALES)
def test_row_sources_have_a_task(item: Item, scale: str) -> None:
    shared = shared_at(scale)
    for row in item.rows:
        source = shared.source_of(row)
        if source is not None:
            assert shared.data[str(shared.data_of(row))].task in TASKS, row
            assert not isinstance(row, CurveRow) or scale != "paper" or row.at in source.at, row


@FOR_EVERY_ITEM
def test_heads_can_be_built_at_both_scales(item: Item) -> None:
    kinds: dict[str, Kind] = {"span": "span", "classify": "classify", "regress": "regress"}
    for scale, (layers, width) in {"paper": (25, 1024), "laptop": (7, 384)}.items():
        rows = [row for row in map(shared_at(scale).substitute_heads, item.rows) if isinstance(row, BoardRow)]
        for spec, kind, outputs in {(head_of(row.predictor, row.shape), row.shape, row.outputs) for row in rows}:
            assert spec is None or fits(spec, Shape(layers, width, 384, outputs, kinds[kind])), spec


def test_substitute_heads_keep_their_share_of_the_width() -> None:
    used_heads = {row.predictor for item in ITEMS for row in item.rows if isinstance(row, BoardRow)}
    substitutes = shared_at("laptop").substitutes
    assert shared_at("paper").substitutes == {}
    for head, substitute in substitutes.items():
        assert head in used_heads
        options = [parse_spec(spec).options for spec in (head, substitute)]
        sizes = [float(head_options.get("size", head_options.get("scale", 1.0))) for head_options in options]
        assert sizes[1] / sizes[0] == pytest.approx(384 / 1024, rel=0.01)


def test_substitution_covers_all_heads_of_a_row() -> None:
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
def test_facts_of_every_kind_of_row_have_all_hashed_keys(kind: type[RowSpec]) -> None:
    required = {field.name: "x" for field in fields(kind) if field.default is MISSING}
    facts = kind(**required).facts()
    assert set(facts) == set(HASHED_ROW)
    assert facts["row"] == "x"
    assert facts.keys() - {HASHED_NAMES.get(name, name) for name in required} == {
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
def test_row_with_settings_of_several_kinds_is_an_error(row: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(_rows(row, "recipe y"))


@FOR_EVERY_ITEM
def test_rows_are_unique_and_published_rows_have_a_counterpart(item: Item) -> None:
    rows = [row.name for row in item.rows]
    assert len(set(rows)) == len(rows)
    not_reproduced = {row for row in published_of(item.name) if _is_not_reproduced(row)}
    missing = set(published_of(item.name)) - set(rows) - not_reproduced
    assert not missing


def _is_not_reproduced(row: str) -> bool:
    """Whether a published row is of a data set or model that is not reproduced."""
    return row.startswith(("CoNLL", "SICK")) or "ELMo" in row or "skip-thoughts" in row


def test_published_numbers_belong_to_known_items() -> None:
    keys = [(number.item, number.row, number.metric) for number in published()]
    assert len(set(keys)) == len(keys)
    for number in published():
        assert number.item in all_items()
        assert math.isfinite(number.value)
        assert number.source
        assert number.printed is None or number.note, f"{number} is corrected without a reason"


def test_parameter_shares_equal_the_published_ones() -> None:
    """Heads with known layers have the printed share of parameters, designs of our own come within a few per cent."""
    for number in [number for number in published() if number.metric == "percent"]:
        row = next((row for row in all_items()[number.item].rows if row.name == number.row), None)
        spec = head_of(row.predictor, row.shape) if isinstance(row, BoardRow) else None
        if row is not None and spec is not None:
            kind: Kind = "classify" if row.shape == "classify" else "span"
            info = head_info(spec, Shape(row.layers + 1, row.width, row.tokens, row.outputs, kind))
            assert float(str(info["percent"])) == pytest.approx(number.value, rel=0.04, abs=0.0006), number


def test_claims_refer_to_existing_rows() -> None:
    assert [claim.id for claim in claims()] == list(range(1, 25))
    for claim in claims():
        for test in claim.tests:
            rows = [row.name for row in all_items()[test.item].rows]
            for name in (test.a, test.b):
                assert name is None or any(fnmatchcase(row, name) for row in rows), f"claim {claim.id}: {name}"
            assert test.not_at in ("", *SCALES), f"claim {claim.id}"
            assert bool(test.not_at) == bool(test.because), f"claim {claim.id}"


def test_invalid_check_is_an_error() -> None:
    with pytest.raises(BadInput, match="Did you mean 'more'"):
        Check("x", "a", "mor", b="b")
    with pytest.raises(BadInput, match="either a row b or a number"):
        Check("x", "a", "more")


@pytest.mark.parametrize("scale", SCALES)
def test_plan_counts_shared_jobs_once(scale: str) -> None:
    shared = shared_at(scale)
    first, second, first_again = (plan(find_items(name), shared) for name in ("bv-table-1", "bv-table-3", "bv-table-1"))
    assert first == first_again
    combined = plan([*find_items("bv-table-1"), *find_items("bv-table-3")], shared)
    assert combined["hours"] < first["hours"] + second["hours"]
    assert first["shared_hours"] == 0
    assert combined["shared_hours"] == pytest.approx(first["hours"] + second["hours"] - combined["hours"])
    names = [job["name"] for job in combined["jobs"]]
    assert len(set(names)) == len(names)
    squad = next(job for job in first["jobs"] if job["name"] == "run squad-03")
    layers, width = shared.shapes["large"]
    assert squad["bytes"] == squad["windows"] * squad["tokens"] * (layers + 1) * width * 2


def test_parameter_counts_need_no_data() -> None:
    item = all_items()["mohebbi-table-1"]
    assert data_of(item, shared_at("paper")) == []
    assert plan([item], shared_at("paper"))["jobs"] == []


def test_counted_specs_include_methods_and_heads() -> None:
    counted = [row.count for item in ITEMS for row in item.rows if isinstance(row, CountRow)]
    assert {parse_spec(spec).name in METHODS for spec in counted} == {True, False}


def test_shared_work_at_laptop_scale_takes_at_most_ninety_minutes() -> None:
    assert plan(find_items("all"), shared_at("laptop"))["shared_hours"] < 1.5
