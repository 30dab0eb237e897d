"""A fit that is not done, as one file: heads, moments, histories and best states of all runners; not a step itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from bertvision.training.checkpoint_io import read_noted, write_noted
from bertvision.training.fitted_head import from_flat, to_flat
from bertvision.training.head_trainer import Runner

SAVED_FIT = "fitting.safetensors"
"""In a run folder, the state of a fit that is not done; it goes when the heads are there."""

FACTS = ("history", "best_epoch", "best_score", "threshold", "temperatures", "seconds", "failed", "stopped")


def save_runners(runners: Sequence[Runner], epoch: int, path: Path, made_from: str) -> None:
    """All that the epochs up to this one made; there whole or not at all."""
    tensors = {f"{i}.{key}": value for i, runner in enumerate(runners) for key, value in _tensors(runner).items()}
    write_noted(path, tensors, made_from, epoch=epoch, runners=[_facts(runner) for runner in runners])


def restore_runners(runners: Sequence[Runner], path: Path, made_from: str) -> int:
    """The epoch after which they go on; 0 if there is nothing that was made from the same.

    Heads that are computed sum up the texts once more, in another order: theirs may differ by rounding.
    """
    saved = read_noted(path, made_from)
    if saved is None:
        return 0
    tensors, note = saved
    found = _by_number(tensors)
    for number, (runner, facts) in enumerate(zip(runners, note["runners"], strict=True)):
        _put_back(runner, found[number], facts)
    return int(note["epoch"])


def _tensors(runner: Runner) -> dict[str, Tensor]:
    moments = runner.optimizer.state_dict()["state"]
    return {
        **{f"now.{key}": value for key, value in runner.head.state_dict().items()},
        **{f"best.{key}": value for key, value in runner.best.items()},
        **{f"moments.{i}.{key}": value for i, state in moments.items() for key, value in state.items()},
        **({f"outputs.{key}": value for key, value in to_flat(runner.best_outputs).items()} if runner.best else {}),
    }


def _facts(runner: Runner) -> dict[str, Any]:
    return {"schedule": runner.schedule.state_dict(), **{name: getattr(runner, name) for name in FACTS}}


def _put_back(runner: Runner, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    for name in FACTS:
        setattr(runner, name, facts[name])
    runner.head.load_state_dict(_below("now", tensors))
    runner.best = _below("best", tensors)
    runner.best_outputs = from_flat(_below("outputs", tensors)) if runner.best else []
    runner.schedule.load_state_dict(facts["schedule"])
    groups = runner.optimizer.state_dict()["param_groups"]
    for group, rate in zip(groups, runner.schedule.get_last_lr(), strict=True):
        group["lr"] = rate
    moments = _by_number(_below("moments", tensors))
    runner.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _below(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{part}."): value for key, value in tensors.items() if key.startswith(f"{part}.")}


def _by_number(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """What is named NUMBER.NAME, by number and then by name."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        found.setdefault(int(number), {})[name] = value
    return found
