"""Search over how the encoder is tuned, with a search over heads inside: expensive, and only done on request."""

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
from bertvision.runs.prepare import load_recipe_task, prepare, recipe_identity
from bertvision.runs.reader import TUNING_FINDINGS, data_origin
from bertvision.store.states import States
from bertvision.store.store import MANIFEST
from bertvision.tasks.task import Task
from bertvision.training.inputs import data_hash, encoder_hash
from bertvision.training.tune import check_tuning
from bertvision.workflows.search.heads import (
    SearchBudget,
    dev_looks,
    no_score_message,
    recipe_features,
    run_trials,
    save_outcome,
    search,
    show,
    space_for_states,
)
from bertvision.workflows.search.space import (
    Space,
    build_space,
    default_values,
    domains_to_dict,
    expand_head_names,
    parse_space,
    space_to_dict,
    tune_space,
)
from bertvision.workflows.search.trials import PLACE, lock_search, open_study, quiet_optuna, study_path, study_tag

HISTORY = (
    "Each tuning by its best trial on inner, in the order they were begun, and the best so far. All were judged by "
    "equally many trials. Dev was not looked at."
)

REDRAWS = 20
"""Draws after which a space that only repeats itself counts as used up."""

DEPENDENT = ("method", "head")
"""Settings that not every encoder, task and other setting allows."""

Recipes = Callable[[str | None], Recipe]
"""The recipe as typed; given a method, with what that method presets below what the user set."""


class TuningStudy:
    """One study of tunings; everything that decides their scores is in its name, so that another is another study."""

    def __init__(
        self, recipes: Recipes, folder: Path, heads: Sequence[str], typed: Sequence[str], plan: SearchBudget
    ) -> None:
        self.recipes, self.folder, self.typed, self.plan = recipes, folder, typed, plan
        self.recipe, self.domains = recipes(None), tune_space(typed)
        task, encoder = load_recipe_task(self.recipe), load_encoder(self.recipe.encoder)
        features = recipe_features(self.recipe, task, encoder)
        self.heads = expand_head_names(heads, features)
        space = build_space(self.heads, features, typed)
        self._check(task, encoder)
        self.made_of = [data_hash(task), encoder_hash(encoder)]
        manifest = read_json_or_empty(store_folder(folder) / MANIFEST)
        # The report of a run shows the tunings of the same data only.
        if manifest and manifest["fingerprint"]["data"] != self.made_of[0]:
            raise BadInput(f"{folder} holds a run on other data than these; choose another --out")
        decides = [space_to_dict(space), domains_to_dict(self.domains), self._fixed(), hashed_fields(self.recipe.fit)]
        self.name = f"tuning-{hash_json([*decides, self.made_of, plan.trials, plan.seed])[:12]}"

    @cached_property
    def study(self) -> Any:
        """Opened on first use, so that errors in the space come before anything is written."""
        first = default_values("tune", self.domains, asdict(self.recipe.tune))
        return open_study(study_path(self.folder), self.name, [first], self.plan.seed)

    def _check(self, task: Task, encoder: Encoder) -> None:
        """Find what cannot be tuned before it is drawn: every method, and every head with each method."""
        items = {item.key: item for item in parse_space(self.typed) if item.section == "tune"}
        combinations: list[dict[str, Any]] = [{}]
        for item in (items[key] for key in DEPENDENT if key in items):
            name = f"tune.{item.key}"
            combinations = [{**params, name: value} for params in combinations for value in item.domain.endpoints]
            for params in combinations:
                try:
                    check_tuning(encoder, task, self._tune_config(params), self.folder / PLACE)
                except (BadInput, RuntimeError) as error:  # torch raises RuntimeError for a size below 0
                    raise item.value_error(params[name], error) from error

    def _fixed(self) -> list[Any]:
        """The recipe without the settings that are drawn, for every method that may be drawn."""
        methods = self.domains["method"].endpoints if "method" in self.domains else (None,)
        recipes = []
        for method in methods:
            facts = recipe_identity(self.recipes(None if method is None else str(method)))
            tune = {key: value for key, value in facts["tune"].items() if key not in self.domains}
            recipes.append({**facts, "tune": tune})
        return recipes

    def _tune_config(self, params: dict[str, Any]) -> TuneConfig:
        """Drawn settings over those that the method presets."""
        drawn = settings_of(params)
        method = drawn.get("method")
        base = self.recipe if method is None else self.recipes(str(method))
        return from_mapping(TuneConfig, {**to_mapping(base.tune), **drawn}, "--space tune")

    def recipe_of(self, trial: Any) -> Recipe:
        return replace(self.recipe, tune=self._tune_config(trial.params))

    def run_of(self, recipe: Recipe) -> Path:
        """The run of a tuning; studies share it, so that no tuning is made twice."""
        return self.folder / TUNED / hash_json([recipe_identity(recipe), self.made_of])[:12]

    def ended(self) -> list[Any]:
        """Trials that have a score, in order; it is None where no head could be fitted."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if "score" in trial.user_attrs]

    def best(self) -> Any | None:
        """The best trial on inner, the first of equals; None if none has a score."""
        scored = [trial for trial in self.ended() if trial.user_attrs["score"] is not None]
        return max(scored, key=lambda trial: float(trial.user_attrs["score"]), default=None)

    def run_next(self, total: int) -> None:
        """Draw one tuning, make it, and score it by the best trial on its states."""
        with quiet_optuna():
            trial = self._draw()
        log_line(f"search: tuning {len(self.ended()) + 1} of {total}: {settings_text(settings_of(trial.params))}")
        recipe = self.recipe_of(trial)
        run = self.run_of(recipe)
        states, space = self.states_and_space(recipe, run)
        with lock_search(run):
            tried = run_trials(run, states, space, recipe.fit, self.plan).tried()
        # An earlier study may have run more trials here: only the planned number counts.
        score = max((one.score for one in tried[: self.plan.trials] if one.score is not None), default=None)
        trial.set_user_attr("score", score)
        self._tell(trial, score)

    def _draw(self) -> Any:
        """A tuning that has no score yet; if draws only repeat, the space is used up, and one is scored again."""
        scored = self.ended()
        for draws_left in reversed(range(REDRAWS)):
            trial = self.study.ask()
            for key, domain in self.domains.items():
                domain.suggest(trial, f"tune.{key}")
            same = next((known for known in scored if known.params == trial.params), None)
            if same is None or not draws_left:
                break
            self._tell(trial, same.user_attrs["score"])
        return trial

    def _tell(self, trial: Any, score: float | None) -> None:
        with quiet_optuna() as optuna:
            states = optuna.trial.TrialState
            self.study.tell(trial, score, state=states.FAIL if score is None else states.COMPLETE)

    def states_and_space(self, recipe: Recipe, run: Path) -> tuple[States, Space]:
        """The states of a tuning, made if they are not there, and what is tried on them."""
        states, _ = prepare(recipe, run, self.heads)
        return states, space_for_states(states, self.heads, self.typed)

    def drop_stores(self) -> None:
        """Delete all stores but the best tuning's: they are large, and can be made again from the encoders."""
        best = self.best()
        runs = {self.run_of(self.recipe_of(trial)) for trial in self.ended()}
        for run in runs - ({self.run_of(self.recipe_of(best))} if best else set()):
            shutil.rmtree(run / "store", ignore_errors=True)


def search_tuning(
    recipes: Recipes, folder: Path, heads: Sequence[str], typed: Sequence[str], plan: SearchBudget, count: int
) -> dict[str, Any]:
    """Search over tunings outside and heads inside: each tuning has its own run in ``RUN/search/tuned``, scored by the
    best trial on its states. Only the store of the best one so far is kept; only the best one is scored on dev.
    """
    tunings = TuningStudy(recipes, folder, heads, typed, plan)
    with lock_search(folder):
        while len(tunings.ended()) < count:
            tunings.run_next(count)
            tunings.drop_stores()
        ended, best = tunings.ended(), tunings.best()
        if best is None:
            raise BadInput(no_score_message(folder, plan.trials * len(ended)))
        recipe = tunings.recipe_of(best)
        run = tunings.run_of(recipe)
        states, space = tunings.states_and_space(recipe, run)
        looks_before = dev_looks(run)
        document = search(run, states, space, recipe.fit, plan)
        document |= {
            "tunings": [{"settings": settings_of(trial.params), "inner": trial.user_attrs["score"]} for trial in ended],
            "tuning": settings_of(best.params),
            "run": str(run),
            "tunings_tag": study_tag(tunings.name),
            "dev_looks": dev_looks(folder) + dev_looks(run) - looks_before,
        }
        save_outcome(folder, tunings.name, document)
        show(folder, tunings.name, tuning_findings(ended, document["metric"]), data_origin(states.manifest))
        return document


def tuning_findings(ended: Sequence[Any], metric: str) -> tuple[Finding, Finding]:
    """How the tunings went, drawn as the trials of heads are, with settings in place of specs."""
    trials: list[SearchTrial] = []
    for trial in ended:
        score = trial.user_attrs["score"]
        state = "failed" if score is None else "complete"
        trials.append(
            SearchTrial(trial.number, dict(trial.params), score, state, settings_text(settings_of(trial.params)))
        )
    history, importance = search_history(trials, metric), search_importance(trials)
    columns = {key: title for key, title in history.columns.items() if key != "settings"} | {"head": "tuning"}
    return (
        replace(history, name=TUNING_FINDINGS, title="Search: tunings", about=HISTORY, columns=columns),
        replace(importance, name=f"{TUNING_FINDINGS}-importance", title="Search: what mattered of tuning"),
    )


def settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("tune."): value for key, value in params.items()}


def settings_text(settings: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )
