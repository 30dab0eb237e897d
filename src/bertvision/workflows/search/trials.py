"""Optuna studies in SQLite; many trials are trained together in one pass over the hidden states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertvision.core.config import FitConfig
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields
from bertvision.core.progress import log_line
from bertvision.core.registry import Spec, parse_spec
from bertvision.evaluation.analyses.search_history import SearchTrial
from bertvision.heads.base import canonical_spec
from bertvision.store.lock import LockPurpose, writing
from bertvision.store.states import States
from bertvision.tasks.task import Task
from bertvision.training.fit import make_trainer, train_epochs
from bertvision.workflows.search.space import Space, default_trials, quiet_optuna, space_to_dict, suggest

if TYPE_CHECKING:
    from bertvision.training.head_trainer import HeadTrainer

SEARCH_FOLDER, STUDY_FILE = "search", "study.db"
"""Folder of the studies in a run folder, and their file."""
STARTUP = 8
"""Number of random trials before sampler and pruner use the results."""
LOCK_PURPOSE = LockPurpose("search", "search in a writable run folder, or choose another folder with --out")
STATE_NAMES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
"""Names of Optuna's states of finished trials."""


@dataclass(frozen=True)
class Candidate:
    """A head and its training settings: what a trial evaluates."""

    spec: str
    config: FitConfig


def study_path(folder: Path) -> Path:
    return folder / SEARCH_FOLDER / STUDY_FILE


def study_tag(name: str) -> str:
    """A short hash of a study's name, for file names."""
    return hash_json(name)[:8]


@contextmanager
def lock_search(folder: Path) -> Iterator[None]:
    """Lock the search of a run, because a second process would take running trials for interrupted ones."""
    with writing(folder / SEARCH_FOLDER, purpose=LOCK_PURPOSE):
        yield


def open_study(path: Path, name: str, first_trials: Sequence[dict[str, Any]], seed: int) -> Any:
    """Create or resume a study; trials left running by an interruption are closed and queued again.

    Call it within :func:`lock_search`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with quiet_optuna() as optuna:
        from sqlalchemy.exc import DatabaseError

        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        except DatabaseError as error:
            raise BadInput(f"{path} is not an Optuna study: {error.orig}; delete it to start a new search") from error
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=1),
        )
        existing = study.get_trials(deepcopy=False)
        for trial in existing:
            if trial.state == optuna.trial.TrialState.RUNNING:
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                study.enqueue_trial(trial.params)
        if not existing:
            for params in first_trials:
                study.enqueue_trial(params)
        # A new seed on every resume, so that the sampler does not repeat its first values.
        study.sampler = optuna.samplers.TPESampler(
            seed=seed + len(existing), n_startup_trials=STARTUP, constant_liar=True
        )
    return study


class HeadStudy:
    """A study of heads on one store; another store, space or seed is another study in the same file."""

    def __init__(self, path: Path, states: States, task: Task, space: Space, config: FitConfig, seed: int = 0) -> None:
        self.states, self.task, self.space, self.config, self.seed = states, task, space, config, seed
        seeds = [seed] if seed else []  # seed 0 is left out for compatibility with older studies
        self.name = f"{states.id}-{hash_json([space_to_dict(space), hashed_fields(config), *seeds])[:12]}"
        self.study = open_study(path, self.name, default_trials(space, config), seed)

    @property
    def done(self) -> int:
        return len(self.tried())

    def tried(self) -> list[SearchTrial]:
        """All finished trials, in order."""
        trials = []
        for trial in self.study.get_trials(deepcopy=False):
            values = trial.user_attrs
            if "spec" in values and trial.state.name in STATE_NAMES:
                facts = {key: values.get(key) for key in ("parameters", "epoch")}
                state, score = STATE_NAMES[trial.state.name], values.get("score")
                trials.append(SearchTrial(trial.number, dict(trial.params), score, state, values["spec"], facts))
        return trials

    def best(self, count: int) -> list[Candidate]:
        """The best distinct candidates on inner."""
        trials = [trial for trial in self.study.get_trials(deepcopy=False) if trial.user_attrs.get("score") is not None]
        trials.sort(key=lambda trial: (-trial.user_attrs["score"], trial.number))
        candidates: dict[Candidate, None] = {}
        for trial in trials:
            config = json.loads(trial.user_attrs["config"])
            config["rates"] = tuple(config["rates"])
            candidates[Candidate(trial.user_attrs["spec"], FitConfig(**config))] = None
        return list(candidates)[:count]

    def run(self, count: int) -> None:
        """Draw ``count`` trials and train them together, in one pass per epoch for each batch size."""
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
            options[key] = suggest(trial, f"{spec.name}.{key}", domain)
        settings = {key: suggest(trial, f"fit.{key}", domain) for key, domain in self.space.fit.items()}
        return Candidate(canonical_spec(str(Spec(spec.name, options))), replace(self.config, rates=(), **settings))

    def _fit(self, group: Sequence[tuple[Any, Candidate]]) -> None:
        from optuna.trial import TrialState

        training: list[tuple[Any, HeadTrainer]] = []
        for trial, candidate in group:
            try:
                trainer = make_trainer(candidate.spec, self.seed, self.states, candidate.config, self.task)
            except BadInput as error:  # no head can be built with this combination of options
                log_line(f"search: trial {trial.number}: {error}")
                self._end(trial, candidate.spec, None, TrialState.FAIL)
            else:
                training.append((trial, trainer))
        if not training:
            return
        for epoch in train_epochs([trainer for _, trainer in training], self.states, self.task):
            for trial, trainer in training:
                if trainer.failed or trainer.stopped or len(trainer.history) < epoch:
                    continue
                trial.report(trainer.history[-1]["inner"], epoch)
                trainer.stopped = epoch < trainer.config.epochs and trial.should_prune()
        for trial, trainer in training:
            trial.set_user_attr("config", json.dumps(asdict(trainer.config)))
            trial.set_user_attr("parameters", trainer.head.num_parameters)
            trial.set_user_attr("epoch", trainer.best_epoch)
            if not trainer.best:
                self._end(trial, trainer.spec, None, TrialState.FAIL)
            else:
                state = TrialState.PRUNED if trainer.stopped else TrialState.COMPLETE
                self._end(trial, trainer.spec, trainer.best_score, state)

    def _end(self, trial: Any, spec: str, score: float | None, state: Any) -> None:
        """Close a trial; ``spec``, by which :meth:`tried` recognises finished trials, is written last."""
        trial.set_user_attr("score", score)
        trial.set_user_attr("spec", spec)
        self.study.tell(trial, score if state.name == "COMPLETE" else None, state=state)
