"""The page in docs/ is what the kept documents make it."""

from __future__ import annotations

import csv
from pathlib import Path

from bertvision.reproduce.documents import claim_verdicts, read_documents, reproduce
from bertvision.reproduce.origin import origin
from bertvision.reproduce.page import TIMED, page, tally
from bertvision.reproduce.published import claims_of
from bertvision.reproduce.recipes import all_items, find_items, shared_at
from bertvision.reproduce.words import markdown_table, number, signed
from bertvision.reproduce.workshop import Workshop

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    kept = read_documents(ROOT / "results" / "reproduce")
    with (ROOT / "results" / "reproduce_times.csv").open(encoding="utf-8", newline="") as file:
        timed = list(csv.DictReader(file))
    advice = "run: python benchmarks/reproduction.py"
    assert (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == page(kept, timed), advice
    assert tally(claim_verdicts(kept.values())) in (ROOT / "README.md").read_text(encoding="utf-8"), advice


def test_what_is_kept_is_of_these_recipes_and_claims() -> None:
    kept, items = read_documents(ROOT / "results" / "reproduce"), all_items()
    assert set(kept) == set(items)
    other = [name for name, one in kept.items() if one["made_from"] != origin(items[name], shared_at(one["scale"]))]
    assert not other, "the recipe has changed since; run: bertvision reproduce NAME --data FOLDER"
    told = {
        name: [{key: test[key] for key in ("claim", "a", "b", "says", "margin")} for test in kept[name]["tests"]]
        for name in kept
    }
    asked = {
        name: [
            {"claim": claim.id, "a": test.a, "b": test.b, "says": test.says, "margin": test.margin}
            for claim in claims_of(name)
            for test in claim.tests
            if test.item == name
        ]
        for name in kept
    }
    assert told == asked


def test_laptop_scale_was_as_quick_as_it_should_be() -> None:
    """What is shared in ninety minutes, and each table and figure after that in about ten."""
    with (ROOT / "results" / "reproduce_times.csv").open(encoding="utf-8", newline="") as file:
        timed = list(csv.DictReader(file))
    seconds = {kind: {row["name"]: float(row["seconds"]) for row in timed if row["kind"] == kind} for kind in TIMED}
    assert set(seconds["item"]) == set(all_items())
    assert sum(seconds["shared"].values()) <= 90 * 60
    assert max(seconds["item"].values()) <= 11 * 60


def test_what_was_not_run_says_so(tmp_path: Path) -> None:
    documents = reproduce(find_items("mohebbi-table-1"), Workshop(shared_at("laptop"), None, tmp_path))
    told = page({"mohebbi-table-1": documents[0]}, [])
    assert told.count("Not run yet") == 27
    assert "| three-shared | 396,544 | 396,544 |" in told
    assert told.count("**not run yet**") == 24
    assert "Measured" not in told


def test_the_page_tells_what_is_shared_and_what_takes_longest() -> None:
    rows = [
        ("shared", "curve/spans", 900),
        ("shared", "run/squad-1", 300),
        ("item", "bv-glue", 80),
        ("item", "x", 605.4),
    ]
    told = page({}, [{"kind": kind, "name": name, "seconds": str(seconds)} for kind, name, seconds in rows])
    assert "20 minutes for what is shared, and after that, each of 2 by itself" in told
    assert "at most\nx 605, bv-glue 80 seconds" in told


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
