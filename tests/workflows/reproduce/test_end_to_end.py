"""One recipe of each kind, from data to verdicts, at paper scale with a random encoder instead of BERT."""

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

ReproduceItem = Callable[[str], dict[str, Any]]


@pytest.fixture
def reproduce_item(experiments: Experiments) -> ReproduceItem:
    def reproduce_one(name: str) -> dict[str, Any]:
        documents = reproduce(find_items(name), experiments)
        assert json.loads((experiments.out / "items" / f"{name}.json").read_text(encoding="utf-8")) == documents[0]
        assert name in item_text(documents[0], claim_verdicts(documents))
        return documents[0]

    return reproduce_one


def values_by_row(document: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {row["row"]: row["ours"] for row in document["rows"]}


def decided_tests(document: dict[str, Any]) -> list[bool]:
    """Whether each test has an interval or states that a random encoder has learned nothing."""
    return [test["low"] is not None or test["why"] == NOTHING_LEARNED for test in document["tests"]]


@pytest.mark.parametrize("name", ["bv-table-3", "bv-table-4"])
def test_reproduce_a_leaderboard(reproduce_item: ReproduceItem, name: str) -> None:
    document = reproduce_item(name)
    assert document["status"] == "done"
    assert all("f1" in row["ours"] for row in document["rows"])
    published_f1 = [row["published"]["f1"] for row in document["rows"] if not row["row"].startswith("control")]
    assert min(published_f1) > 50
    assert all(decided_tests(document))
    assert all(test["verdict"] in (HOLDS, FAILS, OPEN) for test in document["tests"])


def test_reproduce_a_tuning_curve(reproduce_item: ReproduceItem) -> None:
    document = reproduce_item("bv-figure-6")
    values = values_by_row(document)
    assert len([row for row in values if row.endswith("epochs")]) == 16
    assert values["never answers"] == {"exact": 50.0, "f1": 50.0}
    assert values["0 epochs"]["seconds"] <= values["6 epochs"]["seconds"]
    assert all(decided_tests(document))


def test_reproduce_tuning_methods_with_times(reproduce_item: ReproduceItem) -> None:
    document = reproduce_item("hulburd-table-2")
    values = values_by_row(document)
    assert values["L12"]["trained"] < values["L12-A64"]["trained"]
    assert values["L0-A64"]["trained"] < values["L0-A768"]["trained"]
    assert values["L12"]["inference_ratio"] == 1.0
    share = next(test for test in document["tests"] if test["metric"] == "percent")
    assert (share["claim"], share["verdict"]) == (17, HOLDS)
    assert values["L0-A768, counted"]["parameters"] == 28_388_354 - 1_538


def test_reproduce_scales_frozen_layers_to_the_encoder(reproduce_item: ReproduceItem, experiments: Experiments) -> None:
    values = values_by_row(reproduce_item("hulburd-table-1"))
    assert values["L12"]["trained"] > values["L6"]["trained"] >= values["L1"]["trained"] > values["L0"]["trained"]
    assert (experiments.out / "tune" / "hulburd-freeze:k=1,norms=true" / "own.json").exists()
    assert not math.isnan(values["L6"]["efficiency"])


def test_reproduce_an_ablation(reproduce_item: ReproduceItem) -> None:
    document = reproduce_item("mohebbi-figure-8")
    values = values_by_row(document)
    assert set(values) == {"all adapters", "without the adapters of one layer", "without any adapters"}
    assert all("matthews_correlation" in row for row in values.values())
    spans = {key for key in values["without any adapters"] if key.startswith("decrease ")}
    assert spans in (set(), {"decrease 1-1", "decrease 1-2", "decrease 2-2"}), (
        "no score to lose, or all spans of layers"
    )
    assert {test["metric"] for test in document["tests"]} == {"matthews_correlation"}


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("bv-figure-4", "no_answer_right"),
        ("bv-second-best", "wrong"),
        ("bv-layer-weights", "centre"),
    ],
)
def test_reproduce_analyses(reproduce_item: ReproduceItem, name: str, metric: str) -> None:
    document = reproduce_item(name)
    assert all(metric in row["ours"] for row in document["rows"] if row["missing"] == "")


def test_reproduce_lengths_of_contexts(reproduce_item: ReproduceItem) -> None:
    values = values_by_row(reproduce_item("bv-length"))
    assert values["BERT 1e"]["right"] >= values["BERT 1e alone"]["right"]


def test_reproduce_epochs_of_a_fit(reproduce_item: ReproduceItem) -> None:
    values = values_by_row(reproduce_item("bv-figure-3"))
    assert "inner" in values["epoch 1"] and "inner" in values["epoch 2"]  # noqa: PT018
    assert "inner" not in values["epoch 10"], "these tests fit two epochs"
    assert {"inner", "accuracy"} <= set(values["BERT 2/10e"])


def test_reproduce_a_learning_curve(reproduce_item: ReproduceItem, experiments: Experiments) -> None:
    document = reproduce_item("bv-figure-2")
    values = values_by_row(document)
    assert len(values) == 37
    assert all("f1" in row for row in values.values())
    kinds = ("exact", "exact-published", "f1", "f1-published")
    assert document["pictures"] == [f"bv-figure-2-{kind}.svg" for kind in kinds]
    chart = (experiments.out / "items" / "bv-figure-2-f1.svg").read_text(encoding="utf-8")
    assert "encoder limited too: its own head" in chart, "it has its own line"
    assert chart.count("<polyline") == 9, "seven series and two horizontal lines"
    assert all(decided_tests(document))


def test_reproduce_skips_missing_data_sets(reproduce_item: ReproduceItem) -> None:
    document = reproduce_item("mohebbi-table-3")
    values = values_by_row(document)
    assert document["status"] == "some data missing"
    assert values["mean / full"]["of"] == 1
    assert values["mean / full"]["mean"] == values["airline / full"]["accuracy"]
    assert decided_tests(document) == [True]
    assert any("news aggregator" in row["row"] and row["missing"] for row in document["rows"])


def test_run_starts_from_the_encoder_tuned_on_its_data(
    paper_data: Path, experiments: Experiments, tmp_path: Path
) -> None:
    laptop = replace(experiments, shared=shared_at("laptop"), data=paper_data, out=tmp_path)
    recipe = laptop.recipe(laptop.source("run", "glue"), "cola")
    tuned_folder = laptop.tuned_folder("glue", "cola", "full", None)
    assert (tuned_folder / "own.json").exists()
    assert recipe.encoder == str(tuned_folder / "encoder")
    assert recipe.tune.epochs == 0
    names = [job["name"] for job in plan(find_items("bv-glue"), laptop.shared)["jobs"]]
    assert names.index("tune glue cola full") < names.index("run glue cola")


TESTED_ABOVE = {"bv-table-3", "bv-table-4", "bv-figure-6", "hulburd-table-1", "hulburd-table-2", "mohebbi-figure-8"}
TESTED_ABOVE |= {"bv-figure-2", "bv-figure-3", "bv-figure-4", "bv-second-best", "bv-layer-weights", "bv-length"}
TESTED_ABOVE |= {"mohebbi-table-3"}


@pytest.mark.parametrize("name", [name for name in all_items() if name not in TESTED_ABOVE])
def test_reproduce_all_other_items(reproduce_item: ReproduceItem, name: str) -> None:
    document = reproduce_item(name)
    scored = [row["row"] for row in document["rows"] if set(row["ours"]) - {"percent", "parameters", "trained"}]
    assert scored or name == "mohebbi-table-1", "from the available data"
    reasons_missing = {row["missing"].partition(":")[0] for row in document["rows"]}
    assert reasons_missing <= {"", "no data", "published only"}, document


def test_reproduce_scores_of_single_layers(experiments: Experiments) -> None:
    row = make_row(experiments, AnalysisRow(name="cola", run="glue-0", data="cola", study="layers", shape="classify"))
    assert {"state 0", "state 1", "state 2"} <= set(row.values)


def test_early_rise() -> None:
    assert early_rise([50, 60, 70]) == 0.5
    assert early_rise([50, 50, 50, 80]) == 0.0
    assert early_rise([50, 50]) is None


def test_reproduce_reuses_finished_runs(
    reproduce_item: ReproduceItem, experiments: Experiments, capsys: pytest.CaptureFixture[str]
) -> None:
    first = reproduce_item("bv-table-3")
    before = {path: path.stat().st_mtime_ns for path in (experiments.out / "run").rglob("*.safetensors")}
    capsys.readouterr()
    assert reproduce(find_items("bv-table-3"), replace(experiments))[0]["rows"] == first["rows"]
    assert "fit: already done, skipping" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in (experiments.out / "run").rglob("*.safetensors")}


def test_claim_verdicts_use_all_tables_of_a_claim(reproduce_item: ReproduceItem, experiments: Experiments) -> None:
    reproduce_item("bv-table-4")
    claims = {claim["id"]: claim for claim in claim_verdicts(current_documents(experiments))}
    assert len(claims) == 24
    assert claims[15]["of"] == 6
    assert len(claims[15]["tests"]) >= 2
    assert claim_verdicts([])[0]["verdict"] == OPEN
    assert current_documents(replace(experiments, settings=[*experiments.settings, "fit.lr=1e-4"])) == []


def test_missing_data_is_reported_without_failing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "bv-table-1", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "no data (10 rows): SQuAD 2.0, dev mixed with 1.1: no --data FOLDER was given" in capsys.readouterr().out
    assert main([*arguments, "--data", str(tmp_path), "--scale", "paper", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["items"][0]
    assert document["status"] == NO_DATA
    assert "train-v2.0.json" in document["rows"][0]["missing"]
    assert document["rows"][3]["ours"]["percent"] == pytest.approx(0.1244, abs=1e-4)


def test_failing_item_does_not_stop_the_others(experiments: Experiments, tmp_path: Path) -> None:
    broken = replace(experiments, out=tmp_path, encoder=str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"1 of 2 failed.*bv-table-4"):
        reproduce([*find_items("bv-table-4"), *find_items("mohebbi-table-1")], broken)
    assert set(read_documents(tmp_path / "items")) == {"mohebbi-table-1"}
    with pytest.raises(BadInput, match="nowhere"):
        reproduce(find_items("bv-table-4"), broken)


def test_tuned_encoder_of_other_settings_is_an_error(experiments: Experiments, tmp_path: Path) -> None:
    changed = replace(experiments, out=tmp_path)
    folder = changed.tuned("glue", "cola", "full", None)
    modified = (folder / "own.json").stat().st_mtime_ns
    assert changed.tuned("glue", "cola", "full", None) == folder
    assert (folder / "own.json").stat().st_mtime_ns == modified
    with pytest.raises(BadInput, match=r"holds another run: tune\.lr"):
        replace(changed, settings=[*changed.settings, "tune.lr=1e-3"]).tuned("glue", "cola", "full", None)


def test_missing_files_are_reported_as_no_data(experiments: Experiments, tmp_path: Path) -> None:
    (tmp_path / "glue" / "CoLA").mkdir(parents=True)
    (tmp_path / "glue" / "CoLA" / "train.tsv").write_text("s\t1\t\ta town\n", encoding="utf-8")
    document = reproduce(find_items("mohebbi-figure-8"), replace(experiments, data=tmp_path, out=tmp_path / "out"))[0]
    assert document["status"] == NO_DATA
    assert document["rows"][0]["missing"].startswith("no data: GLUE: CoLA: glue/CoLA has no dev.tsv; from ")


@pytest.mark.parametrize(
    ("weights", "start"), [([0.1, 0.3, 0.2], None), ([0.3, 0.1, 0.2, 0.4], 1), ([0.1, 0.2], 0), ([0.2, 0.1], None)]
)
def test_rise_start_of_layer_weights(weights: list[float], start: int | None) -> None:
    assert rise_start(weights) == start


def test_reproduce_list_and_plan_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "list", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert len(items) == 28
    assert set(items[0]) == {"name", "title", "source", "kind", "data", "claims"}
    assert main(["reproduce", "all", "--plan", "--scale", "paper"]) == 0
    plan_text = capsys.readouterr().out
    assert "assumed: tokens tuned per second" in plan_text
    assert re.search(r"heads: \d+ fits; reading their states .* another [1-9]\d*\.\d hours", plan_text)
    assert main(["reproduce", "nothing"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "nowhere"), "--data nowhere does not exist; expected a folder with squad/"),
        (("--plan", "--encoder", "minilm"), "leave --encoder and --set out"),
        (("--plan", "--set", "fit.lr=1"), "leave --encoder and --set out"),
        (("--set", "foo"), "foo"),
        (("--set", "data.limit=abc"), "limit: got 'abc'"),
    ],
)
def test_invalid_reproduce_options_are_errors(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", "bv-table-1", "--out", str(tmp_path), *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert len(output.err.splitlines()) == 1


def test_corrected_published_numbers_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "bv-table-1", "--out", str(tmp_path)]) == 0
    assert "Published, corrected: learned pooling (LP), exact: 67 for 66" in capsys.readouterr().out


def answered_row(row: str, task: Task, correct: Callable[[int], bool]) -> RowResult:
    """A row that answers correctly where ``correct`` is true, and gives no answer elsewhere."""
    dev = task["dev"]
    answers = {e.id: e.answers[0].text if e.answers and correct(i) else "" for i, e in enumerate(dev)}
    return RowResult(row, {"trained": 1000.0}, {}, (answers,), task)


def test_measure_compares_answers_in_pairs(span_task: Task) -> None:
    all_right, silent = answered_row("a", span_task, lambda i: True), answered_row("b", span_task, lambda i: False)
    entries = {"a": all_right, "b": silent}
    answerable_check = Check("x", "a", "more", b="b", metric="exact", among="answerable")
    difference = measure(answerable_check, entries)
    assert (difference.difference, difference.low, difference.high) == (100.0, 100.0, 100.0)
    assert verdict(difference, "more") == HOLDS
    silence_check = Check("x", "a", "about", b="b", metric="exact", among="unanswerable", margin=0.1)
    assert verdict(measure(silence_check, entries), "about", 0.1) == HOLDS
    silent_too = Check("x", "b", "about", b="b", margin=1.0)
    assert measure(silent_too, entries).why == NOTHING_LEARNED
    assert verdict(measure(replace(silent_too, nothing_learned=True), entries), "about", 1.0) == HOLDS
    efficiency_check = Check("x", "a", "more", b="b", of="efficiency")
    assert measure(efficiency_check, entries).difference == pytest.approx(200 / 3 / 3)
    with_costs = {"a": replace(all_right, values={"trained": 1_000_000.0}), "b": all_right}
    assert measure(efficiency_check, with_costs).difference == pytest.approx(
        (100 - 100 / 3) * (1 / 6 - 1 / 3)
    )  # a third has no answer
    assert measure(Check("x", "a", "more", b="c"), entries).why == "c: not in the table"
    share_check = Check("x", "b", "about", number=44.0, of="value", metric="share")
    with_shares = {
        name: replace(entry, values={"share": 0.0}, intervals={"share": (0.0, 0.0)}) for name, entry in entries.items()
    }
    assert measure(share_check, with_shares).why == NOTHING_LEARNED
    assert measure(replace(share_check, a="a"), with_shares).difference == -44.0


def test_rank_correlation_with_published_scores() -> None:
    item = find_items("bv-table-2")[0]
    published_values = published_of(item.name)
    scores = [published_values.get(row.name, {}).get("f1") for row in item.rows]
    ranked_alike = [
        RowResult(row.name, {} if f1 is None else {"f1": f1 / 2}) for row, f1 in zip(item.rows, scores, strict=True)
    ]
    correlations = rank_correlations(item, ranked_alike)
    assert correlations == [{"run": "squad-1", "metric": "f1", "rows": 6, "spearmanr": pytest.approx(1.0)}]
    reversed_rows = [replace(row, values={key: -value for key, value in row.values.items()}) for row in ranked_alike]
    assert rank_correlations(item, reversed_rows)[0]["spearmanr"] == pytest.approx(-1.0)
    few = [row if index < 4 else RowResult(row.name) for index, row in enumerate(ranked_alike)]
    assert rank_correlations(item, few) == []


def test_single_measurement_decides_nothing() -> None:
    measured_once, exact_count = RowResult("a", {"centre": 0.7}), RowResult("b", {"parameters": 7.0})
    check = Check("x", "a", "more", number=0.5, metric="centre", of="value")
    assert measure(check, {"a": measured_once}).low is None
    count_check = Check("x", "b", "more", number=5, metric="parameters", of="value")
    assert verdict(measure(count_check, {"b": exact_count}), "more") == HOLDS
