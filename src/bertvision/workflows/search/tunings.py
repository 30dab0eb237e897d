"""Nested search: tunings of the encoder outside, heads inside. Expensive, so it runs on request only."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe, TuneConfig, from_mapping, to_mapping
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields, read_json_or_empty
from bertvision.core.progress import log_line
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.evaluation.analyses.result import Finding
from bertvision.evaluation.analyses.search_history import SearchTrial, search_history, search_importance
from bertvision.runs.folder import TUNED, store_folder
from bertvision.runs.prepare import load_recipe_task, prepare_run, recipe_identity
from bertvision.runs.reader import TUNING_FINDINGS, data_origin
from bertvision.store.states import States
from bertvision.store.store import MANIFEST
from bertvision.tasks.task import Task
from bertvision.training.inputs import data_hash, encoder_hash
from bertvision.training.tune import check_tuning
from bertvision.workflows.search.heads import (
    SearchBudget,
    no_score_message,
    num_dev_scorings,
    recipe_features,
    run_trials,
    save_outcome,
    search,
    space_for_states,
    write_findings,
)
from bertvision.workflows.search.space import (
    Space,
    build_space,
    default_values,
    domains_to_dict,
    expand_head_names,
    parse_space,
    quiet_optuna,
    space_to_dict,
    tune_space,
)
from bertvision.workflows.search.trials import (
    SEARCH_FOLDER,
    lock_search,
    open_study,
    study_path,
    study_tag,
)

HISTORY = (
    "The score on inner of each tuning's best trial, in order, and the best so far. All tunings had the same number of "
    "trials. Dev was not used."
)

REDRAWS = 20
"""Number of repeated draws after which the space counts as exhausted."""

VALIDATED = ("method", "head")
"""Settings whose validity depends on the encoder, the task and each other."""

RecipeFactory = Callable[[str | None], Recipe]
"""Makes the recipe of the command line for a tuning method (None: the recipe's own), with the method's presets."""


class TuningStudy:
    """A study of tunings. Its name is a hash of everything that affects the scores."""

    def __init__(
        self,
        recipe_factory: RecipeFactory,
        folder: Path,
        heads: Sequence[str],
        space_words: Sequence[str],
        plan: SearchBudget,
    ) -> None:
        self.recipe_factory, self.folder, self.space_words, self.plan = recipe_factory, folder, space_words, plan
        self.recipe, self.domains = recipe_factory(None), tune_space(space_words)
        task, encoder = load_recipe_task(self.recipe), load_encoder(self.recipe.encoder)
        features = recipe_features(self.recipe, task, encoder)
        self.heads = expand_head_names(heads, features)
        space = build_space(self.heads, features, space_words)
        self._check(task, encoder)
        self.made_of = [data_hash(task), encoder_hash(encoder)]
        manifest = read_json_or_empty(store_folder(folder) / MANIFEST)
        # The report of a run can only show tunings on the same data.
        if manifest and manifest["fingerprint"]["data"] != self.made_of[0]:
            raise BadInput(f"{folder} is a run on other data; choose another folder with --out")
        settings = [
            space_to_dict(space),
            domains_to_dict(self.domains),
            self._fixed_settings(),
            hashed_fields(self.recipe.fit),
        ]
        self.name = f"tuning-{hash_json([*settings, self.made_of, plan.trials, plan.seed])[:12]}"

    @cached_property
    def study(self) -> Any:
        """Opened on first use, so that errors in the space are raised before anything is written."""
        first = default_values("tune", self.domains, asdict(self.recipe.tune))
        return open_study(study_path(self.folder), self.name, [first], self.plan.seed)

    def _check(self, task: Task, encoder: Encoder) -> None:
        """Check all methods, and all heads with each method, before anything is drawn."""
        items = {item.key: item for item in parse_space(self.space_words) if item.section == "tune"}
        combinations: list[dict[str, Any]] = [{}]
        for item in (items[key] for key in VALIDATED if key in items):
            name = f"tune.{item.key}"
            combinations = [{**params, name: value} for params in combinations for value in item.values]
            for params in combinations:
                try:
                    check_tuning(encoder, task, self._tune_config(params), self.folder / SEARCH_FOLDER)
                except (BadInput, RuntimeError) as error:  # torch raises RuntimeError for a size below 0
                    raise item.value_error(params[name], error) from error

    def _fixed_settings(self) -> list[Any]:
        """The recipe without the searched settings, for every method in the space."""
        methods = self.domains["method"].choices if "method" in self.domains else (None,)
        recipes = []
        for method in methods:
            facts = recipe_identity(self.recipe_factory(None if method is None else str(method)))
            tune = {key: value for key, value in facts["tune"].items() if key not in self.domains}
            recipes.append({**facts, "tune": tune})
        return recipes

    def _tune_config(self, params: dict[str, Any]) -> TuneConfig:
        """Drawn settings on top of the presets of the method."""
        drawn = settings_of(params)
        method = drawn.get("method")
        base = self.recipe if method is None else self.recipe_factory(str(method))
        return from_mapping(TuneConfig, {**to_mapping(base.tune), **drawn}, "--space tune")

    def recipe_of(self, trial: Any) -> Recipe:
        return replace(self.recipe, tune=self._tune_config(trial.params))

    def run_of(self, recipe: Recipe) -> Path:
        """The run folder of a tuning; it is shared by studies, so that no tuning runs twice."""
        return self.folder / TUNED / hash_json([recipe_identity(recipe), self.made_of])[:12]

    def finished(self) -> list[Any]:
        """Finished trials, in order; the score is None if no head could be trained."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if "score" in trial.user_attrs]

    def best(self) -> Any | None:
        """The best trial on inner, the first of ties; None if no trial has a score."""
        scored = [trial for trial in self.finished() if trial.user_attrs["score"] is not None]
        return max(scored, key=lambda trial: float(trial.user_attrs["score"]), default=None)

    def run_next(self, total: int) -> None:
        """Draw a tuning, tune and extract, and score it by the best trial on its states."""
        with quiet_optuna():
            trial = self._draw()
        log_line(f"search: tuning {len(self.finished()) + 1} of {total}: {settings_text(settings_of(trial.params))}")
        recipe = self.recipe_of(trial)
        run = self.run_of(recipe)
        states, space = self.states_and_space(recipe, run)
        with lock_search(run):
            trials = run_trials(run, states, space, recipe.fit, self.plan).tried()
        # An earlier study may have run more trials on these states: use the planned number only.
        scores = [trial.score for trial in trials[: self.plan.trials] if trial.score is not None]
        score = max(scores, default=None)
        trial.set_user_attr("score", score)
        self._tell(trial, score)

    def _draw(self) -> Any:
        """Draw a tuning that has no score yet; if the space is exhausted, return a repeated one."""
        scored = self.finished()
        for draws_left in reversed(range(REDRAWS)):
            trial = self.study.ask({f"tune.{key}": domain for key, domain in self.domains.items()})
            repeated = next((earlier for earlier in scored if earlier.params == trial.params), None)
            if repeated is None or not draws_left:
                break
            self._tell(trial, repeated.user_attrs["score"])
        return trial

    def _tell(self, trial: Any, score: float | None) -> None:
        with quiet_optuna() as optuna:
            states = optuna.trial.TrialState
            self.study.tell(trial, score, state=states.FAIL if score is None else states.COMPLETE)

    def states_and_space(self, recipe: Recipe, run: Path) -> tuple[States, Space]:
        """The states of a tuning, extracted if necessary, and their search space."""
        states = prepare_run(recipe, run, self.heads).states
        return states, space_for_states(states, self.heads, self.space_words)

    def drop_stores(self) -> None:
        """Delete all stores except that of the best tuning; they are large and can be extracted again."""
        best = self.best()
        runs = {self.run_of(self.recipe_of(trial)) for trial in self.finished()}
        for run in runs - ({self.run_of(self.recipe_of(best))} if best else set()):
            shutil.rmtree(run / "store", ignore_errors=True)


def search_tuning(
    recipe_factory: RecipeFactory,
    folder: Path,
    heads: Sequence[str],
    space_words: Sequence[str],
    plan: SearchBudget,
    count: int,
) -> dict[str, Any]:
    """Search over tunings, with a search over heads for each.

    Each tuning has its own run in ``RUN/search/tuned`` and is scored by the best trial on its states. Only the store
    of the best tuning so far is kept, and only the best tuning is scored on dev.
    """
    study = TuningStudy(recipe_factory, folder, heads, space_words, plan)
    with lock_search(folder):
        while len(study.finished()) < count:
            study.run_next(count)
            study.drop_stores()
        finished, best = study.finished(), study.best()
        if best is None:
            raise BadInput(no_score_message(folder, plan.trials * len(finished)))
        recipe = study.recipe_of(best)
        run = study.run_of(recipe)
        states, space = study.states_and_space(recipe, run)
        earlier = num_dev_scorings(run)
        document = search(run, states, space, recipe.fit, plan)
        document |= {
            "tunings": [
                {"settings": settings_of(trial.params), "inner": trial.user_attrs["score"]} for trial in finished
            ],
            "tuning": settings_of(best.params),
            "run": str(run),
            "tunings_tag": study_tag(study.name),
            "dev_looks": num_dev_scorings(folder) + num_dev_scorings(run) - earlier,
        }
        save_outcome(folder, study.name, document)
        write_findings(folder, study.name, tuning_findings(finished, document["metric"]), data_origin(states.manifest))
        return document


def tuning_findings(finished: Sequence[Any], metric: str) -> tuple[Finding, Finding]:
    """History and importance of the tunings, in the form of those of heads, with settings in place of specs."""
    trials: list[SearchTrial] = []
    for trial in finished:
        score = trial.user_attrs["score"]
        state = "failed" if score is None else "complete"
        trials.append(
            SearchTrial(trial.number, dict(trial.params), score, state, settings_text(settings_of(trial.params)))
        )
    history, importance = search_history(trials, metric), search_importance(trials)
    columns = {key: title for key, title in history.columns.items() if key != "settings"} | {"head": "tuning"}
    return (
        replace(history, name=TUNING_FINDINGS, title="Search: tunings", about=HISTORY, columns=columns),
        replace(importance, name=f"{TUNING_FINDINGS}-importance", title="Search: importance of tuning settings"),
    )


def settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("tune."): value for key, value in params.items()}


def settings_text(settings: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )
