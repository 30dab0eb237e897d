"""The harness of ``make bench-quality`` on made-up data: draws, resuming, reading a run, comparisons, the page."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import quality
from bertvision.core.records import CONTROL
from quality_methods import (
    CONTROL_METHOD,
    EMBEDDINGS,
    LAST_LAYER,
    RECOMMENDED,
    Cost,
    LinearMethods,
    MethodFailed,
    Outcome,
    SetFitMethod,
    pair_features,
    read_run,
)
from quality_page import write_report
from quality_results import Result, Results
from quality_statistics import Pairing, as_labels, compare, gold_of, score_of
from quality_tasks import REGIMES, TASKS, LabelledText, QualityTask, Regime

AIRLINE, BIAS, COLA, STSB, MRPC = (TASKS[name] for name in ("airline", "bias", "cola", "stsb", "mrpc"))


def rows_of(counts: dict[str, int], pair: str | None = None) -> list[LabelledText]:
    return [
        LabelledText(f"{label}:{number}", f"{label} {number}", pair, label)
        for label, count in counts.items()
        for number in range(count)
    ]


def write_csv(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"bias": "neutral" if i % 3 else "partisan", "text": f"text {i}"} for i in range(60)]
    write_csv(tmp_path / "data" / BIAS.train, [*rows, *rows[:10]])
    return tmp_path / "data"


def test_draws_have_so_many_rows_of_every_class_and_are_always_the_same() -> None:
    rows = rows_of({"a": 100, "b": 30, "c": 5})
    few = Regime("8", "", 3, per_class=8)
    drawn = few.draw(AIRLINE, rows, 0)
    assert Counter(row.label for row in drawn) == {"a": 8, "b": 8, "c": 5}
    assert drawn == few.draw(AIRLINE, rows[::-1], 0)
    assert drawn != few.draw(AIRLINE, rows, 1)


def test_a_draw_of_a_fixed_number_of_rows_has_every_class() -> None:
    rows = rows_of({"a": 2000, "b": 3})
    drawn = Regime("40", "", 1, total=40).draw(AIRLINE, rows, 0)
    assert len(drawn) == 40
    assert Counter(row.label for row in drawn)["b"] >= 2


def test_numbers_are_drawn_without_classes() -> None:
    rows = rows_of({str(value): 1 for value in range(50)})
    assert len(REGIMES["8"].draw(STSB, rows, 0)) == 16


def test_dev_is_held_out_after_texts_that_occur_twice_are_removed(data: Path) -> None:
    train, dev = BIAS.read(data)
    assert len(dev) == 15
    assert len({row.text for row in (*train, *dev)}) == len(train) + len(dev) == 60


def test_labels_that_are_not_used_and_labels_that_are_derived(tmp_path: Path) -> None:
    disasters, economy = TASKS["disasters"], TASKS["economy"]
    write_csv(
        tmp_path / disasters.train, [{"choose_one": label, "text": label} for label in ("Relevant", "Can't Decide")]
    )
    write_csv(tmp_path / economy.train, [{"positivity": label, "text": f"text {label}"} for label in ("", "6")])
    assert [row.label for row in disasters.read(tmp_path)[0]] == ["Relevant"]
    assert {row.text: row.label for row in economy.read(tmp_path)[0]} == {"text": "not relevant", "text 6": "relevant"}


def write_run(folder: Path, board: dict[str, object], answers: dict[str, list[str]]) -> None:
    (folder / "predictions").mkdir(parents=True)
    (folder / "leaderboard.json").write_text(json.dumps(board), encoding="utf-8")
    for title, labels in answers.items():
        by_id = {f"dev:{number}": label for number, label in enumerate(labels, start=1)}
        (folder / "predictions" / f"{title}.json").write_text(json.dumps(by_id), encoding="utf-8")


def board_row(name: str, seed: int, accuracy: float, **more: object) -> dict[str, object]:
    return {"name": name, "seed": seed, "scores": {"accuracy": accuracy}, **more}


def test_the_first_row_and_the_probe_are_read_from_a_run(tmp_path: Path) -> None:
    dev = rows_of({"a": 2, "b": 2})
    board = {"rows": [board_row("mean-pool", 1, 75.0), board_row(CONTROL, 0, 50.0)]}
    write_run(tmp_path, board, {"mean-pool@1": ["a", "a", "b", "a"], f"{CONTROL}@0": ["a"] * 4})
    outcomes = read_run(AIRLINE, tmp_path, dev, Cost(3.0, 2.0))
    assert outcomes[RECOMMENDED].model == "mean-pool@1"
    assert outcomes[RECOMMENDED].predicted.tolist() == ["a", "a", "b", "a"]
    assert outcomes[CONTROL_METHOD].predicted.tolist() == ["a"] * 4


def test_the_named_recommendation_and_the_marked_control_come_first(tmp_path: Path) -> None:
    rows = [board_row("best", 0, 0.0), board_row("named", 0, 100.0), board_row("last", 0, 0.0, control=True)]
    answers = {"best@0": ["b"], "named@0": ["a"], "last@0": ["b"]}
    write_run(tmp_path, {"recommended": "named", "rows": rows}, answers)
    outcomes = read_run(AIRLINE, tmp_path, rows_of({"a": 1}), Cost())
    assert [outcomes[method].model for method in (RECOMMENDED, CONTROL_METHOD)] == ["named@0", "last@0"]


def test_answers_that_do_not_have_the_score_of_the_leaderboard_are_an_error(tmp_path: Path) -> None:
    write_run(tmp_path, {"rows": [board_row(CONTROL, 0, 100.0)]}, {f"{CONTROL}@0": ["b"]})
    with pytest.raises(MethodFailed, match=r"answers score 0\.000"):
        read_run(AIRLINE, tmp_path, rows_of({"a": 1}), Cost())


def encode(texts: Sequence[str]) -> np.ndarray:
    """Vectors that tell classes apart by the first letter."""
    return np.array([[1.0 + ord(text[0]) % 7, len(text), 1.0] for text in texts])


@pytest.mark.parametrize("task", [AIRLINE, COLA, MRPC, STSB], ids=lambda task: task.name)
def test_linear_models_learn_what_vectors_show(task: QualityTask, tmp_path: Path) -> None:
    labels = {"1": 12, "4": 12} if task.is_regression else {"a": 12, "b": 12}
    rows = rows_of(labels, "pair" if task.pair else None)
    outcomes = LinearMethods(encode).fit(task, rows, rows, tmp_path)
    assert outcomes.keys() == {EMBEDDINGS, LAST_LAYER}
    for outcome in outcomes.values():
        assert score_of(task, gold_of(task, rows), outcome.predicted) > 80


def test_features_of_a_pair() -> None:
    u, v = np.array([[3.0, 4.0]]), np.array([[0.0, 2.0]])
    assert pair_features([u], EMBEDDINGS).tolist() == [[0.6, 0.8]]
    expected = [3.0, 4.0, 0.0, 2.0, 3.0, 2.0, 0.0, 8.0]
    assert pair_features([u, v], LAST_LAYER).tolist() == [expected]


@pytest.mark.parametrize("task", [AIRLINE, COLA, STSB], ids=lambda task: task.name)
def test_comparisons_average_draws_and_find_a_clear_difference(task: QualityTask) -> None:
    random = np.random.default_rng(0)
    gold = as_labels(task, random.integers(0, 2, 80).tolist())
    noise = [as_labels(task, random.integers(0, 2, 80).tolist()) for _ in range(2)]
    both = [Pairing(task, "8", rival, gold, [gold, gold], noise) for rival in (EMBEDDINGS, LAST_LAYER)]
    first, second, *means = compare(both)
    assert first.ours == pytest.approx(100)
    assert first.theirs == pytest.approx(np.mean([score_of(task, gold, each) for each in noise]))
    assert 0 < first.low < first.difference < first.high
    assert first.p is not None
    assert first.p < 0.01
    assert first.p_holm == pytest.approx(2 * first.p)
    assert second.p_holm == first.p_holm
    assert [each.difference for each in means] == [first.difference, second.difference]


def test_a_mean_over_tasks_has_a_narrower_interval() -> None:
    random = np.random.default_rng(0)
    gold = as_labels(AIRLINE, ["a", "b"] * 40)
    sides = [[np.where(random.random(80) < share, gold, "c")] for share in (0.8, 0.6)]
    *tasks, mean = compare([Pairing(task, "8", EMBEDDINGS, gold, *sides) for task in (AIRLINE, TASKS["disasters"])])
    assert mean.tasks == 2
    assert mean.difference == pytest.approx(tasks[0].difference)
    assert mean.high - mean.low < 0.9 * (tasks[0].high - tasks[0].low)


class CountedFits:
    """Methods that predict one class, and count how often they are asked."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def run(self, task: QualityTask, train: Sequence[LabelledText], dev: Sequence[LabelledText], _: Path) -> object:
        self.calls.append(len(train))
        right = Outcome(gold_of(task, dev), 2.0, 1.0, "probe@0")
        return {RECOMMENDED: right, CONTROL_METHOD: Outcome(np.full(len(dev), "neutral"), 2.0, 1.0)}

    def linear(self, task: QualityTask, train: Sequence[LabelledText], dev: Sequence[LabelledText], _: Path) -> object:
        raise MethodFailed("no memory")


def test_results_are_kept_and_a_failure_does_not_stop_the_others(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits = CountedFits()
    stage = quality.Stage(("linear", "run"), REGIMES["8"], ("bias",), (0, 1))
    for failures in (2, 2):
        bench = quality.Bench(data, tmp_path / "work", {"run": fits.run, "linear": fits.linear})  # type: ignore[dict-item]
        bench.measure(stage)
        assert bench.failures == failures
    assert fits.calls == [16, 16]  # not measured twice
    assert "no memory" in capsys.readouterr().err

    write_report(bench.results.read(), tmp_path / "out", tmp_path / "out")
    with (tmp_path / "out" / "quality.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [(row["group"], row["draw"], row["method"]) for row in table[:2]] == [
        ("held-out", "0", "recommended"),
        ("held-out", "0", "control"),
    ]
    page = (tmp_path / "out" / "quality.md").read_text(encoding="utf-8")
    assert "| held-out | political bias | accuracy | 8 rows per class | 100.00 |" in page
    assert "| held-out | political bias | +" in page
    assert "quality.svg" in page

    bench.results.drop(RECOMMENDED)
    bench.measure(stage)
    assert fits.calls == [16, 16, 16, 16]


def test_results_with_another_dev_are_an_error(tmp_path: Path) -> None:
    facts = {"score": 0.0, "seconds": 0.0, "cpu_seconds": 0.0, "rows": 1, "model": "", "package": ""}
    results = Results(tmp_path)
    for method, gold in ((RECOMMENDED, "a"), (EMBEDDINGS, "b")):
        results.add(Result("bias", "8", 0, method, np.array([gold, "c"]), np.array(["a", "c"]), facts))
    with pytest.raises(ValueError, match="different dev rows"):
        write_report(results.read(), tmp_path, tmp_path)


def test_stages_cover_every_task_and_draw_once() -> None:
    work = [
        (step, stage.regime.name, task.name, draw)
        for stage in quality.stages().values()
        for step, task, draw in stage.work()
    ]
    assert len(work) == len(set(work)) == 2 * len(TASKS) * (3 + 3 + 2) + 7 * (3 + 3)


def test_missing_setfit_is_one_line(tmp_path: Path) -> None:
    assert "does not exist" in SetFitMethod(tmp_path / "python").why_not()


def test_an_unknown_stage_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quality.main(["--data", str(tmp_path), "--stage", "9"]) == 2
    assert "--stage: got 9, expected 8, 64, 2000-fitted" in capsys.readouterr().err
