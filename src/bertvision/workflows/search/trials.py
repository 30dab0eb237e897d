"""The study behind a search: trials drawn by Optuna, kept in SQLite, many fitted from one read of the states."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput, missing_extra
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import log_line
from bertvision.core.registry import Spec, parse_spec
from bertvision.evaluation.analyses.search_history import Tried
from bertvision.heads.base import canonical_spec, head_options
from bertvision.store.lock import Purpose, writing
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fit import begin_fit, fit_epochs
from bertvision.workflows.search.space import Choice, Domain, Space

if TYPE_CHECKING:
    from bertvision.training.head_trainer import Runner

PLACE, STUDY = "search", "study.db"
"""Where a run keeps its studies."""
STARTUP = 8
"""Trials at random before any are drawn by what is known."""
SEARCH = Purpose("search", "search a run that can be written, or choose another --out")


@dataclass(frozen=True)
class Attempt:
    """What a trial stands for."""

    spec: str
    config: FitConfig


@contextmanager
def quiet() -> Iterator[Any]:
    """Optuna, without its chatter; in its absence one line says what to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import optuna
    except ImportError as error:
        raise missing_extra("optuna", "search") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield optuna


def study_path(folder: Path) -> Path:
    return folder / PLACE / STUDY


def study_tag(name: str) -> str:
    """A study's name as short as it stands in names of files."""
    return hash_json(name)[:8]


@contextmanager
def only_search(folder: Path) -> Iterator[None]:
    """The one search in a run: to a second one the trials of a live process would look like those of a dead one."""
    with writing(folder / PLACE, purpose=SEARCH):
        yield


def opened_study(path: Path, name: str, first: Sequence[dict[str, Any]], seed: int) -> Any:
    """A study in a file, new or taken up: what an interruption left open is closed and queued again.

    Nobody else may be at work in it: see :func:`only_search`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with quiet() as optuna:
        study = optuna.create_study(
            storage=_storage(optuna, path),
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=1),
        )
        known = study.get_trials(deepcopy=False)
        for trial in known:
            if trial.state == optuna.trial.TrialState.RUNNING:
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                study.enqueue_trial(trial.params)
        for params in [] if known else first:
            study.enqueue_trial(params)
        # Drawn anew after every interruption, and never the same draws twice.
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(known), n_startup_trials=STARTUP, constant_liar=True)
    return study


def _storage(optuna: Any, path: Path) -> Any:
    from sqlalchemy.exc import DatabaseError

    try:
        return optuna.storages.RDBStorage(f"sqlite:///{path}")
    except DatabaseError as error:
        raise BadInput(f"{path} is no study: {error.orig}; delete it, and the search begins anew") from error


class Trials:
    """One study: a space over one store. Another store, space or seed is another study in the same file."""

    def __init__(self, path: Path, states: States, task: Task, space: Space, config: FitConfig, seed: int = 0) -> None:
        self.states, self.task, self.space, self.config, self.seed = states, task, space, config, seed
        drawn = [seed] if seed else []  # seed 0 keeps the name that it had before seeds counted
        self.name = f"{states.id}-{hash_json([plain_space(space), hashed_fields(config), *drawn])[:12]}"
        self.study = opened_study(path, self.name, defaults_of(space, config), seed)

    @property
    def done(self) -> int:
        return len(self.tried())

    def tried(self) -> list[Tried]:
        """Every trial that came to an end, in order."""
        found = [_tried(trial) for trial in self.study.get_trials(deepcopy=False) if "spec" in trial.user_attrs]
        return [one for one in found if one.state in ("complete", "pruned", "failed")]

    def more(self, count: int) -> None:
        """Draw and fit so many trials together: one read of the states an epoch for all of one batch size."""
        with quiet():
            trials = [self.study.ask() for _ in range(count)]
            groups: dict[int, list[tuple[Any, Attempt]]] = {}
            for trial in trials:
                attempt = self._attempt(trial)
                groups.setdefault(attempt.config.batch, []).append((trial, attempt))
            for group in groups.values():
                self._fit(group)

    def _attempt(self, trial: Any) -> Attempt:
        head = trial.suggest_categorical("head", list(self.space.heads))
        spec = parse_spec(head)
        drawn = {key: draw(trial, f"{spec.name}.{key}", domain) for key, domain in self.space.heads[head].items()}
        fitting = {key: draw(trial, f"fit.{key}", domain) for key, domain in self.space.fit.items()}
        config = replace(self.config, rates=(), **fitting)
        return Attempt(canonical_spec(str(Spec(spec.name, {**spec.options, **drawn}))), config)

    def _fit(self, group: Sequence[tuple[Any, Attempt]]) -> None:
        pairs = [(trial, runner) for trial, one in group if (runner := self._begin(trial, one)) is not None]
        if not pairs:
            return
        for epoch in fit_epochs([runner for _, runner in pairs], self.states, self.task):
            for trial, runner in pairs:
                if runner.failed or runner.stopped or len(runner.history) < epoch:
                    continue
                trial.report(runner.history[-1]["inner"], epoch)
                runner.stopped = epoch < runner.config.epochs and trial.should_prune()
        for trial, runner in pairs:
            self._tell(trial, runner)

    def _begin(self, trial: Any, one: Attempt) -> Runner | None:
        """A combination that no head can be built with ends at once."""
        try:
            return begin_fit(one.spec, self.seed, self.states, one.config, self.task)
        except BadInput as error:
            log_line(f"search: trial {trial.number}: {error}")
            self._end(trial, one.spec, None, _states().FAIL)
            return None

    def _tell(self, trial: Any, runner: Runner) -> None:
        state = _states()
        fate = state.FAIL if not runner.best else state.PRUNED if runner.stopped else state.COMPLETE
        trial.set_user_attr("config", json.dumps(asdict(runner.config)))
        trial.set_user_attr("parameters", runner.head.parameters_count)
        trial.set_user_attr("epoch", runner.best_epoch)
        self._end(trial, runner.spec, runner.best_score if runner.best else None, fate)

    def _end(self, trial: Any, spec: str, score: float | None, state: Any) -> None:
        """The attribute that makes a trial count is written last but the state itself."""
        trial.set_user_attr("score", score)
        trial.set_user_attr("spec", spec)
        self.study.tell(trial, score if state == _states().COMPLETE else None, state=state)

    def best(self, count: int) -> list[Attempt]:
        """The best attempts on inner, each once."""
        told = [trial for trial in self.study.get_trials(deepcopy=False) if trial.user_attrs.get("score") is not None]
        ranked = sorted(told, key=lambda trial: (-trial.user_attrs["score"], trial.number))
        attempts = [Attempt(one.user_attrs["spec"], _config(one.user_attrs["config"])) for one in ranked]
        return list(dict.fromkeys(attempts))[:count]


def _states() -> Any:
    """How a trial can end."""
    with quiet() as optuna:
        return optuna.trial.TrialState


def _config(text: str) -> FitConfig:
    told = json.loads(text)
    return FitConfig(**{**told, "rates": tuple(told["rates"])})


def _tried(trial: Any) -> Tried:
    state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}.get(trial.state.name, "running")
    attributes = trial.user_attrs
    facts = {key: attributes.get(key) for key in ("parameters", "epoch")}
    return Tried(trial.number, dict(trial.params), attributes.get("score"), state, attributes.get("spec", ""), facts)


def draw(trial: Any, name: str, domain: Domain) -> Any:
    """A value of a domain, by Optuna."""
    if isinstance(domain, Choice):
        return trial.suggest_categorical(name, list(domain.values))
    if domain.whole:
        return trial.suggest_int(name, int(domain.low), int(domain.high), log=domain.log)
    return trial.suggest_float(name, domain.low, domain.high, log=domain.log)


def defaults_of(space: Space, config: FitConfig) -> list[dict[str, Any]]:
    """Every head as it is without a search; what lies outside the space is left to the draw."""
    found = []
    for head, domains in space.heads.items():
        own = held(parse_spec(head).name, domains, head_options(head))
        found.append({"head": head, **own, **held("fit", space.fit, asdict(config))})
    return found


def held(section: str, domains: Mapping[str, Domain], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a section as they are, where their domains hold them."""
    return {f"{section}.{key}": values[key] for key, domain in domains.items() if domain.holds(values[key])}


def plain_space(space: Space) -> dict[str, Any]:
    return {
        "heads": {head: plain_domains(domains) for head, domains in space.heads.items()},
        "fit": plain_domains(space.fit),
    }


def plain_domains(domains: Mapping[str, Domain]) -> dict[str, Any]:
    return {key: hashed_fields(domain) for key, domain in domains.items()}
