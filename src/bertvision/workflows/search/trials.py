"""The study behind a search: trials drawn by Optuna, kept in SQLite, many fitted from one read of the states."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput, missing_extra
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import log_line
from bertvision.core.registry import Spec, parse_spec
from bertvision.evaluation.analyses.search_history import SearchTrial
from bertvision.heads.base import canonical_spec
from bertvision.store.lock import LockPurpose, writing
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fit import make_trainer, train_epochs
from bertvision.workflows.search.space import Space, default_trials, space_to_dict

if TYPE_CHECKING:
    from bertvision.training.head_trainer import HeadTrainer

PLACE, STUDY = "search", "study.db"
"""Where a run keeps its studies."""
STARTUP = 8
"""Random trials before the sampler and the pruner use the results."""
SEARCH = LockPurpose("search", "search a run that can be written, or choose another --out")
ENDED = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
"""Optuna's states of a trial that has ended, as they are reported."""


@dataclass(frozen=True)
class Candidate:
    """A head and how it is fitted: what a trial tries."""

    spec: str
    config: FitConfig


@contextmanager
def quiet_optuna() -> Iterator[Any]:
    """Optuna without its warnings; one line says what to install if it is missing."""
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
    """A study's name, shortened for the names of files."""
    return hash_json(name)[:8]


@contextmanager
def lock_search(folder: Path) -> Iterator[None]:
    """Lock the search of a run: a second process would take the open trials of the first for interrupted ones."""
    with writing(folder / PLACE, purpose=SEARCH):
        yield


def open_study(path: Path, name: str, first: Sequence[dict[str, Any]], seed: int) -> Any:
    """A study in a file, new or resumed: trials that an interruption left open are closed and queued again.

    Only one process may use it at a time, see :func:`only_search`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with quiet_optuna() as optuna:
        from sqlalchemy.exc import DatabaseError

        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        except DatabaseError as error:
            raise BadInput(f"{path} is no study: {error.orig}; delete it, and the search begins anew") from error
        study = optuna.create_study(
            storage=storage,
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
        if not known:
            for params in first:
                study.enqueue_trial(params)
        # Another seed after every interruption, so that the same values are never drawn again.
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(known), n_startup_trials=STARTUP, constant_liar=True)
    return study


class HeadStudy:
    """One study: a space over one store. Another store, space or seed is another study in the same file."""

    def __init__(self, path: Path, states: States, task: Task, space: Space, config: FitConfig, seed: int = 0) -> None:
        self.states, self.task, self.space, self.config, self.seed = states, task, space, config, seed
        drawn = [seed] if seed else []  # seed 0 keeps the name that it had before there were seeds
        self.name = f"{states.id}-{hash_json([space_to_dict(space), hashed_fields(config), *drawn])[:12]}"
        self.study = open_study(path, self.name, default_trials(space, config), seed)

    @property
    def done(self) -> int:
        return len(self.tried())

    def tried(self) -> list[SearchTrial]:
        """Every trial that has ended, in order."""
        trials = []
        for trial in self.study.get_trials(deepcopy=False):
            values = trial.user_attrs
            if "spec" in values and trial.state.name in ENDED:
                facts = {key: values.get(key) for key in ("parameters", "epoch")}
                state, score = ENDED[trial.state.name], values.get("score")
                trials.append(SearchTrial(trial.number, dict(trial.params), score, state, values["spec"], facts))
        return trials

    def best(self, count: int) -> list[Candidate]:
        """The best candidates on inner, each once."""
        trials = [trial for trial in self.study.get_trials(deepcopy=False) if trial.user_attrs.get("score") is not None]
        trials.sort(key=lambda trial: (-trial.user_attrs["score"], trial.number))
        candidates: dict[Candidate, None] = {}
        for trial in trials:
            config = json.loads(trial.user_attrs["config"])
            config["rates"] = tuple(config["rates"])
            candidates[Candidate(trial.user_attrs["spec"], FitConfig(**config))] = None
        return list(candidates)[:count]

    def run(self, count: int) -> None:
        """Draw so many trials and fit them together: one read of the states per epoch for all of one batch size."""
        with quiet_optuna():
            trials = [self.study.ask() for _ in range(count)]
            by_batch_size: dict[int, list[tuple[Any, Candidate]]] = {}
            for trial in trials:
                candidate = self._draw(trial)
                by_batch_size.setdefault(candidate.config.batch, []).append((trial, candidate))
            for group in by_batch_size.values():
                self._fit(group)

    def _draw(self, trial: Any) -> Candidate:
        head = trial.suggest_categorical("head", list(self.space.heads))
        spec = parse_spec(head)
        options = dict(spec.options)
        for key, domain in self.space.heads[head].items():
            options[key] = domain.suggest(trial, f"{spec.name}.{key}")
        settings = {key: domain.suggest(trial, f"fit.{key}") for key, domain in self.space.fit.items()}
        return Candidate(canonical_spec(str(Spec(spec.name, options))), replace(self.config, rates=(), **settings))

    def _fit(self, group: Sequence[tuple[Any, Candidate]]) -> None:
        from optuna.trial import TrialState

        fitting: list[tuple[Any, HeadTrainer]] = []
        for trial, candidate in group:
            try:
                runner = make_trainer(candidate.spec, self.seed, self.states, candidate.config, self.task)
            except BadInput as error:  # a combination of options that no head can be built with
                log_line(f"search: trial {trial.number}: {error}")
                self._end(trial, candidate.spec, None, TrialState.FAIL)
            else:
                fitting.append((trial, runner))
        if not fitting:
            return
        for epoch in train_epochs([runner for _, runner in fitting], self.states, self.task):
            for trial, runner in fitting:
                if runner.failed or runner.stopped or len(runner.history) < epoch:
                    continue
                trial.report(runner.history[-1]["inner"], epoch)
                runner.stopped = epoch < runner.config.epochs and trial.should_prune()
        for trial, runner in fitting:
            trial.set_user_attr("config", json.dumps(asdict(runner.config)))
            trial.set_user_attr("parameters", runner.head.num_parameters)
            trial.set_user_attr("epoch", runner.best_epoch)
            if not runner.best:
                self._end(trial, runner.spec, None, TrialState.FAIL)
            else:
                state = TrialState.PRUNED if runner.stopped else TrialState.COMPLETE
                self._end(trial, runner.spec, runner.best_score, state)

    def _end(self, trial: Any, spec: str, score: float | None, state: Any) -> None:
        """Close a trial; the attribute that makes it count is written last, before the state itself."""
        trial.set_user_attr("score", score)
        trial.set_user_attr("spec", spec)
        self.study.tell(trial, score if state.name == "COMPLETE" else None, state=state)
