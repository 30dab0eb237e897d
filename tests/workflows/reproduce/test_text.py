"""The page in docs/ is what the kept documents make it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from bertvision.workflows.reproduce.claims import Measured, verdict
from bertvision.workflows.reproduce.documents import claim_verdicts, is_current, only_current, read_documents, reproduce
from bertvision.workflows.reproduce.experiments import Experiments
from bertvision.workflows.reproduce.figures import write_pictures
from bertvision.workflows.reproduce.published import claims_of, published_notes, published_of
from bertvision.workflows.reproduce.specs import all_items, find_items, shared_at
from bertvision.workflows.reproduce.text import (
    TIMED,
    grid_cells,
    item_cells,
    markdown_table,
    number,
    page,
    signed,
    tally,
)

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "results" / "reproduce"


def timed_rows() -> list[dict[str, str]]:
    with (ROOT / "results" / "reproduce_times.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_is_up_to_date() -> None:
    kept, timed = read_documents(KEPT), timed_rows()
    advice = "run: python benchmarks/reproduction.py"
    assert (ROOT / "docs" / "results" / "reproduction.md").read_text(encoding="utf-8") == page(kept, timed), advice
    assert tally(claim_verdicts(only_current(kept.values()))) in (ROOT / "README.md").read_text(encoding="utf-8"), (
        advice
    )


@pytest.mark.parametrize(("name", "document"), list(read_documents(KEPT).items()))
def test_the_pictures_are_up_to_date(name: str, document: dict[str, Any], tmp_path: Path) -> None:
    drawn = write_pictures(all_items()[name], document["rows"], tmp_path)
    assert drawn == document["pictures"]
    kept = {path.name for path in KEPT.glob("*.svg")}
    for picture in drawn:
        same = picture in kept and (tmp_path / picture).read_bytes() == (KEPT / picture).read_bytes()
        assert same, "run: python benchmarks/reproduction.py"


def test_all_are_kept_and_made_by_the_recipes_as_they_are() -> None:
    kept = read_documents(KEPT)
    assert set(kept) == set(all_items())
    assert [name for name, one in kept.items() if not is_current(one)] == [], (
        "run them again, then benchmarks/reproduction.py RUNS/laptop"
    )


def test_what_is_shared_takes_ninety_minutes_and_each_item_about_ten_after_that() -> None:
    rows = {kind: {row["name"]: float(row["seconds"]) for row in timed_rows() if row["kind"] == kind} for kind in TIMED}
    assert sum(rows["shared"].values()) <= 90 * 60
    assert set(rows["item"]) == set(all_items())
    assert max(rows["item"].values()) <= 11 * 60


def test_what_is_kept_and_older_than_its_recipe_is_marked() -> None:
    kept = read_documents(KEPT)
    one = {"mohebbi-table-1": kept["mohebbi-table-1"]}
    other = {"mohebbi-table-1": {**kept["mohebbi-table-1"], "made_from": "something else"}}
    assert ("**Outdated" in page(one, [])) == (not is_current(one["mohebbi-table-1"]))
    assert "Outdated, and not counted: mohebbi-table-1." in page(other, [])


@pytest.mark.parametrize("name", sorted(read_documents(KEPT)))
def test_what_is_kept_stands_beside_the_published_numbers_as_they_are(name: str) -> None:
    document = read_documents(KEPT)[name]
    rows = {row["row"]: row["published"] for row in document["rows"]}
    assert {row: told for row, told in rows.items() if told} == published_of(name)
    assert (document["note"], document["notes_on_published"]) == (all_items()[name].note, published_notes(name))


@pytest.mark.parametrize("name", [name for name, one in read_documents(KEPT).items() if is_current(one)])
def test_what_is_kept_has_the_comparisons_of_the_claims(name: str) -> None:
    keys = ("a", "b", "says", "margin")
    tests = read_documents(KEPT)[name]["tests"]
    told = [(test["claim"], *(test[key] for key in keys)) for test in tests]
    mine = [(claim, test) for claim in claims_of(name) for test in claim.tests if test.item == name]
    assert told == [(claim.id, *(getattr(test, key) for key in keys)) for claim, test in mine]
    for test, (claim, asked) in zip(tests, mine, strict=True):
        found = Measured(test["difference"], test["low"], test["high"])
        assert test["verdict"] == verdict(found, asked.says, asked.margin, comparisons=len(claim.tests))


def test_what_was_not_run_says_so(tmp_path: Path) -> None:
    documents = reproduce(find_items("mohebbi-table-1"), Experiments(shared_at("laptop"), None, tmp_path))
    text = page({"mohebbi-table-1": documents[0]}, [])
    assert text.count("Not run yet") == 27
    assert "| three-shared | 396,544 / 396,544 |" in text
    assert text.count("**not run yet**") == 24
    assert "Measured" not in text


def test_the_page_tells_what_is_shared_and_what_takes_longest() -> None:
    rows = [
        ("shared", "curve/spans", 900),
        ("shared", "run/squad-1", 300),
        ("item", "bv-glue", 80),
        ("item", "x", 605.4),
    ]
    text = page({}, [{"kind": kind, "name": name, "seconds": str(seconds)} for kind, name, seconds in rows])
    assert "20 minutes for the shared work, and then at most 605 seconds\nfor one of 2 tables and figures" in text
    assert "(slowest: x 605 s, bv-glue 80 s)" in text


def test_the_page_is_short() -> None:
    page_text = (ROOT / "docs" / "results" / "reproduction.md").read_text(encoding="utf-8")
    assert len(page_text.split()) <= 5500


def test_rows_of_two_parts_are_a_grid_in_the_last_published_metric() -> None:
    document = read_documents(KEPT)["mohebbi-table-2"]
    header, *rows = grid_cells(document) or []
    assert header == ["", "full fine-tuning", "Houlsby", "not shared", "three-shared"]
    assert rows[0][0] == "cola (Matthews correlation)"
    assert rows[1][:2] == ["sst2 (accuracy)", "80.85 / 93.50"]
    assert grid_cells(read_documents(KEPT)["bv-table-1"]) is None


def test_counts_have_no_digits_after_the_point() -> None:
    rows = [
        {
            "row": row,
            "ours": {"parameters": 770.0, "percent": 100.0},
            "intervals": {},
            "published": {"parameters": told},
        }
        for row, told in (("a", 12), ("b", 7.5))
    ]
    cells = item_cells({"metrics": ["parameters", "percent"], "rows": rows})
    assert cells[0] == ["", "parameters", "parameters, published", "percent of the paper's encoder"]
    assert cells[1:] == [["a", "770", "12", "100.00"], ["b", "770", "7.50", "100.00"]]


def test_numbers_are_told_with_the_digits_that_help() -> None:
    assert [number(value) for value in (None, 0.0, 0.00062, 12.345, 414952)] == [
        "-",
        "0.00",
        "0.00062",
        "12.35",
        "414,952",
    ]
    assert [signed(value) for value in (None, 1.5, -1.5)] == ["-", "+1.50", "-1.50"]
    assert markdown_table([["a|b"], [""]]).splitlines() == ["| a\\|b |", "| --- |", "|   |"]
