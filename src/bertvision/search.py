"""Search over heads and their settings, chosen on inner; dev is looked at once, for the winner and the defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bertvision.analyse.trials import search_history, search_importance
from bertvision.config import FitConfig
from bertvision.errors import BadInput
from bertvision.findings import write_finding
from bertvision.heads.base import canonical_spec
from bertvision.records import Compared, Predictions
from bertvision.registry import write_value
from bertvision.report.facts import store_origin, store_place
from bertvision.runtime import known_json, say, write_json
from bertvision.spaces import Space, space_of
from bertvision.steps.evaluate import compare
from bertvision.steps.fit import begin_fit, fit_epochs
from bertvision.steps.fitted import FittedHead
from bertvision.steps.judge import judge_predictions
from bertvision.steps.live import states_task
from bertvision.steps.predict import predict
from bertvision.store.split import States
from bertvision.tasks.base import Task
from bertvision.trying import Attempt, Trials

PLACE = "search"
RESULT = "result.json"
FINALISTS = 3
"""The best trials that are fitted again with every seed before one of them is called the winner."""


@dataclass(frozen=True)
class Plan:
    """What a search may spend."""

    trials: int = 30
    together: int = 8  # trials that share a read of the states
    seeds: tuple[int, ...] = (0, 1, 2)  # of the finalists and the defaults
    seed: int = 0


@dataclass(frozen=True)
class Final:
    """Settings that were fitted with every seed; of some a seed may have diverged."""

    attempt: Attempt
    fitted: tuple[FittedHead, ...]
    inner: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.inner)


def search(folder: Path, states: States, space: Space, config: FitConfig, plan: Plan) -> dict[str, Any]:
    """Try heads and settings on a store, in ``RUN/search``; the outcome, with dev looked at once."""
    task = states_task(states)
    trials = run_trials(folder / PLACE / "study.db", states, task, space, config, plan)
    known = _known(folder, trials, plan)
    if known is not None:
        say("search: nothing new to try, the outcome is as before")
        return known
    document = _outcome(folder, trials, plan)
    tried = trials.tried()
    for one in (search_history(tried, task.metric), search_importance(tried)):
        write_finding(folder, one, store_origin(states.manifest))
    write_json(folder / PLACE / RESULT, document)
    return document


def run_trials(path: Path, states: States, task: Task, space: Space, config: FitConfig, plan: Plan) -> Trials:
    """As many trials as planned, less what was done before."""
    trials = Trials(path, states, task, space, config, plan.seed)
    if trials.done:
        say(f"search: {trials.done} trials were done before")
    while (done := trials.done) < plan.trials:
        trials.more(min(plan.together, plan.trials - done))
        found = [one.score for one in trials.tried() if one.score is not None]
        best = f"best inner {task.metric} {max(found):.2f}" if found else "nothing fitted yet"
        say(f"search: {trials.done} of {plan.trials} trials, {best}")
    return trials


def _known(folder: Path, trials: Trials, plan: Plan) -> dict[str, Any] | None:
    """The outcome of the same trials and seeds: dev is not looked at again."""
    before = known_json(folder / PLACE / RESULT)
    same = (before.get("study"), before.get("trials"), before.get("seeds"))
    return before if same == (trials.name, trials.done, list(plan.seeds)) else None


def _outcome(folder: Path, trials: Trials, plan: Plan) -> dict[str, Any]:
    """The finalists and the defaults with every seed; the winner among the former is the best on inner."""
    states, task = trials.states, trials.task
    finalists = trials.best(FINALISTS)
    if not finalists:
        raise BadInput("no trial came to a score; look at the lines above, and narrow --space")
    plain = replace(trials.config, rates=())
    defaults = [Attempt(canonical_spec(head), plain) for head in trials.space.heads]
    finals = {one.attempt: one for one in fit_finals([*finalists, *defaults], plan.seeds, states, task)}
    winner = max((finals[one] for one in finalists if one in finals), key=lambda one: one.mean)
    usual = [finals[one] for one in dict.fromkeys(defaults) if one in finals]
    shown = {one.attempt: one for one in (winner, *usual)}
    told = {attempt: predict(one.fitted, states["dev"]) for attempt, one in shown.items()}
    best = max(usual, key=lambda one: one.mean, default=None)
    return {
        "task": task.name,
        "metric": task.metric,
        "study": trials.name,
        "trials": trials.done,
        "seeds": list(plan.seeds),
        "winner": _row(winner, told[winner.attempt], task, plain),
        "defaults": [_row(one, told[one.attempt], task, plain) for one in usual],
        "difference": None if best is None or best is winner else _difference(winner, best, told, task),
        "finalists": [_told(finals[one], plain) for one in finalists if one in finals],
        "dev_looks": known_json(folder / PLACE / RESULT).get("dev_looks", 0) + 1,
        "command": _command(folder, winner.attempt, plain, plan.seeds),
    }


def fit_finals(attempts: Sequence[Attempt], seeds: Sequence[int], states: States, task: Task) -> list[Final]:
    """Settings x seeds, together as far as they share the size of batches."""
    groups: dict[int, list[Attempt]] = {}
    for one in dict.fromkeys(attempts):
        groups.setdefault(one.config.batch, []).append(one)
    found = []
    for group in groups.values():
        runners = {(one, s): begin_fit(one.spec, s, states, one.config, task) for one in group for s in seeds}
        for _ in fit_epochs(list(runners.values()), states, task):
            pass
        for one in group:
            good = [runners[one, seed] for seed in seeds if runners[one, seed].best]
            fitted = tuple(runner.result(tuple(states.layers)) for runner in good)
            found += [Final(one, fitted, tuple(runner.best_score for runner in good))] if good else []
    return found


def _told(one: Final, plain: FitConfig) -> dict[str, Any]:
    facts = {"spec": one.attempt.spec, "fit": changed(one.attempt.config, plain)}
    return {**facts, "inner": one.mean, "inner_by_seed": list(one.inner), "parameters": one.fitted[0].parameters}


def _row(one: Final, told: Sequence[Predictions], task: Task, plain: FitConfig) -> dict[str, Any]:
    dev = [judge_predictions(task, member).verdict.scores[task.metric] for member in told]
    return {**_told(one, plain), "dev": fmean(dev), "dev_by_seed": dev}


def _difference(winner: Final, best: Final, told: dict[Attempt, list[Predictions]], task: Task) -> dict[str, Any]:
    """The winner minus the best default on inner, on the same examples of dev."""
    found: Compared = compare(told[winner.attempt], told[best.attempt], task)
    facts = {key: getattr(found, key) for key in ("difference", "low", "high", "p")}
    return {"against": best.attempt.spec, **facts, "seeds": [list(found.a_seeds), list(found.b_seeds)]}


def changed(config: FitConfig, plain: FitConfig) -> dict[str, Any]:
    """Settings that differ from those that the search began with."""
    usual = asdict(plain)
    return {key: value for key, value in asdict(config).items() if value != usual[key]}


def _command(folder: Path, one: Attempt, plain: FitConfig, seeds: Sequence[int]) -> str:
    """What fits the winner onto the leaderboard of its run."""
    settings = {key: value for key, value in asdict(one.config).items() if value != asdict(FitConfig())[key]}
    sets = "".join(f" --set fit.{key}={write_value(value)}" for key, value in settings.items() if key != "rates")
    listed = ",".join(map(str, seeds))
    return f"bertvision fit {store_place(folder)} --head {one.spec} --seeds {listed}{sets} --out {folder}"


def states_space(states: States, heads: Sequence[str], typed: Sequence[str]) -> Space:
    """What can be tried on these states."""
    pooled = next(states["inner"].batches(1)).pooled is not None
    return space_of(heads, states.shape, pooled, typed)
