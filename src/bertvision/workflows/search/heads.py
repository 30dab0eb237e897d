"""Search over heads and their settings, chosen on inner; dev is looked at once, for the winner and the defaults."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bertvision.core.config import FitConfig, Recipe
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields, read_json_or_empty, write_json
from bertvision.core.progress import log_line
from bertvision.core.registry import choose_layers, write_value
from bertvision.core.runtime import graceful_interrupt
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.analyses.search_history import of_study, search_history, search_importance
from bertvision.evaluation.leaderboard import compare
from bertvision.heads.base import canonical_spec
from bertvision.runs.folder import SEARCHED, store_place
from bertvision.runs.reader import gather, store_origin
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.inputs import task_shape
from bertvision.training.live_states import LiveStates, states_task
from bertvision.workflows.conclude import renew_report
from bertvision.workflows.file_analyses import write_finding
from bertvision.workflows.search.finalists import Final, Look, Standings, fit_finals, look_at_dev
from bertvision.workflows.search.space import Ground, Space, named_heads, space_of
from bertvision.workflows.search.trials import PLACE, Attempt, Trials, only_search, study_path, study_tag

FINALISTS = 3
"""The best trials that are fitted again with every seed, beside the defaults, before any is called the winner."""


@dataclass(frozen=True)
class Plan:
    """What a search may spend."""

    trials: int = 30
    together: int = 8  # heads in memory, which share a read of the states
    seeds: tuple[int, ...] = (0, 1, 2)  # of the finalists and the defaults
    seed: int = 0


def search(folder: Path, states: States, space: Space, config: FitConfig, plan: Plan) -> dict[str, Any]:
    """Try heads and settings on a store, in ``RUN/search``; the outcome, with dev looked at once."""
    with only_search(folder):
        return _search(folder, states, space, config, plan)


def _search(folder: Path, states: States, space: Space, config: FitConfig, plan: Plan) -> dict[str, Any]:
    if (folder / "report.html").exists():
        gather(folder, states_task(states))  # what a report in the end could not be made from is refused now
    trials = run_trials(folder, states, space, config, plan)
    document = _known(folder, trials, plan) or _outcome(folder, trials, plan)
    keep_outcome(folder, trials.name, document)
    tried = trials.tried()
    findings = (search_history(tried, trials.task.metric), search_importance(tried))
    show(folder, trials.name, findings, store_origin(states.manifest))
    return document


def keep_outcome(folder: Path, study: str, document: Mapping[str, Any]) -> None:
    """``result.json`` is what the last search came to; of every study its own is kept, for whoever returns to it."""
    for path in (folder / SEARCHED, _own_outcome(folder, study)):
        write_json(path, document)


def _own_outcome(folder: Path, study: str) -> Path:
    return folder / PLACE / f"result-{study_tag(study)}.json"


def dev_looks(folder: Path) -> int:
    """How often dev was looked at, over all searches in a run."""
    return int(read_json_or_empty(folder / SEARCHED).get("dev_looks", 0))


def show(folder: Path, study: str, findings: Sequence[Finding], origin: str) -> None:
    """How a study went, as pictures and data, in ``RUN/analysis``, and in the report where there is one."""
    for one in findings:
        write_finding(folder, of_study(one, study_tag(study)), origin)
    if (folder / "report.html").exists():
        log_line(f"report: {renew_report(folder)}")


def run_trials(folder: Path, states: States, space: Space, config: FitConfig, plan: Plan) -> Trials:
    """As many trials as planned, less what was done before."""
    task = states_task(states)
    trials = Trials(study_path(folder), states, task, space, config, plan.seed)
    if trials.done:
        log_line(f"search: {trials.done} trials were done before")
    with graceful_interrupt(at_once=True) as asked:
        while (done := trials.done) < plan.trials:
            trials.more(min(plan.together, plan.trials - done))
            found = [one.score for one in trials.tried() if one.score is not None]
            best = f"best inner {task.metric} {max(found):.2f}" if found else "nothing fitted yet"
            log_line(f"search: {trials.done} of {plan.trials} trials, {best}")
            if asked():
                raise KeyboardInterrupt
    return trials


def _known(folder: Path, trials: Trials, plan: Plan) -> dict[str, Any] | None:
    """The outcome of the same trials and seeds: dev is not looked at again."""
    before = read_json_or_empty(_own_outcome(folder, trials.name))
    same = (before.get("study"), before.get("trials"), before.get("seeds"))
    if same != (trials.name, trials.done, list(plan.seeds)):
        return None
    log_line("search: nothing new to try, the outcome is as before")
    command = _command(folder, before["winner"], trials, plan.seeds)
    return {**before, "dev_looks": dev_looks(folder), "command": command}


def _outcome(folder: Path, trials: Trials, plan: Plan) -> dict[str, Any]:
    """The last round, and what dev says of its winner and of the defaults."""
    states, task, plain = trials.states, trials.task, _plain(trials)
    found = _last_round(trials, plan)
    if found is None:
        raise BadInput(no_score(folder, trials.done))
    compared = [] if found.beaten is None else [found.winner.attempt, found.beaten.attempt]
    looks = look_at_dev(found.shown, compared, plan.together, states, task)
    row = _row(found.winner, looks, plain)
    return {
        "task": task.name,
        "metric": task.metric,
        "study": trials.name,
        "tag": study_tag(trials.name),
        "trials": trials.done,
        "seeds": list(plan.seeds),
        "winner": row,
        "default_wins": found.default_wins,
        "defaults": [_row(one, looks, plain) for one in found.defaults],
        "difference": None if found.beaten is None else _difference(found.winner, found.beaten, looks, task),
        "finalists": [_told(one, plain) for one in found.finalists],
        "dev_looks": dev_looks(folder) + 1,
        "command": _command(folder, row, trials, plan.seeds),
    }


def _last_round(trials: Trials, plan: Plan) -> Standings | None:
    """The best trials and the defaults with every seed; nothing where no trial came to a score."""
    finalists = trials.best(FINALISTS)
    defaults = [Attempt(canonical_spec(head), _plain(trials)) for head in trials.space.heads]
    entered = [*defaults, *finalists] if finalists else []
    finals = fit_finals(entered, plan.seeds, plan.together, trials.states, trials.task)
    return Standings(finals, frozenset(finalists), frozenset(defaults)) if finals else None


def no_score(folder: Path, count: int) -> str:
    """What to say where every trial diverged or could not be fitted."""
    return (
        f"search in {folder}: none of {count} trials came to a score on inner, expected at least one; all diverged "
        "or were refused (see the lines above): try smaller rates, --space fit.lr=1e-5..1e-3, or other --heads"
    )


def _told(one: Final, plain: FitConfig) -> dict[str, Any]:
    facts = {"spec": one.attempt.spec, "fit": changed(one.attempt.config, plain)}
    return {**facts, "inner": one.mean, "inner_by_seed": list(one.inner), "parameters": one.fitted[0].parameters}


def _row(one: Final, looks: Mapping[Attempt, Look], plain: FitConfig) -> dict[str, Any]:
    look = looks[one.attempt]
    return {**_told(one, plain), "dev": look.mean, "dev_by_seed": look.scores}


def _difference(winner: Final, best: Final, looks: Mapping[Attempt, Look], task: Task) -> dict[str, Any]:
    """The winner minus the best default on inner, on the same examples of dev."""
    found = compare(looks[winner.attempt].told, looks[best.attempt].told, task)
    facts = {key: getattr(found, key) for key in ("difference", "low", "high", "p")}
    return {"against": best.attempt.spec, **facts, "seeds": [list(found.a_seeds), list(found.b_seeds)]}


def changed(config: FitConfig, plain: FitConfig) -> dict[str, Any]:
    """Settings that differ from those that the search began with."""
    usual = asdict(plain)
    return {key: value for key, value in asdict(config).items() if value != usual[key]}


def _plain(trials: Trials) -> FitConfig:
    """What heads are fitted with where nothing is searched."""
    return replace(trials.config, rates=())


def _command(folder: Path, winner: Mapping[str, Any], trials: Trials, seeds: Sequence[int]) -> str:
    """What fits the winner, with a leaderboard of its own.

    On the run's board it would stand beside a control that was fitted with other settings, or replace that one.
    """
    config = replace(_plain(trials), **winner["fit"])
    out = folder / PLACE / f"winner-{hash_json([winner['spec'], hashed_fields(config)])[:8]}"
    live = isinstance(trials.states, LiveStates)
    words = ["bertvision", *(_live_words(folder) if live else ["fit", str(store_place(folder))])]
    words += ["--heads", winner["spec"], "--seeds", ",".join(map(str, seeds))]
    usual = {} if live else asdict(FitConfig())  # a recipe has settings of its own
    settings = {key: value for key, value in asdict(config).items() if key != "rates" and value != usual.get(key)}
    words += [word for key, value in settings.items() for word in ("--set", f"fit.{key}={write_value(value)}")]
    return shlex.join([*words, "--out", str(out)])


def _live_words(folder: Path) -> list[str]:
    """There is no store to fit on: the run's encoder is put to work again, as it is."""
    tuned = ["--encoder", str(folder / "encoder"), "--method", "full", "--epochs", "0"]
    return ["run", str(folder / "recipe.toml"), *tuned]


def states_ground(states: States) -> Ground:
    return Ground(states.shape, next(states["inner"].batches(1)).pooled is not None, states.tokens)


def recipe_ground(recipe: Recipe, task: Task, encoder: Encoder) -> Ground:
    """The same of states that are not made yet, so that a bad --space is found before anything is tuned."""
    layers = len(choose_layers(recipe.extract.layers, encoder.layers))
    return Ground(task_shape(task, layers, encoder.width), encoder.has_pooler, recipe.extract.tokens)


def states_space(states: States, heads: Sequence[str], typed: Sequence[str]) -> Space:
    """What can be tried on these states."""
    ground = states_ground(states)
    return space_of(named_heads(heads, ground), ground, typed)
