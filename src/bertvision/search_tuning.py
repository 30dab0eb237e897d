"""Search over how the encoder is tuned, with a search over heads inside: dear, and only done when asked for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bertvision.config import Recipe, TuneConfig
from bertvision.errors import BadInput
from bertvision.hashing import hash_json
from bertvision.pipeline import prepare
from bertvision.runtime import say, write_json
from bertvision.search import PLACE, RESULT, Plan, run_trials, search, states_space
from bertvision.spaces import Space, tune_space
from bertvision.steps.live import states_task
from bertvision.store.split import States
from bertvision.trying import draw, opened_study, quiet


def search_tuning(
    recipe: Recipe, folder: Path, heads: Sequence[str], typed: Sequence[str], plan: Plan, tunings: int
) -> tuple[dict[str, Any], Path]:
    """Tuner settings outside, heads inside: each tuning has its own run in ``RUN/search/tuned``, judged by the best
    trial on its states. Only the store of the best so far is kept; dev is looked at for the best tuning alone.
    """
    domains = tune_space(typed)
    first = {
        f"tune.{key}": getattr(recipe.tune, key) for key, d in domains.items() if d.holds(getattr(recipe.tune, key))
    }
    name = f"tuning-{hash_json([[key, asdict(d)] for key, d in domains.items()])[:12]}"
    study = opened_study(folder / PLACE / "study.db", name, [first], plan.seed)
    while len(done := _ended(study)) < tunings:
        with quiet():
            trial = study.ask()
            config = replace(recipe.tune, **{key: draw(trial, f"tune.{key}", d) for key, d in domains.items()})
        say(f"search: tuning {len(done) + 1} of {tunings}: {trial.params}")
        place = _tuned_place(folder, config)
        score = _best_on(replace(recipe, tune=config), place, heads, typed, plan)
        trial.set_user_attr("place", str(place))
        study.tell(trial, score)
        _drop_stores(_ended(study))
    best = max(_ended(study), key=lambda trial: trial.value)
    place = Path(best.user_attrs["place"])
    tuned = replace(recipe, tune=replace(recipe.tune, **_settings(best.params)))
    states, space = _space_on(tuned, place, heads, typed)
    document = search(place, states, space, recipe.fit, plan)
    rows = [{"settings": _settings(one.params), "inner": one.value} for one in _ended(study)]
    document = {**document, "tunings": rows, "tuning": _settings(best.params), "run": str(place)}
    write_json(folder / PLACE / RESULT, document)
    return document, place


def _settings(params: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("tune."): value for key, value in params.items()}


def _ended(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]


def _tuned_place(folder: Path, config: TuneConfig) -> Path:
    return folder / PLACE / "tuned" / hash_json(asdict(config))[:12]


def _space_on(recipe: Recipe, place: Path, heads: Sequence[str], typed: Sequence[str]) -> tuple[States, Space]:
    states, _ = prepare(recipe, place, heads)
    return states, states_space(states, heads, typed)


def _best_on(recipe: Recipe, place: Path, heads: Sequence[str], typed: Sequence[str], plan: Plan) -> float:
    states, space = _space_on(recipe, place, heads, typed)
    trials = run_trials(place / PLACE / "study.db", states, states_task(states), space, recipe.fit, plan)
    scores = [one.score for one in trials.tried() if one.score is not None]
    if not scores:
        raise BadInput(f"no trial on {place} came to a score; narrow --space")
    return max(scores)


def _drop_stores(ended: Sequence[Any]) -> None:
    """States of a tuning that is beaten are large, and can be made again from its encoder."""
    best = max(ended, key=lambda trial: trial.value)
    for trial in ended:
        if trial.user_attrs["place"] != best.user_attrs["place"]:
            shutil.rmtree(Path(trial.user_attrs["place"]) / "store", ignore_errors=True)
