"""Search over heads and their settings, selecting on inner; only the winner and the defaults are scored on dev."""

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
from bertvision.core.summaries import APART
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
from bertvision.workflows.search.trials import SEARCH_FOLDER, Candidate, HeadStudy, lock_search, study_path, study_tag

FINALISTS = 3
"""Number of best trials that are trained again with every seed, together with the defaults."""


@dataclass(frozen=True)
class SearchBudget:
    """Number of trials, memory use and seeds of a search."""

    trials: int = 30
    heads_per_pass: int = 8  # trained together, in one pass over the states
    seeds: tuple[int, ...] = (0, 1, 2)  # random seeds of the finalists and the defaults
    seed: int = 0  # random seed of the sampler and the trials


def search(folder: Path, states: States, space: Space, config: FitConfig, plan: SearchBudget) -> dict[str, Any]:
    """Search over heads and settings on stored states; writes ``RUN/search`` and scores dev once at the end."""
    with lock_search(folder):
        if (folder / "report.html").exists():
            gather(folder, task_of_states(states))  # fail early if the report cannot be written
        trials = run_trials(folder, states, space, config, plan)
        document = _saved_outcome(folder, trials, plan) or _outcome(folder, trials, plan)
        save_outcome(folder, trials.name, document)
        tried = trials.tried()
        findings = (search_history(tried, trials.task.metric), search_importance(tried))
        write_findings(folder, trials.name, findings, store_origin(states.manifest))
        return document


def run_trials(folder: Path, states: States, space: Space, config: FitConfig, plan: SearchBudget) -> HeadStudy:
    """Run trials until the study has the planned number."""
    task = task_of_states(states)
    trials = HeadStudy(study_path(folder), states, task, space, config, plan.seed)
    if trials.done:
        log_line(f"search: {trials.done} trials already done")
    with graceful_interrupt(at_once=True) as stop_requested:
        while (done := trials.done) < plan.trials:
            trials.run(min(plan.heads_per_pass, plan.trials - done))
            scores = [trial.score for trial in trials.tried() if trial.score is not None]
            best = f"best inner {task.metric} {max(scores):.2f}" if scores else "no head trained yet"
            log_line(f"search: {trials.done} of {plan.trials} trials, {best}")
            if stop_requested():
                raise KeyboardInterrupt
    return trials


def save_outcome(folder: Path, study: str, document: Mapping[str, Any]) -> None:
    """Write the outcome of a study, also as ``result.json``, the outcome of the last search."""
    for path in (folder / SEARCH_RESULT, _outcome_path(folder, study)):
        write_json(path, document)


def _outcome_path(folder: Path, study: str) -> Path:
    return folder / SEARCH_FOLDER / f"result-{study_tag(study)}.json"


def num_dev_scorings(folder: Path) -> int:
    """How often dev was scored, over all searches in a run."""
    return int(read_json_or_empty(folder / SEARCH_RESULT).get("dev_looks", 0))


def write_findings(folder: Path, study: str, findings: Sequence[Finding], origin: str) -> None:
    """Write charts and data of a study to ``RUN/analysis``, and update the report if there is one."""
    for finding in findings:
        write_finding(folder, with_study_name(finding, study_tag(study)), origin)
    if (folder / "report.html").exists():
        log_line(f"report: {update_report(folder)}")


def _saved_outcome(folder: Path, trials: HeadStudy, plan: SearchBudget) -> dict[str, Any] | None:
    """The saved outcome of the same trials and seeds, so that dev is not scored again."""
    # Not core.files.reuse: the file has no fingerprint, but the study, trials and seeds that it was made from.
    document = read_json_or_empty(_outcome_path(folder, trials.name))
    saved = (document.get("study"), document.get("trials"), document.get("seeds"))
    if saved != (trials.name, trials.done, list(plan.seeds)):
        return None
    log_line("search: all trials already done, reusing the previous outcome")
    command = _command(folder, document["winner"], trials, plan.seeds)
    return {**document, "dev_looks": num_dev_scorings(folder), "command": command}


def _outcome(folder: Path, trials: HeadStudy, plan: SearchBudget) -> dict[str, Any]:
    """Train the best trials and the defaults with every seed, select the winner on inner, and score it on dev."""
    states, task, default_config = trials.states, trials.task, _default_config(trials)
    best = trials.best(FINALISTS)
    defaults = [Candidate(canonical_spec(head), default_config) for head in trials.space.heads]
    candidates = [*defaults, *best] if best else []
    entrants = fit_finalists(candidates, plan.seeds, plan.heads_per_pass, states, task)
    if not entrants:
        raise BadInput(no_score_message(folder, trials.done))
    ranking = FinalRanking(entrants, frozenset(best), frozenset(defaults))
    winner, beaten = ranking.winner, ranking.beaten
    compared = [] if beaten is None else [winner.candidate, beaten.candidate]
    dev = score_on_dev(ranking.shown, compared, plan.heads_per_pass, states, task)
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
        "default_wins": ranking.default_wins,
        "defaults": [_dev_row(finalist, dev, default_config) for finalist in ranking.defaults],
        "difference": difference,
        "finalists": [_inner_row(finalist, default_config) for finalist in ranking.finalists],
        "dev_looks": num_dev_scorings(folder) + 1,
        "command": _command(folder, row, trials, plan.seeds),
    }


def no_score_message(folder: Path, count: int) -> str:
    """The error if every trial diverged or could not be trained."""
    return (
        f"search in {folder}: none of {count} trials has a score on inner; all diverged or could not be built (see "
        "the messages above); try smaller learning rates, e.g. --space fit.lr=1e-5..1e-3, or other --heads"
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
    """The training settings of heads without a search."""
    return replace(trials.config, rates=())


def _command(folder: Path, winner: Mapping[str, Any], trials: HeadStudy, seeds: Sequence[int]) -> str:
    """The command that trains the winner in a new run folder.

    In the run itself, it would be compared with a control trained with other settings, or replace a row.
    """
    config = replace(_default_config(trials), **winner["fit"])
    out = folder / SEARCH_FOLDER / f"winner-{hash_json([winner['spec'], hashed_fields(config)])[:8]}"
    if isinstance(trials.states, LiveStates):  # without a store: rerun with the tuned encoder, untuned further
        words = ["run", str(folder / "recipe.toml"), "--encoder", str(folder / "encoder")]
        words += ["--method", "full", "--epochs", "0"]
        default = {}  # the recipe may differ from the defaults
    else:
        words = ["fit", str(store_folder(folder))]
        default = asdict(FitConfig())
    words += ["--heads", winner["spec"], "--seeds", ",".join(map(str, seeds))]
    for key, value in asdict(config).items():
        if key != "rates" and value != default.get(key):
            words += ["--set", f"fit.{key}={write_value(value)}"]
    return shlex.join(["bertvision", *words, "--out", str(out)])


def recipe_features(recipe: Recipe, task: Task, encoder: Encoder) -> FeatureInfo:
    """Shape of the states of a recipe, so that errors in ``--space`` are found before tuning."""
    layers = len(choose_layers(recipe.extract.layers, encoder.layers))
    shape, config = task_shape(task, layers, encoder.width), recipe.extract
    return FeatureInfo(shape, encoder.has_pooler and config.pairs != APART, config.stored_tokens, config.pairs)


def space_for_states(states: States, heads: Sequence[str], space_words: Sequence[str]) -> Space:
    """The search space for these states."""
    pooled = next(states["inner"].batches(1)).pooled is not None
    features = FeatureInfo(states.shape, pooled, states.tokens, states.pairs)
    return build_space(expand_head_names(heads, features), features, space_words)
