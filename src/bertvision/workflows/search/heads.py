"""Search over heads and their settings, chosen on inner; only the winner and the defaults are scored on dev."""

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
from bertvision.evaluation.analyses.search_history import search_history, search_importance, with_study_name
from bertvision.evaluation.leaderboard import compare
from bertvision.heads.base import canonical_spec
from bertvision.runs.folder import SEARCH_RESULT, store_folder
from bertvision.runs.reader import gather, store_origin
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.inputs import task_shape
from bertvision.training.live_states import LiveStates, task_of_states
from bertvision.workflows.conclude import update_report
from bertvision.workflows.file_analyses import write_finding
from bertvision.workflows.search.finalists import DevScores, Finalist, FinalRanking, fit_finalists, score_on_dev
from bertvision.workflows.search.space import FeatureInfo, Space, build_space, expand_head_names
from bertvision.workflows.search.trials import PLACE, Candidate, HeadStudy, lock_search, study_path, study_tag

FINALISTS = 3
"""The best trials that are fitted again with every seed, beside the defaults, before a winner is chosen."""


@dataclass(frozen=True)
class SearchBudget:
    """What a search may spend."""

    trials: int = 30
    heads_per_pass: int = 8  # heads in memory, which share a read of the states
    seeds: tuple[int, ...] = (0, 1, 2)  # of the finalists and the defaults
    seed: int = 0


def search(folder: Path, states: States, space: Space, config: FitConfig, plan: SearchBudget) -> dict[str, Any]:
    """Try heads and settings on a store, in ``RUN/search``; the outcome, with dev scored once at the end."""
    with lock_search(folder):
        if (folder / "report.html").exists():
            gather(folder, task_of_states(states))  # fail now if the report cannot be made at the end
        trials = run_trials(folder, states, space, config, plan)
        document = _known_outcome(folder, trials, plan) or _outcome(folder, trials, plan)
        save_outcome(folder, trials.name, document)
        tried = trials.tried()
        findings = (search_history(tried, trials.task.metric), search_importance(tried))
        show(folder, trials.name, findings, store_origin(states.manifest))
        return document


def run_trials(folder: Path, states: States, space: Space, config: FitConfig, plan: SearchBudget) -> HeadStudy:
    """Run the planned number of trials, less those that were done before."""
    task = task_of_states(states)
    trials = HeadStudy(study_path(folder), states, task, space, config, plan.seed)
    if trials.done:
        log_line(f"search: {trials.done} trials were done before")
    with graceful_interrupt(at_once=True) as stop_requested:
        while (done := trials.done) < plan.trials:
            trials.run(min(plan.heads_per_pass, plan.trials - done))
            scores = [trial.score for trial in trials.tried() if trial.score is not None]
            best = f"best inner {task.metric} {max(scores):.2f}" if scores else "nothing fitted yet"
            log_line(f"search: {trials.done} of {plan.trials} trials, {best}")
            if stop_requested():
                raise KeyboardInterrupt
    return trials


def save_outcome(folder: Path, study: str, document: Mapping[str, Any]) -> None:
    """Write the outcome of a study, and ``result.json``, the outcome of the last search."""
    for path in (folder / SEARCH_RESULT, _outcome_path(folder, study)):
        write_json(path, document)


def _outcome_path(folder: Path, study: str) -> Path:
    return folder / PLACE / f"result-{study_tag(study)}.json"


def dev_looks(folder: Path) -> int:
    """How often dev was scored, over all searches in a run."""
    return int(read_json_or_empty(folder / SEARCH_RESULT).get("dev_looks", 0))


def show(folder: Path, study: str, findings: Sequence[Finding], origin: str) -> None:
    """Write how a study went, as pictures and data, into ``RUN/analysis``, and into the report if there is one."""
    for finding in findings:
        write_finding(folder, with_study_name(finding, study_tag(study)), origin)
    if (folder / "report.html").exists():
        log_line(f"report: {update_report(folder)}")


def _known_outcome(folder: Path, trials: HeadStudy, plan: SearchBudget) -> dict[str, Any] | None:
    """The outcome of the same trials and seeds, if there is one: dev is not scored again."""
    document = read_json_or_empty(_outcome_path(folder, trials.name))
    same = (document.get("study"), document.get("trials"), document.get("seeds"))
    if same != (trials.name, trials.done, list(plan.seeds)):
        return None
    log_line("search: nothing new to try, the outcome is as before")
    command = _command(folder, document["winner"], trials, plan.seeds)
    return {**document, "dev_looks": dev_looks(folder), "command": command}


def _outcome(folder: Path, trials: HeadStudy, plan: SearchBudget) -> dict[str, Any]:
    """Fit the best trials and the defaults with every seed, choose the winner on inner, and score it on dev."""
    states, task, default_config = trials.states, trials.task, _default_config(trials)
    best = trials.best(FINALISTS)
    defaults = [Candidate(canonical_spec(head), default_config) for head in trials.space.heads]
    candidates = [*defaults, *best] if best else []
    entrants = fit_finalists(candidates, plan.seeds, plan.heads_per_pass, states, task)
    if not entrants:
        raise BadInput(no_score_message(folder, trials.done))
    standings = FinalRanking(entrants, frozenset(best), frozenset(defaults))
    winner, beaten = standings.winner, standings.beaten
    compared = [] if beaten is None else [winner.candidate, beaten.candidate]
    dev = score_on_dev(standings.shown, compared, plan.heads_per_pass, states, task)
    difference = None
    if beaten is not None:
        against = beaten.candidate
        test = compare(dev[winner.candidate].predictions, dev[against].predictions, task)
        difference = {
            "against": against.spec,
            **{key: getattr(test, key) for key in ("difference", "low", "high", "p")},
        }
        difference["seeds"] = [list(test.a_seeds), list(test.b_seeds)]
    row = _dev_row(winner, dev, default_config)
    return {
        "task": task.name,
        "metric": task.metric,
        "study": trials.name,
        "tag": study_tag(trials.name),
        "trials": trials.done,
        "seeds": list(plan.seeds),
        "winner": row,
        "default_wins": standings.default_wins,
        "defaults": [_dev_row(finalist, dev, default_config) for finalist in standings.defaults],
        "difference": difference,
        "finalists": [_inner_row(finalist, default_config) for finalist in standings.finalists],
        "dev_looks": dev_looks(folder) + 1,
        "command": _command(folder, row, trials, plan.seeds),
    }


def no_score_message(folder: Path, count: int) -> str:
    """What to say where every trial diverged or could not be fitted."""
    return (
        f"search in {folder}: none of {count} trials came to a score on inner, expected at least one; all diverged "
        "or were refused (see the lines above): try smaller rates, --space fit.lr=1e-5..1e-3, or other --heads"
    )


def _inner_row(finalist: Finalist, default_config: FitConfig) -> dict[str, Any]:
    default = asdict(default_config)
    config = asdict(finalist.candidate.config)
    return {
        "spec": finalist.candidate.spec,
        "fit": {key: value for key, value in config.items() if value != default[key]},
        "inner": finalist.mean,
        "inner_by_seed": list(finalist.inner),
        "parameters": finalist.fitted[0].parameters,
    }


def _dev_row(finalist: Finalist, dev: Mapping[Candidate, DevScores], default_config: FitConfig) -> dict[str, Any]:
    scores = dev[finalist.candidate]
    return {**_inner_row(finalist, default_config), "dev": scores.mean, "dev_by_seed": scores.scores}


def _default_config(trials: HeadStudy) -> FitConfig:
    """What heads are fitted with where nothing is searched."""
    return replace(trials.config, rates=())


def _command(folder: Path, winner: Mapping[str, Any], trials: HeadStudy, seeds: Sequence[int]) -> str:
    """The command that fits the winner in a folder of its own.

    On the leaderboard of the run it would be compared with a control fitted with other settings, or replace it.
    """
    config = replace(_default_config(trials), **winner["fit"])
    out = folder / PLACE / f"winner-{hash_json([winner['spec'], hashed_fields(config)])[:8]}"
    if isinstance(trials.states, LiveStates):  # no store to fit on: run the encoder of the run again, as it is
        words = ["run", str(folder / "recipe.toml"), "--encoder", str(folder / "encoder")]
        words += ["--method", "full", "--epochs", "0"]
        default = {}  # a recipe has settings of its own
    else:
        words = ["fit", str(store_folder(folder))]
        default = asdict(FitConfig())
    words += ["--heads", winner["spec"], "--seeds", ",".join(map(str, seeds))]
    for key, value in asdict(config).items():
        if key != "rates" and value != default.get(key):
            words += ["--set", f"fit.{key}={write_value(value)}"]
    return shlex.join(["bertvision", *words, "--out", str(out)])


def recipe_features(recipe: Recipe, task: Task, encoder: Encoder) -> FeatureInfo:
    """The states that a recipe leads to, so that errors in --space are found before anything is tuned."""
    layers = len(choose_layers(recipe.extract.layers, encoder.layers))
    return FeatureInfo(task_shape(task, layers, encoder.width), encoder.has_pooler, recipe.extract.tokens)


def space_for_states(states: States, heads: Sequence[str], typed: Sequence[str]) -> Space:
    """What can be tried on these states."""
    features = FeatureInfo(states.shape, next(states["inner"].batches(1)).pooled is not None, states.tokens)
    return build_space(expand_head_names(heads, features), features, typed)
