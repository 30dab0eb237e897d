"""One recipe of each kind from data to verdicts at paper scale, with a random encoder in place of BERT."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.main import main
from bertvision.core.errors import BadInput
from bertvision.tasks.task import Task
from bertvision.workflows.reproduce.analysis_rows import early_rise, rise_start
from bertvision.workflows.reproduce.claims import FAILS, HOLDS, NOTHING_LEARNED, OPEN, measure, verdict
from bertvision.workflows.reproduce.documents import (
    NO_DATA,
    claim_verdicts,
    current_documents,
    make_row,
    rank_correlations,
    read_documents,
    reproduce,
)
from bertvision.workflows.reproduce.estimate import plan
from bertvision.workflows.reproduce.experiments import Experiments
from bertvision.workflows.reproduce.published import Check, published_of
from bertvision.workflows.reproduce.rows import RowResult
from bertvision.workflows.reproduce.specs import AnalysisRow, all_items, find_items, shared_at
from bertvision.workflows.reproduce.text import item_text

Named = Callable[[str], dict[str, Any]]


@pytest.fixture
def named(experiments: Experiments) -> Named:
    def made(name: str) -> dict[str, Any]:
        documents = reproduce(find_items(name), experiments)
        assert json.loads((experiments.out / "items" / f"{name}.json").read_text(encoding="utf-8")) == documents[0]
        assert name in item_text(documents[0], claim_verdicts(documents))
        return documents[0]

    return made


def ours(document: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {row["row"]: row["ours"] for row in document["rows"]}


def decided(document: dict[str, Any]) -> list[bool]:
    """A test has an interval, or it was seen that a random encoder has learned nothing."""
    return [test["low"] is not None or test["why"] == NOTHING_LEARNED for test in document["tests"]]


@pytest.mark.parametrize("name", ["bv-table-3", "bv-table-4"])
def test_a_leaderboard(named: Named, name: str) -> None:
    document = named(name)
    assert document["status"] == "done"
    assert all("f1" in row["ours"] for row in document["rows"])
    printed = [row["published"]["f1"] for row in document["rows"] if not row["row"].startswith("control")]
    assert min(printed) > 50
    assert all(decided(document))
    assert all(test["verdict"] in (HOLDS, FAILS, OPEN) for test in document["tests"])


def test_a_curve_with_heads_on_untuned_states(named: Named) -> None:
    document = named("bv-figure-6")
    found = ours(document)
    assert len([row for row in found if row.endswith("epochs")]) == 16
    assert found["never answers"] == {"exact": 50.0, "f1": 50.0}
    assert found["0 epochs"]["seconds"] <= found["6 epochs"]["seconds"]
    assert all(decided(document))


def test_methods_with_times(named: Named) -> None:
    document = named("hulburd-table-2")
    found = ours(document)
    assert found["L12"]["trained"] < found["L12-A64"]["trained"]
    assert found["L0-A64"]["trained"] < found["L0-A768"]["trained"]
    assert found["L12"]["inference_ratio"] == 1.0
    share = next(test for test in document["tests"] if test["metric"] == "percent")
    assert (share["claim"], share["verdict"]) == (17, HOLDS)
    assert found["L0-A768, counted"]["parameters"] == 28_388_354 - 1_538


def test_frozen_layers_are_scaled_to_the_encoder(named: Named, experiments: Experiments) -> None:
    found = ours(named("hulburd-table-1"))
    assert found["L12"]["trained"] > found["L6"]["trained"] >= found["L1"]["trained"] > found["L0"]["trained"]
    assert (experiments.out / "tune" / "hulburd-freeze:k=1,norms=true" / "own.json").exists()
    assert not math.isnan(found["L6"]["efficiency"])


def test_an_ablation(named: Named) -> None:
    document = named("mohebbi-figure-8")
    found = ours(document)
    assert set(found) == {"all adapters", "without the adapters of one layer", "without any adapters"}
    assert all("matthews_correlation" in row for row in found.values())
    spans = {key for key in found["without any adapters"] if key.startswith("decrease ")}
    assert spans in (set(), {"decrease 1-1", "decrease 1-2", "decrease 2-2"}), "nothing to lose, or every span"
    assert {test["metric"] for test in document["tests"]} == {"matthews_correlation"}


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("bv-figure-4", "no_answer_right"),
        ("bv-second-best", "wrong"),
        ("bv-layer-weights", "centre"),
    ],
)
def test_analyses(named: Named, name: str, metric: str) -> None:
    document = named(name)
    assert all(metric in row["ours"] for row in document["rows"] if row["missing"] == "")


def test_lengths_of_contexts(named: Named) -> None:
    found = ours(named("bv-length"))
    assert found["BERT 1e"]["right"] >= found["BERT 1e alone"]["right"]


def test_epochs_of_a_fit(named: Named) -> None:
    found = ours(named("bv-figure-3"))
    assert "inner" in found["epoch 1"] and "inner" in found["epoch 2"]  # noqa: PT018
    assert "inner" not in found["epoch 10"], "these tests fit two epochs"
    assert {"inner", "accuracy"} <= set(found["BERT 2/10e"])


def test_a_learning_curve(named: Named, experiments: Experiments) -> None:
    document = named("bv-figure-2")
    found = ours(document)
    assert len(found) == 37
    assert all("f1" in row for row in found.values())
    kinds = ("exact", "exact-published", "f1", "f1-published")
    assert document["pictures"] == [f"bv-figure-2-{kind}.svg" for kind in kinds]
    drawn = (experiments.out / "items" / "bv-figure-2-f1.svg").read_text(encoding="utf-8")
    assert "encoder limited too: its own head" in drawn, "a line of its own"
    assert drawn.count("<polyline") == 9, "seven series and two level lines"
    assert all(decided(document))


def test_sets_that_are_not_there_are_left_out(named: Named) -> None:
    document = named("mohebbi-table-3")
    found = ours(document)
    assert document["status"] == "some data missing"
    assert found["mean / full"]["of"] == 1
    assert found["mean / full"]["mean"] == found["airline / full"]["accuracy"]
    assert decided(document) == [True]
    assert any("news aggregator" in row["row"] and row["missing"] for row in document["rows"])


def test_a_run_goes_on_from_what_was_tuned_on_its_data(
    paper_data: Path, experiments: Experiments, tmp_path: Path
) -> None:
    laptop = replace(experiments, shared=shared_at("laptop"), data=paper_data, out=tmp_path)
    recipe = laptop.recipe(laptop.source("run", "glue"), "cola")
    place = laptop.tuned_folder("glue", "cola")
    assert (place / "own.json").exists()
    assert recipe.encoder == str(place / "encoder")
    assert recipe.tune.epochs == 0
    names = [job["name"] for job in plan(find_items("bv-glue"), laptop.shared)["jobs"]]
    assert names.index("tune glue cola full") < names.index("run glue cola")


RUN_ABOVE = {"bv-table-3", "bv-table-4", "bv-figure-6", "hulburd-table-1", "hulburd-table-2", "mohebbi-figure-8"}
RUN_ABOVE |= {"bv-figure-2", "bv-figure-3", "bv-figure-4", "bv-second-best", "bv-layer-weights", "bv-length"}
RUN_ABOVE |= {"mohebbi-table-3"}


@pytest.mark.parametrize("name", [name for name in all_items() if name not in RUN_ABOVE])
def test_every_other_one(named: Named, name: str) -> None:
    document = named(name)
    scored = [row["row"] for row in document["rows"] if set(row["ours"]) - {"percent", "parameters", "trained"}]
    assert scored or name == "mohebbi-table-1", "of the data that is there"
    told = {row["missing"].partition(":")[0] for row in document["rows"]}
    assert told <= {"", "no data", "published only"}, document


def test_layers_by_themselves(experiments: Experiments) -> None:
    made = make_row(experiments, AnalysisRow(name="cola", run="glue-0", data="cola", study="layers", shape="classify"))
    assert {"state 0", "state 1", "state 2"} <= set(made.values)


def test_how_early_a_score_rises() -> None:
    assert early_rise([50, 60, 70]) == 0.5
    assert early_rise([50, 50, 50, 80]) == 0.0
    assert early_rise([50, 50]) is None


def test_what_was_made_is_not_made_again(
    named: Named, experiments: Experiments, capsys: pytest.CaptureFixture[str]
) -> None:
    first = named("bv-table-3")
    before = {path: path.stat().st_mtime_ns for path in (experiments.out / "run").rglob("*.safetensors")}
    capsys.readouterr()
    assert reproduce(find_items("bv-table-3"), replace(experiments))[0]["rows"] == first["rows"]
    assert "fit: already done, skipping" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in (experiments.out / "run").rglob("*.safetensors")}


def test_verdicts_are_drawn_from_all_tables_of_a_claim(named: Named, experiments: Experiments) -> None:
    named("bv-table-4")
    claims = {one["id"]: one for one in claim_verdicts(current_documents(experiments))}
    assert len(claims) == 24
    assert claims[15]["of"] == 6
    assert len(claims[15]["tests"]) >= 2
    assert claim_verdicts([])[0]["verdict"] == OPEN
    assert current_documents(replace(experiments, settings=[*experiments.settings, "fit.lr=1e-4"])) == []


def test_no_data_is_told_and_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "bv-table-1", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "no data (10 rows): SQuAD 2.0, dev mixed with 1.1: no --data FOLDER was given" in capsys.readouterr().out
    assert main([*words, "--data", str(tmp_path), "--scale", "paper", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["items"][0]
    assert document["status"] == NO_DATA
    assert "train-v2.0.json" in document["rows"][0]["missing"]
    assert document["rows"][3]["ours"]["percent"] == pytest.approx(0.1244, abs=1e-4)


def test_one_that_fails_does_not_stop_the_others(experiments: Experiments, tmp_path: Path) -> None:
    broken = replace(experiments, out=tmp_path, encoder=str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"1 of 2 failed.*bv-table-4"):
        reproduce([*find_items("bv-table-4"), *find_items("mohebbi-table-1")], broken)
    assert set(read_documents(tmp_path / "items")) == {"mohebbi-table-1"}
    with pytest.raises(BadInput, match="nowhere"):
        reproduce(find_items("bv-table-4"), broken)


def test_another_setting_is_another_tuning(experiments: Experiments, tmp_path: Path) -> None:
    here = replace(experiments, out=tmp_path)
    place = here.tuned("glue", "cola")
    made = (place / "own.json").stat().st_mtime_ns
    assert here.tuned("glue", "cola") == place
    assert (place / "own.json").stat().st_mtime_ns == made
    with pytest.raises(BadInput, match=r"holds another run: tune\.lr"):
        replace(here, settings=[*here.settings, "tune.lr=1e-3"]).tuned("glue", "cola")


def test_files_missing_from_a_folder_are_no_data(experiments: Experiments, tmp_path: Path) -> None:
    (tmp_path / "glue" / "CoLA").mkdir(parents=True)
    (tmp_path / "glue" / "CoLA" / "train.tsv").write_text("s\t1\t\ta town\n", encoding="utf-8")
    document = reproduce(find_items("mohebbi-figure-8"), replace(experiments, data=tmp_path, out=tmp_path / "out"))[0]
    assert document["status"] == NO_DATA
    assert document["rows"][0]["missing"].startswith("no data: GLUE: CoLA: glue/CoLA has no dev.tsv; from ")


@pytest.mark.parametrize(
    ("weights", "place"), [([0.1, 0.3, 0.2], None), ([0.3, 0.1, 0.2, 0.4], 1), ([0.1, 0.2], 0), ([0.2, 0.1], None)]
)
def test_weights_rise_to_the_end_or_not_at_all(weights: list[float], place: int | None) -> None:
    assert rise_start(weights) == place


def test_the_list_and_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "list", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert len(items) == 28
    assert set(items[0]) == {"name", "title", "source", "kind", "data", "claims"}
    assert main(["reproduce", "all", "--plan", "--scale", "paper"]) == 0
    told = capsys.readouterr().out
    assert "assumed: tokens tuned per second" in told
    assert re.search(r"heads: \d+ fits; reading their states .* another [1-9]\d*\.\d hours", told)
    assert main(["reproduce", "nothing"]) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "nowhere"), "--data nowhere does not exist; expected a folder with squad/"),
        (("--plan", "--encoder", "minilm"), "leave --encoder and --set out"),
        (("--plan", "--set", "fit.lr=1"), "leave --encoder and --set out"),
        (("--set", "foo"), "foo"),
        (("--set", "data.limit=abc"), "limit: got 'abc'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", "bv-table-1", "--out", str(tmp_path), *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert len(said.err.splitlines()) == 1


def test_corrected_numbers_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "bv-table-1", "--out", str(tmp_path)]) == 0
    assert "Published, corrected: learned pooling (LP), exact: 67 for 66" in capsys.readouterr().out


def told(row: str, task: Task, right: Callable[[int], bool]) -> RowResult:
    """Answers that are right where it is said, and silent elsewhere."""
    dev = task["dev"]
    answers = {e.id: e.answers[0].text if e.answers and right(i) else "" for i, e in enumerate(dev)}
    return RowResult(row, {"trained": 1000.0}, {}, (answers,), task)


def test_answers_are_weighed_in_pairs(span_task: Task) -> None:
    all_right, silent = told("a", span_task, lambda i: True), told("b", span_task, lambda i: False)
    entries = {"a": all_right, "b": silent}
    answerable = Check("x", "a", "more", b="b", metric="exact", among="answerable")
    found = measure(answerable, entries)
    assert (found.difference, found.low, found.high) == (100.0, 100.0, 100.0)
    assert verdict(found, "more") == HOLDS
    silence = Check("x", "a", "about", b="b", metric="exact", among="unanswerable", margin=0.1)
    assert verdict(measure(silence, entries), "about", 0.1) == HOLDS
    silent_too = Check("x", "b", "about", b="b", margin=1.0)
    assert measure(silent_too, entries).why == NOTHING_LEARNED
    assert verdict(measure(replace(silent_too, nothing_learned=True), entries), "about", 1.0) == HOLDS
    worth = Check("x", "a", "more", b="b", of="efficiency")
    assert measure(worth, entries).difference == pytest.approx(200 / 3 / 3)
    dearer = {"a": replace(all_right, values={"trained": 1_000_000.0}), "b": all_right}
    assert measure(worth, dearer).difference == pytest.approx(
        (100 - 100 / 3) * (1 / 6 - 1 / 3)
    )  # a third has no answer
    assert measure(Check("x", "a", "more", b="c"), entries).why == "c: not in the table"
    share = Check("x", "b", "about", number=44.0, of="value", metric="share")
    rated = {
        name: replace(one, values={"share": 0.0}, intervals={"share": (0.0, 0.0)}) for name, one in entries.items()
    }
    assert measure(share, rated).why == NOTHING_LEARNED
    assert measure(replace(share, a="a"), rated).difference == -44.0


def test_the_order_of_rows_is_compared_with_the_published_one() -> None:
    item = find_items("bv-table-2")[0]
    printed = published_of(item.name)
    scores = [printed.get(row.name, {}).get("f1") for row in item.rows]
    same = [
        RowResult(row.name, {} if f1 is None else {"f1": f1 / 2}) for row, f1 in zip(item.rows, scores, strict=True)
    ]
    found = rank_correlations(item, same)
    assert found == [{"run": "squad-1", "metric": "f1", "rows": 6, "spearmanr": pytest.approx(1.0)}]
    turned = [replace(one, values={key: -value for key, value in one.values.items()}) for one in same]
    assert rank_correlations(item, turned)[0]["spearmanr"] == pytest.approx(-1.0)
    few = [one if place < 4 else RowResult(one.name) for place, one in enumerate(same)]
    assert rank_correlations(item, few) == []


def test_a_number_that_was_measured_once_decides_nothing() -> None:
    one, sure = RowResult("a", {"centre": 0.7}), RowResult("b", {"parameters": 7.0})
    check = Check("x", "a", "more", number=0.5, metric="centre", of="value")
    assert measure(check, {"a": one}).low is None
    counted = Check("x", "b", "more", number=5, metric="parameters", of="value")
    assert verdict(measure(counted, {"b": sure}), "more") == HOLDS
