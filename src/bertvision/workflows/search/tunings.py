"""Search over how the encoder is tuned, with a search over heads inside: dear, and only done when asked for."""

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
from bertvision.evaluation.analyses.search_history import Tried, search_history, search_importance
from bertvision.runs.folder import TUNED, store_place
from bertvision.runs.prepare import load_recipe_task, prepare, run_facts
from bertvision.runs.reader import OF_TUNINGS, data_origin
from bertvision.store.states import States
from bertvision.store.store import MANIFEST
from bertvision.tasks.task import Task
from bertvision.training.inputs import data_hash, encoder_hash
from bertvision.training.tune import check_tuning
from bertvision.workflows.search.heads import (
    Plan,
    dev_looks,
    keep_outcome,
    no_score,
    recipe_ground,
    run_trials,
    search,
    show,
    states_space,
)
from bertvision.workflows.search.space import Space, named_heads, read_asked, space_of, tune_space
from bertvision.workflows.search.trials import (
    PLACE,
    draw,
    held,
    only_search,
    opened_study,
    plain_domains,
    plain_space,
    quiet,
    study_path,
    study_tag,
)

HISTORY = (
    "Each tuning by its best trial on inner, in the order they were begun, and the best so far. All were judged by "
    "equally many trials. Dev was not looked at."
)

REDRAWS = 20
"""Draws after which a space that only repeats itself is taken to be used up."""

DEPENDENT = ("method", "head")
"""Settings that suit some encoders and tasks, and each other, or do not."""

Recipes = Callable[[str | None], Recipe]
"""The recipe as asked for; with a method, what that one brings lies beneath what the user set."""


class Tunings:
    """One study of tunings. Whatever decides how they score is in its name; another is another study."""

    def __init__(self, recipes: Recipes, folder: Path, heads: Sequence[str], typed: Sequence[str], plan: Plan) -> None:
        self.recipes, self.folder, self.typed, self.plan = recipes, folder, typed, plan
        self.recipe, self.domains = recipes(None), tune_space(typed)
        task, encoder = load_recipe_task(self.recipe), load_encoder(self.recipe.encoder)
        ground = recipe_ground(self.recipe, task, encoder)
        self.heads = named_heads(heads, ground)
        space = space_of(self.heads, ground, typed)
        self._check(task, encoder)
        self.made_of = [data_hash(task), encoder_hash(encoder)]
        self._check_folder()
        decides = [plain_space(space), plain_domains(self.domains), self._fixed(), hashed_fields(self.recipe.fit)]
        self.name = f"tuning-{hash_json([*decides, self.made_of, plan.trials, plan.seed])[:12]}"

    @cached_property
    def study(self) -> Any:
        """Opened when it is asked for: what is wrong with the space is told before, and before anything is written."""
        first = held("tune", self.domains, asdict(self.recipe.tune))
        return opened_study(study_path(self.folder), self.name, [first], self.plan.seed)

    def _check(self, task: Task, encoder: Encoder) -> None:
        """What cannot be tuned is found now, and not when it is drawn: every method, and every head with each."""
        asked = {one.key: one for one in read_asked(self.typed) if one.section == "tune"}
        drawn: list[dict[str, Any]] = [{}]
        for one in (asked[key] for key in DEPENDENT if key in asked):
            drawn = [{**known, f"tune.{one.key}": value} for known in drawn for value in one.domain.tested]
            for params in drawn:
                try:
                    check_tuning(encoder, task, self._tune(params), self.folder / PLACE)
                except (BadInput, RuntimeError) as error:  # torch's own, for a size below 0
                    raise one.refused_value(params[f"tune.{one.key}"], error) from error

    def _check_folder(self) -> None:
        """How tunings went is shown in the report of a run on the same data, and of no other."""
        manifest = read_json_or_empty(store_place(self.folder) / MANIFEST)
        if manifest and manifest["fingerprint"]["data"] != self.made_of[0]:
            raise BadInput(f"{self.folder} holds a run on other data than these; choose another --out")

    def _fixed(self) -> list[Any]:
        """The recipe without what is drawn, for every method that may be."""
        methods = self.domains["method"].tested if "method" in self.domains else (None,)
        facts = [run_facts(self.recipes(None if method is None else str(method))) for method in methods]
        return [{**one, "tune": {k: v for k, v in one["tune"].items() if k not in self.domains}} for one in facts]

    def _tune(self, params: dict[str, Any]) -> TuneConfig:
        """Drawn settings over those that the method brings."""
        drawn = settings_of(params)
        method = drawn.get("method")
        base = self.recipe if method is None else self.recipes(str(method))
        return from_mapping(TuneConfig, {**to_mapping(base.tune), **drawn}, "--space tune")

    def recipe_of(self, params: dict[str, Any]) -> Recipe:
        return replace(self.recipe, tune=self._tune(params))

    def place_of(self, trial: Any) -> Path:
        return self.place(self.recipe_of(trial.params))

    def place(self, recipe: Recipe) -> Path:
        """A folder for every tuning, whatever study it belongs to: none is made twice."""
        return self.folder / TUNED / hash_json([run_facts(recipe), self.made_of])[:12]

    def ended(self) -> list[Any]:
        """Trials that were judged, in order; ``score`` is None where no head could be fitted."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if "score" in trial.user_attrs]

    def scored(self) -> list[Any]:
        return [trial for trial in self.ended() if trial.user_attrs["score"] is not None]

    def best(self) -> Any:
        """The best on inner, the first of equals."""
        found = self.scored()
        if not found:
            raise BadInput(no_score(self.folder, self.plan.trials * len(self.ended())))
        return max(found, key=lambda trial: float(trial.user_attrs["score"]))

    def more(self, of: int) -> None:
        """Draw one tuning, make it, and judge it by the best trial on its states."""
        with quiet():
            trial = self._drawn()
        log_line(f"search: tuning {len(self.ended()) + 1} of {of}: {told_settings(settings_of(trial.params))}")
        recipe = self.recipe_of(trial.params)
        place = self.place(recipe)
        states, space = self.ready(recipe, place)
        with only_search(place):
            tried = run_trials(place, states, space, recipe.fit, self.plan).tried()
        # A place that an earlier study went further in is judged by as many as the others.
        score = max((one.score for one in tried[: self.plan.trials] if one.score is not None), default=None)
        trial.set_user_attr("score", score)
        self._tell(trial, score)

    def _drawn(self) -> Any:
        """A tuning that was not judged yet; where draws only repeat, the space is used up, and one is judged again."""
        judged = self.ended()
        for left in reversed(range(REDRAWS)):
            trial = self.study.ask()
            for key, domain in self.domains.items():
                draw(trial, f"tune.{key}", domain)
            again = next((one for one in judged if one.params == trial.params), None)
            if again is None or not left:
                break
            self._tell(trial, again.user_attrs["score"])
        return trial

    def _tell(self, trial: Any, score: float | None) -> None:
        with quiet() as optuna:
            fates = optuna.trial.TrialState
            self.study.tell(trial, score, state=fates.FAIL if score is None else fates.COMPLETE)

    def ready(self, recipe: Recipe, place: Path) -> tuple[States, Space]:
        """The states of a tuning, made if they are not there, and what is tried on them."""
        states, _ = prepare(recipe, place, self.heads)
        return states, states_space(states, self.heads, self.typed)

    def drop_stores(self) -> None:
        """States of a tuning that is beaten are large, and can be made again from its encoder."""
        kept = {self.place_of(self.best())} if self.scored() else set()
        for place in {self.place_of(trial) for trial in self.ended()} - kept:
            shutil.rmtree(place / "store", ignore_errors=True)


def search_tuning(
    recipes: Recipes, folder: Path, heads: Sequence[str], typed: Sequence[str], plan: Plan, tunings: int
) -> tuple[dict[str, Any], Path]:
    """Tuner settings outside, heads inside: each tuning has its own run in ``RUN/search/tuned``, judged by the best
    trial on its states. Only the store of the best so far is kept; dev is looked at for the best tuning alone.
    """
    work = Tunings(recipes, folder, heads, typed, plan)
    with only_search(folder):
        return _search(work, tunings)


def _search(work: Tunings, tunings: int) -> tuple[dict[str, Any], Path]:
    folder = work.folder
    while len(work.ended()) < tunings:
        work.more(tunings)
        work.drop_stores()
    best = work.best()
    recipe = work.recipe_of(best.params)
    place = work.place(recipe)
    states, space = work.ready(recipe, place)
    before = dev_looks(place)
    document = search(place, states, space, recipe.fit, work.plan)
    rows = [{"settings": settings_of(one.params), "inner": one.user_attrs["score"]} for one in work.ended()]
    won = {"tunings": rows, "tuning": settings_of(best.params), "run": str(place), "tunings_tag": study_tag(work.name)}
    looks = dev_looks(folder) + dev_looks(place) - before
    document = {**document, **won, "dev_looks": looks}
    keep_outcome(folder, work.name, document)
    show(folder, work.name, tuning_findings(work.ended(), document["metric"]), data_origin(states.manifest))
    return document, place


def tuning_findings(ended: Sequence[Any], metric: str) -> tuple[Finding, Finding]:
    """How the tunings went, drawn as the trials of heads are; their settings stand where heads have their spec."""
    tried = [
        Tried(one.number, dict(one.params), score, "failed" if score is None else "complete", told)
        for one in ended
        for score, told in [(one.user_attrs["score"], told_settings(settings_of(one.params)))]
    ]
    history, importance = search_history(tried, metric), search_importance(tried)
    columns = {key: title for key, title in history.columns.items() if key != "settings"} | {"head": "tuning"}
    return (
        replace(history, name=OF_TUNINGS, title="Search: tunings", about=HISTORY, columns=columns),
        replace(importance, name=f"{OF_TUNINGS}-importance", title="Search: what mattered of tuning"),
    )


def settings_of(params: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("tune."): value for key, value in params.items()}


def told_settings(settings: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )
