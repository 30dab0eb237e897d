"""``search``: selection on inner, resuming after an interruption, dev scored once, search spaces."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.search import search_result
from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput
from bertvision.evaluation.scoring import score_predictions
from bertvision.runs.folder import run_states
from bertvision.store.store import Store
from bertvision.training.fit import fit
from bertvision.training.live_states import task_of_states
from bertvision.workflows.search import finalists, tunings
from bertvision.workflows.search import trials as search_trials
from bertvision.workflows.search.finalists import Finalist, FinalRanking
from bertvision.workflows.search.heads import SearchBudget, search, space_for_states
from bertvision.workflows.search.trials import Candidate

pytest.importorskip("optuna", reason="needs the extra search")

Call = Callable[..., Any]
QUICK = ("--set", "fit.epochs=2", "--set", "fit.batch=8")
FEW = ("--heads", "compress", "probe:layers=last1", "--seeds", "0,1", "--space", "compress.size=2|4")


@pytest.fixture
def run(text_run: Path, tmp_path: Path) -> Path:
    """A separate run for every search, on the shared store."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "source.json").write_text(json.dumps({"store": str(text_run / "store")}), encoding="utf-8")
    return folder


def test_result_shows_the_winner_and_the_defaults(call: Call, run: Path) -> None:
    command = ("search", run, *FEW, "--trials", 6, "--together", 3, *QUICK)
    document = call(*command, "--json").document()
    assert (document["trials"], document["dev_looks"]) == (6, 1)
    assert [row["spec"] for row in document["defaults"]] == ["compress:size=64", "probe:layers=last1"]
    entered = [row["inner"] for row in (*document["finalists"], *document["defaults"])]
    assert document["winner"]["inner"] == max(entered)
    assert len(document["winner"]["dev_by_seed"]) == 2
    assert document["winner"]["spec"] in document["command"]
    for name in ("search-history", "search-importance"):
        assert (run / "analysis" / f"{name}-{document['tag']}.svg").exists()
    again = call(*command)
    assert "6 trials already done" in again.err
    assert "reusing the previous outcome" in again.err
    assert "winner" in again.out
    more = call(*command[:-4], "--trials", 7, *QUICK, "--json").document()
    assert (more["trials"], more["dev_looks"]) == (7, 2)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([[0, 1], [0, 1]], "minus probe: "), ([[1], [0]], "minus probe (each with its best seed on inner): ")],
)
def test_result_text_names_the_compared_rows(seeds: list[list[int]], message: str) -> None:
    row = {"inner": 2.0, "dev": 3.0, "spec": "compress", "fit": {}}
    facts = {"against": "probe", "difference": 1.0, "low": None, "high": None, "p": 0.5, "seeds": seeds}
    document = {"metric": "f1", "trials": 2, "winner": row, "defaults": [row], "difference": facts, "seeds": [0, 1]}
    document |= {"default_wins": False, "dev_looks": 1, "command": "c"}
    assert message in search_result(document, Path("run"))[1]


def test_default_wins_if_no_trial_is_better(label_store: Store, tmp_path: Path) -> None:
    def run_search(rate: float, rates: str) -> dict[str, Any]:
        space = space_for_states(label_store, ["probe:layers=last1"], [rates])
        return search(
            tmp_path, label_store, space, FitConfig(epochs=6, batch=8, lr=rate), SearchBudget(trials=2, seeds=(0, 1))
        )

    document = run_search(0.03, "fit.lr=1e-7|2e-7")
    assert document["winner"] == document["defaults"][0]
    assert document["winner"]["inner"] > max(row["inner"] for row in document["finalists"])
    assert (document["default_wins"], document["difference"], document["winner"]["fit"]) == (True, None, {})
    message = "no trial beats the default probe:layers=last1 on inner"
    assert message in search_result(document, tmp_path)[1]
    better = run_search(1e-7, "fit.lr=0.02|0.03")
    assert (better["default_wins"], better["difference"]["against"]) == (False, "probe:layers=last1")
    assert message not in search_result(better, tmp_path)[1]


def test_default_wins_a_tie() -> None:
    tried, usual, worse = (Candidate(name, FitConfig()) for name in ("tried", "usual", "worse"))
    ends = [Finalist(usual, (), (2.0, 4.0)), Finalist(worse, (), (1.0,)), Finalist(tried, (), (3.0, 3.0))]
    ranking = FinalRanking(ends, frozenset([tried]), frozenset([usual, worse]))
    assert (ranking.winner.candidate, ranking.beaten, ranking.default_wins) == (usual, None, True)
    ahead = FinalRanking([*ends[:2], Finalist(tried, (), (3.0, 3.1))], ranking.tried, ranking.default)
    assert (ahead.winner.candidate, ahead.beaten, ahead.default_wins) == (tried, ends[0], False)
    assert [finalist.candidate for finalist in ahead.shown] == [tried, usual, worse]


@pytest.mark.parametrize("together", [1, 2, 8])
def test_together_limits_the_heads_in_memory(run: Path, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    fitted, scored = [], []
    train_epochs, predict = finalists.train_epochs, finalists.predict
    monkeypatch.setattr(
        finalists, "train_epochs", lambda passed, *given: fitted.append(len(passed)) or train_epochs(passed, *given)
    )
    monkeypatch.setattr(
        finalists, "predict", lambda passed, split: scored.append(len(passed)) or predict(passed, split)
    )
    states = run_states(run)
    space = space_for_states(states, ["probe", "mean-pool"], ["fit.lr=0.001|0.002"])
    plan = SearchBudget(trials=2, heads_per_pass=together, seeds=(0, 1, 2))
    document = search(run, states, space, FitConfig(epochs=1, batch=8), plan)
    heads = len({row["spec"] for row in document["defaults"]}) + len(document["finalists"])
    shown = len(document["defaults"]) + (not document["default_wins"])
    assert (sum(fitted), sum(scored)) == (3 * heads, 3 * shown)
    assert (len(fitted), len(scored)) == (-(-3 * heads // together), -(-3 * shown // together))
    assert max(*fitted, *scored) <= together
    scores = [row["dev_by_seed"] for row in (document["winner"], *document["defaults"])]
    alone = [fit([row["spec"]], states, plan.seeds, FitConfig(epochs=1, batch=8)) for row in document["defaults"]]
    task = task_of_states(states)
    for heads_of, expected in zip(alone, scores[1:], strict=True):
        dev_scores = [
            score_predictions(task, predictions).result.scores[task.metric]
            for predictions in predict(heads_of, states["dev"])
        ]
        assert dev_scores == expected
    assert all(weight.grad is None for head in alone[0] for weight in head.head.parameters())


def test_dev_is_read_once_and_only_at_the_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = run_states(run)
    read_splits: list[str] = []
    whole = type(states).__getitem__
    monkeypatch.setattr(type(states), "__getitem__", lambda self, name: read_splits.append(name) or whole(self, name))
    space = space_for_states(states, ["probe"], [])
    search(run, states, space, FitConfig(epochs=1, batch=8), SearchBudget(trials=3, heads_per_pass=2, seeds=(0,)))
    first = read_splits.index("dev")
    assert "train" not in read_splits[first:]
    assert read_splits.count("train") > 3


def test_interrupted_search_resumes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = run_states(run)
    task, space = task_of_states(states), space_for_states(states, ["compress"], ["compress.size=2|4|8"])
    config, path = FitConfig(epochs=2, batch=8), run / "search" / "study.db"
    trials = search_trials.HeadStudy(path, states, task, space, config)
    trials.run(2)
    interrupted_specs = []

    def stop(runners: Any, *_: Any) -> Any:
        interrupted_specs.extend(runner.spec for runner in runners)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search_trials, "train_epochs", stop)
        with pytest.raises(KeyboardInterrupt):
            trials.run(3)
    again = search_trials.HeadStudy(path, states, task, space, config)
    assert again.done == 2
    again.run(3)
    assert again.done == 5
    assert sorted(trial.spec for trial in again.tried()[2:]) == sorted(interrupted_specs), "they run first"
    sizes = {trial.settings["compress.size"] for trial in again.tried()}
    assert sizes <= {2, 4, 8}, "the default 64 is not in the space"
    other = search_trials.HeadStudy(
        path, states, task, space_for_states(states, ["compress"], ["compress.size=2|4"]), config
    )
    assert other.done == 0
    assert search_trials.HeadStudy(path, states, task, space, config, seed=1).done == 0


def test_interrupt_swallowed_by_a_library_still_ends_the_search(
    call: Call, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = search_trials.HeadStudy.run

    def run_after_interrupt(trials: search_trials.HeadStudy, count: int) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        real(trials, count)

    monkeypatch.setattr(search_trials.HeadStudy, "run", run_after_interrupt)
    result = call("search", run, *FEW, "--trials", 4, "--together", 2, *QUICK)
    assert (result.code, result.out) == (130, "")
    assert "search: 2 of 4 trials" in result.err


def test_concurrent_search_is_refused_and_harms_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = run_states(run)
    space, config = space_for_states(states, ["probe"], []), FitConfig(epochs=1, batch=8)
    plan = SearchBudget(trials=2, heads_per_pass=2, seeds=(0,))
    train_epochs, errors = search_trials.train_epochs, []

    def meanwhile(*given: Any) -> Any:
        with pytest.raises(BadInput) as refused:
            search(run, states, space, config, plan)
        errors.append(str(refused.value))
        return train_epochs(*given)

    monkeypatch.setattr(search_trials, "train_epochs", meanwhile)
    assert search(run, states, space, config, plan)["trials"] == 2
    assert re.fullmatch(
        rf"search {run}/search is being written by process {os.getpid()} on .*; wait for it.*", errors[0]
    )
    trials = search_trials.HeadStudy(search_trials.study_path(run), states, task_of_states(states), space, config)
    assert [trial.state.name for trial in trials.study.get_trials()] == ["COMPLETE", "COMPLETE"]
    assert not (run / "search" / "lock").exists()


def test_killed_search_leaves_no_lock(run: Path) -> None:
    held = "import os, sys; from pathlib import Path; from bertvision.workflows.search.trials import lock_search"
    code = f"{held}\nwith lock_search(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(run)], timeout=120).returncode == -9
    assert (run / "search" / "lock").exists()
    with search_trials.lock_search(run):
        pass


def test_trial_scores_equal_those_of_separate_fits(run: Path) -> None:
    states = run_states(run)
    space = space_for_states(states, ["compress"], ["compress.size=2|4", "fit.epochs=2|3"])
    trials = search_trials.HeadStudy(run / "s.db", states, task_of_states(states), space, FitConfig(epochs=2, batch=8))
    trials.run(4)
    ranked = sorted(trials.tried(), key=lambda trial: -(trial.score or 0))
    for attempt, trial in zip(trials.best(1), ranked, strict=False):
        alone = fit([attempt.spec], states, [0], attempt.config)[0]
        assert max(point["inner"] for point in alone.history) == trial.score


def test_hopeless_trials_are_pruned(label_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_trials, "STARTUP", 2)
    states = label_store
    space = space_for_states(states, ["probe:layers=last1"], ["fit.lr=1e-7|0.03"])
    config = FitConfig(epochs=6, batch=8, lr=0.03)
    trials = search_trials.HeadStudy(tmp_path / "s.db", states, task_of_states(states), space, config)
    for _ in range(3):
        trials.run(4)
    outcomes = {trial.state for trial in trials.tried() if trial.settings["fit.lr"] == 1e-7}
    assert "pruned" in outcomes
    assert trials.best(1)[0].config.lr == 0.03


def tuning_command(data: Path, encoder: Path, out: Path) -> tuple[object, ...]:
    base = ("search", "text", "--train", data, "--encoder", encoder, "--max-length", 48)
    return (*base, "--heads", "probe", "--out", out, "--trials", 2, "--seeds", "0", *QUICK)


def test_tuning_search_keeps_the_store_of_the_best_tuning_only(
    call: Call, samples: Any, tiny_encoder_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = tuning_command(samples.write_csv(tmp_path / "my.csv"), tiny_encoder_folder, out)
    space = ("--epochs", 1, "--space", "tune.lr=1e-4|1e-2")
    document = call(*command, *space, "--tunings", 2, "--json").document()
    assert len(document["tunings"]) == 2
    assert max(row["inner"] for row in document["tunings"]) >= document["winner"]["inner"] - 1e-9
    runs = sorted((out / "search" / "tuned").iterdir())
    tried = {row["settings"]["lr"] for row in document["tunings"]}
    assert len(runs) == len(tried) == 2, "a tuning that was scored is not drawn again while others are left"
    assert sum((tuned_run / "store").exists() for tuned_run in runs) == 1
    report = Path(call("report", out, "--json").document()["report"]).read_text(encoding="utf-8")
    for title in (
        "Search: tunings",
        "Search: importance of tuning settings",
        "Search history",
        "Hyperparameter importance",
    ):
        assert f"{title}, study" in report
    assert str(document["winner"]["spec"]) in report
    assert f"use its best run: {document['run']}" in call("evaluate", out).refused()
    error = call("report", document["run"]).refused()
    assert f"bertvision run {document['run']}/recipe.toml --out {document['run']}" in error
    again = call(*command, *space, "--tunings", 2)
    assert f"best of 2 tunings on inner: lr={document['tuning']['lr']:.3g}, {document['run']}" in again.out
    # Another tuning batch size or other heads make another study; scorings of dev are counted over all studies.
    other = call(*command, *space, "--tunings", 1, "--set", "tune.batch=8", "--json").document()
    assert (len(other["tunings"]), other["dev_looks"]) == (1, 2)
    heads = call(*command, *space, "--tunings", 1, "--heads", "mean-pool", "--json").document()
    assert (len(heads["tunings"]), heads["dev_looks"]) == (1, 3)
    rates = ("fit.lr=1e30|1e31", "--set", "fit.clip=1e30")
    assert "none of 2 trials has a score" in call(*command, *space, *rates, "--tunings", 1).refused()
    assert "set how many with --tunings N" in call(*command, *space).refused()
    assert "needs a tune setting in --space, got none" in call(*command, "--tunings", 2).refused()


def test_report_shows_tunings_and_the_search_of_the_run(
    call: Call, text_run: Path, samples: Any, tiny_encoder_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(text_run, run)
    own = call("search", run, "--heads", "probe", "--trials", 2, "--seeds", "0", *QUICK, "--json").document()
    before = {path: path.read_bytes() for path in (run / "analysis").glob("search-*")}
    assert before
    space = ("--epochs", 0, "--space", "tune.lr=1e-4", "--tunings", 1)
    document = call(*tuning_command(text_run.parent / "my.csv", tiny_encoder_folder, run), *space, "--json").document()
    report = (run / "report.html").read_text(encoding="utf-8")
    for title in ("Search: tunings", "Search: importance of tuning settings", f"Search history, study {own['tag']}"):
        assert title in report
    assert {path: path.read_bytes() for path in before} == before
    assert (Path(document["run"]) / "analysis" / f"search-history-{document['tag']}.json").exists()
    other = tuning_command(samples.write_csv(tmp_path / "other.csv", rows=30), tiny_encoder_folder, run)
    assert "is a run on other data" in call(*other, *space).refused()


def test_studies_keep_separate_outcomes(call: Call, run: Path) -> None:
    def run_search(head: str) -> Any:
        options = ("--heads", head, "--trials", 2, "--seeds", "0", *QUICK)
        return call("search", run, *options, "--json").document()

    first, second, again = run_search("probe"), run_search("mean-pool"), run_search("probe")
    assert (first["dev_looks"], second["dev_looks"]) == (1, 2)
    assert again == {**first, "dev_looks": 2}  # dev is not scored again
    assert json.loads((run / "search" / "result.json").read_text(encoding="utf-8")) == again
    kept = {path.name for path in (run / "analysis").glob("search-history-*.json")}
    assert kept == {f"search-history-{document['tag']}.json" for document in (first, second)}


def test_tuning_search_uses_the_default_settings_of_each_method(
    call: Call, samples: Any, tiny_encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(tunings, "prepare_run", lambda recipe, *_: made.append(recipe.tune) or stop())

    def stop() -> None:
        raise BadInput("far enough")

    command = tuning_command(samples.write_csv(tmp_path / "my.csv"), tiny_encoder_folder, tmp_path / "run")
    space = ("--space", "tune.method=adapters:size=2", "--tunings", 1)
    call(*command, *space).refused()
    assert (made[-1].method, made[-1].epochs, made[-1].lr) == ("adapters:size=2", 50.0, 1e-4)
    call(*command, *space, "--set", "tune.epochs=2").refused()
    assert (made[-1].epochs, made[-1].lr) == (2.0, 1e-4)
    for method in ("freeze:k=9", "nothing"):
        error = call(*command, "--space", f"tune.method=full|{method}", "--tunings", 1).refused()
        assert f"--space tune.method=full|{method}: {method} is not valid" in error
    assert len(made) == 2
    drawn = "mean-pool|compress:size=4,skip=true"
    call(*command, "--space", f"tune.head={drawn}", "tune.method=full|bitfit", "--tunings", 1).refused()
    assert made[-1].head in drawn.split("|")
    for head, why in (("nothing", "no head named"), ("7", "expected str"), ("compress:size=0", "at least 1")):
        error = call(*command, "--space", f"tune.head=probe|{head}", "--tunings", 1).refused()
        assert f"--space tune.head=probe|{head}: {head} is not valid: " in error
        assert why in error
    both = ("--space", "tune.method=full|adapters:size=2,head=tanh", "tune.head=probe", "--tunings", 1)
    assert "tune.head=probe: probe is not valid: tune method adapters" in call(*command, *both).refused()
    assert len(made) == 3
    assert "epochs is -1" in call(*command, "--space", "tune.epochs=-1..2", "--tunings", 1).refused()
    assert "x is not valid" in call(*command, "--space", "probe.read=x", "tune.lr=1|2", "--tunings", 1).refused()


def test_search_from_a_task_can_be_continued_on_its_run(
    call: Call, samples: Any, tiny_encoder_folder: Path, tmp_path: Path
) -> None:
    command = tuning_command(samples.write_csv(tmp_path / "my.csv"), tiny_encoder_folder, tmp_path / "run")
    bad = call(*command, "--epochs", 0, "--space", "probe.layers=last9")
    assert "last9 is not valid" in bad.refused()
    assert not (tmp_path / "run").exists()
    assert call(*command, "--epochs", 0, "--json").document()["dev_looks"] == 1
    again = call("search", tmp_path / "run", "--heads", "probe", "--trials", 2, "--seeds", "0")
    assert "reusing the previous outcome" in again.err


@pytest.mark.parametrize("live", [False, True])
def test_command_of_the_winner_reproduces_its_dev_scores(
    call: Call, text_run: Path, samples: Any, tiny_encoder_folder: Path, tmp_path: Path, live: bool
) -> None:
    run = tmp_path / "my run"
    if live:
        samples.write_csv(tmp_path / "my.csv")
        call(*samples.text_words(tmp_path, tiny_encoder_folder), "--live", "--out", run)
    else:
        shutil.copytree(text_run, run)
    before = {path: path.read_bytes() for path in (run / "leaderboard.json", *(run / "heads").rglob("*.json"))}
    few = ("--heads", "learned-pool", "--space", "fit.lr=0.01|0.02", "--trials", 2, "--seeds", "0,1")
    document = call("search", run, *few, "--json").document()
    assert "Search history" in (run / "report.html").read_text(encoding="utf-8")
    command = shlex.split(document["command"])
    assert command[0] == "bertvision"
    if not live:
        shutil.copytree(run / "encoder", Path(command[-1]) / "encoder")  # as docs/how-to/search.md says
    board = call(*command[1:], "--json").document()
    rows = [row for row in board["rows"] if row["name"] == document["winner"]["spec"]]
    assert sorted(row["seed"] for row in rows) == [0, 1]
    assert {row["seed"]: row["scores"][board["metric"]] for row in rows} == pytest.approx(
        dict(enumerate(document["winner"]["dev_by_seed"]))
    )
    assert Path(command[-1]).parent == run / "search"
    assert (Path(command[-1]) / "model").is_dir()
    assert {path: path.read_bytes() for path in before} == before


def test_quick_heads_are_expanded_for_a_run(call: Call, run: Path) -> None:
    command = ("search", run, "--heads", "quick", "--trials", 4, "--seeds", "0", *QUICK, "--json")
    document = call(*command).document()
    assert [row["spec"] for row in document["defaults"]] == ["compress:size=64"]


def test_run_rejects_options_of_tasks(call: Call, run: Path) -> None:
    for options in (["--out", "x"], ["--epochs", "1"], ["--encoder", "e"], ["--data", "d"], ["--set", "tune.lr=1"]):
        error = call("search", run, *options).refused()
        option = " ".join(options) if options[0] == "--set" else options[0]
        assert f"{run} is a run folder, whose data, encoder and tuning are fixed: {option} does not apply" in error


def test_search_without_a_score_says_what_to_do(run: Path) -> None:
    states = run_states(run)
    space = space_for_states(states, ["probe"], ["fit.lr=1e30|1e31"])
    config = FitConfig(epochs=1, batch=8, clip=1e30)
    with pytest.raises(BadInput, match=r"search in .*run: none of 2 trials has a score .* try smaller learning rates"):
        search(run, states, space, config, SearchBudget(trials=2, heads_per_pass=2, seeds=(0,)))


def test_file_that_is_not_a_study_is_an_error(call: Call, run: Path) -> None:
    (run / "search").mkdir()
    (run / "search" / "study.db").write_text("no database, and long enough to be sure of that" * 50, encoding="utf-8")
    error = call("search", run, *FEW, "--trials", 1).refused()
    assert f"{run}/search/study.db is not an Optuna study: file is not a database; delete it" in error


def test_damaged_run_is_refused_before_the_first_trial(call: Call, run: Path) -> None:
    (run / "report.html").write_text("", encoding="utf-8")
    (run / "leaderboard.json").write_text("{", encoding="utf-8")
    result = call("search", run, *FEW, "--trials", 1)
    assert "leaderboard.json cannot be read" in result.refused()
    assert "search:" not in result.err


def test_invalid_search_spaces_are_refused(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def error_of(*space: str) -> str:
        return str(call("search", run, "--heads", "compress", "--space", *space).refused())

    assert "no option named 'sise'. Did you mean 'size'?" in error_of("compress.sise=2")
    assert "no setting named 'lrr'" in error_of("fit.lrr=1")
    assert "no section named 'probe'" in error_of("probe.layers=all")
    assert "two numbers, the smaller first" in error_of("fit.lr=1..0.1")
    assert "expected fit.lr=" in error_of("fit.lr")
    assert "a is not valid: fit: lr: got 'a', expected float; leave it out" in error_of("fit.lr=a|b")
    assert "0 is not valid: fit.batch is 0; expected at least 1" in error_of("fit.batch=0|32")
    assert "2.5 is not valid" in error_of("fit.epochs=2.5..4")
    assert "size='x', expected int" in error_of("compress.size=x|y")
    assert "-1 is not valid" in error_of("compress.size=-1|4")
    assert "given twice" in error_of("fit.lr=1e-3|1e-2", "fit.lr=1e-4|1e-2")
    fixed = call("search", run, "--heads", "compress:size=4", "--space", "compress.size=2|4").refused()
    assert "--space compress.size=2|4: compress:size=4 fixes size; remove it from the spec" in fixed
    assert "needs --out" in call("search", "text").refused()
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install -e '.[search]'" in call("search", run).refused()
