"""The reproduction page in docs/ equals the page made from the committed documents."""

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
RESULTS = ROOT / "results" / "reproduce"


def timed_rows() -> list[dict[str, str]]:
    with (ROOT / "results" / "reproduce_times.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_reproduction_page_is_up_to_date() -> None:
    documents, timed = read_documents(RESULTS), timed_rows()
    advice = "run: python benchmarks/reproduction.py"
    assert (ROOT / "docs" / "results" / "reproduction.md").read_text(encoding="utf-8") == page(documents, timed), advice
    assert tally(claim_verdicts(only_current(documents.values()))) in (ROOT / "README.md").read_text(
        encoding="utf-8"
    ), advice


@pytest.mark.parametrize(("name", "document"), list(read_documents(RESULTS).items()))
def test_charts_are_up_to_date(name: str, document: dict[str, Any], tmp_path: Path) -> None:
    written = write_pictures(all_items()[name], document["rows"], tmp_path)
    assert written == document["pictures"]
    committed = {path.name for path in RESULTS.glob("*.svg")}
    for picture in written:
        unchanged = picture in committed and (tmp_path / picture).read_bytes() == (RESULTS / picture).read_bytes()
        assert unchanged, "run: python benchmarks/reproduction.py"


def test_committed_documents_are_complete_and_current() -> None:
    documents = read_documents(RESULTS)
    assert set(documents) == set(all_items())
    assert [name for name, document in documents.items() if not is_current(document)] == [], (
        "run them again, then benchmarks/reproduction.py RUNS/laptop"
    )


def test_measured_times_stay_within_their_limits() -> None:
    rows = {kind: {row["name"]: float(row["seconds"]) for row in timed_rows() if row["kind"] == kind} for kind in TIMED}
    assert sum(rows["shared"].values()) <= 90 * 60
    assert set(rows["item"]) == set(all_items())
    assert max(rows["item"].values()) <= 11 * 60


def test_outdated_documents_are_marked_on_the_page() -> None:
    documents = read_documents(RESULTS)
    current = {"mohebbi-table-1": documents["mohebbi-table-1"]}
    outdated = {"mohebbi-table-1": {**documents["mohebbi-table-1"], "made_from": "something else"}}
    assert ("**Outdated" in page(current, [])) == (not is_current(current["mohebbi-table-1"]))
    assert "Outdated, and not counted: mohebbi-table-1." in page(outdated, [])


@pytest.mark.parametrize("name", sorted(read_documents(RESULTS)))
def test_documents_have_the_current_published_numbers(name: str) -> None:
    document = read_documents(RESULTS)[name]
    rows = {row["row"]: row["published"] for row in document["rows"]}
    assert {row: published for row, published in rows.items() if published} == published_of(name)
    assert (document["note"], document["notes_on_published"]) == (all_items()[name].note, published_notes(name))


@pytest.mark.parametrize("name", [name for name, document in read_documents(RESULTS).items() if is_current(document)])
def test_documents_have_the_tests_of_the_claims(name: str) -> None:
    keys = ("a", "b", "says", "margin")
    document = read_documents(RESULTS)[name]
    tests = document["tests"]
    documented = [(test["claim"], *(test[key] for key in keys)) for test in tests]
    expected = [(claim, test) for claim in claims_of(name) for test in claim.tests if test.item == name]
    assert documented == [(claim.id, *(getattr(test, key) for key in keys)) for claim, test in expected]
    for test, (claim, check) in zip(tests, expected, strict=True):
        if check.not_at == document["scale"]:
            assert test["why"] == check.because, "run: python benchmarks/reproduction.py"
        measured = Measured(test["difference"], test["low"], test["high"])
        assert test["verdict"] == verdict(measured, check.says, check.margin, comparisons=len(claim.tests))


def test_page_marks_items_that_were_not_run(tmp_path: Path) -> None:
    documents = reproduce(find_items("mohebbi-table-1"), Experiments(shared_at("laptop"), None, tmp_path))
    text = page({"mohebbi-table-1": documents[0]}, [])
    assert text.count("Not run yet") == 27
    assert "| three-shared | 396,544 / 396,544 |" in text
    assert text.count("**not run yet**") == 24
    assert "Measured" not in text


def test_page_states_shared_and_longest_times() -> None:
    rows = [
        ("shared", "curve/spans", 900),
        ("shared", "run/squad-1", 300),
        ("item", "bv-glue", 80),
        ("item", "x", 605.4),
    ]
    text = page({}, [{"kind": kind, "name": name, "seconds": str(seconds)} for kind, name, seconds in rows])
    assert "20 minutes for the shared work, and then at most 605 seconds\nfor one of 2 tables and figures" in text
    assert "(slowest: x 605 s, bv-glue 80 s)" in text


def test_reproduction_page_is_short() -> None:
    page_text = (ROOT / "docs" / "results" / "reproduction.md").read_text(encoding="utf-8")
    assert len(page_text.split()) <= 5500


def test_rows_of_two_parts_become_a_grid() -> None:
    document = read_documents(RESULTS)["mohebbi-table-2"]
    header, *rows = grid_cells(document) or []
    assert header == ["", "full fine-tuning", "Houlsby", "not shared", "three-shared"]
    assert rows[0][0] == "cola (Matthews correlation)"
    assert rows[1][:2] == ["sst2 (accuracy)", "80.85 / 93.50"]
    assert grid_cells(read_documents(RESULTS)["bv-table-1"]) is None


def test_counts_have_no_decimals() -> None:
    rows = [
        {
            "row": row,
            "ours": {"parameters": 770.0, "percent": 100.0},
            "intervals": {},
            "published": {"parameters": published},
        }
        for row, published in (("a", 12), ("b", 7.5))
    ]
    cells = item_cells({"metrics": ["parameters", "percent"], "rows": rows})
    assert cells[0] == ["", "parameters", "parameters, published", "percent of the paper's encoder"]
    assert cells[1:] == [["a", "770", "12", "100.00"], ["b", "770", "7.50", "100.00"]]


def test_number_format_depends_on_magnitude() -> None:
    assert [number(value) for value in (None, 0.0, 0.00062, 12.345, 414952)] == [
        "-",
        "0.00",
        "0.00062",
        "12.35",
        "414,952",
    ]
    assert [signed(value) for value in (None, 1.5, -1.5)] == ["-", "+1.50", "-1.50"]
    assert markdown_table([["a|b"], [""]]).splitlines() == ["| a\\|b |", "| --- |", "|   |"]
