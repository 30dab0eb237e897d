"""A fitted head as a record, and as files; outputs of many windows as one tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import write_json
from bertvision.core.records import LayerBatch, Shape
from bertvision.evaluation.scoring import SplitScores
from bertvision.heads.base import Head, build_head
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint

SAID = "said-{}.safetensors"
"""What a saved head says of a split; goes when it is fitted anew."""


@dataclass(frozen=True)
class FittedHead:
    """A head at its best epoch, with what led there."""

    spec: str
    seed: int
    head: Head
    history: tuple[dict[str, float], ...]
    best_epoch: int
    seconds: float
    inner: tuple[NDArray[np.float32], ...]  # outputs on inner at the best epoch, in window order
    threshold: float | None = None  # no-answer threshold, fitted on inner
    temperatures: Mapping[str, float] = field(default_factory=dict)  # by sort of probability, fitted on inner
    lr: float | None = None  # the rate, of several the one best on inner
    states: tuple[int, ...] = ()  # the encoder's states that it was given, of which it chose its layers; () = all
    tokens: str = "all"  # which tokens' states it was fitted on
    place: Path | None = None  # the folder that it is saved in, if it is
    inner_scores: SplitScores | None = None  # of the outputs on inner, if it was fitted in this process

    @property
    def parameters(self) -> int:
        return self.head.num_parameters


def scatter_outputs(logits: Tensor, batch: LayerBatch, kind: str, found: list[Any]) -> None:
    """Put a batch's outputs where their windows belong, padding cut off."""
    rows, sizes = logits.float().cpu().numpy(), batch.mask.sum(1).tolist()
    for row, size, window in zip(rows, sizes, batch.windows.tolist(), strict=True):
        found[window] = row[:size].copy() if kind == "span" else row.copy()


def save_fitted(fitted: FittedHead, folder: Path, made_from: str) -> FittedHead:
    """``head.safetensors``, ``inner.safetensors`` (outputs on inner) and, last, ``head.json``; the head, placed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(SAID.format("*")):
        old.unlink()
    save_file({key: value.contiguous() for key, value in fitted.head.state_dict().items()}, folder / "head.safetensors")
    save_outputs(fitted.inner, folder / "inner.safetensors")
    write_json(folder / "head.json", {**head_document(fitted), "made_from": made_from})
    return replace(fitted, place=folder)


def head_document(fitted: FittedHead) -> dict[str, Any]:
    """What ``head.json`` says of a head."""
    weights = fitted.head.module.layer_weights()
    return {
        "spec": fitted.spec,
        "seed": fitted.seed,
        "shape": asdict(fitted.head.shape),
        "parameters": fitted.parameters,
        "best_epoch": fitted.best_epoch,
        "history": list(fitted.history),
        "seconds": fitted.seconds,
        "threshold": fitted.threshold,
        "temperatures": dict(fitted.temperatures),
        "lr": fitted.lr,
        "states": list(fitted.states),
        "tokens": fitted.tokens,
        "layers": list(fitted.head.layer_ids),
        "layer_weights": None if weights is None else weights.tolist(),
    }


def load_fitted(folder: Path) -> tuple[FittedHead, str]:
    """A saved head and what it was made from."""
    try:
        return _loaded(folder)
    except (SafetensorError, OSError, json.JSONDecodeError, UnicodeError, KeyError, TypeError, RuntimeError) as error:
        raise BadInput(
            f"the head in {folder} cannot be read: {shorten(error, 200)}; delete that folder and fit it again"
        ) from error


def _loaded(folder: Path) -> tuple[FittedHead, str]:
    facts = json.loads((folder / "head.json").read_text(encoding="utf-8"))
    head = build_head(facts["spec"], Shape(**facts["shape"]))
    head.load_state_dict(load_file(folder / "head.safetensors"))
    fitted = FittedHead(
        spec=facts["spec"],
        seed=facts["seed"],
        head=head.eval(),
        history=tuple(facts["history"]),
        best_epoch=facts["best_epoch"],
        seconds=facts["seconds"],
        inner=tuple(load_outputs(folder / "inner.safetensors")),
        threshold=facts["threshold"],
        temperatures=facts.get("temperatures", {}),
        lr=facts.get("lr"),
        states=tuple(facts.get("states", [])),
        tokens=facts.get("tokens", "all"),
        place=folder,
    )
    return fitted, facts["made_from"]


def save_split_outputs(fitted: FittedHead, split: str, states: str, outputs: Sequence[NDArray[np.float32]]) -> None:
    """Outputs on a split of these states, beside a saved head: many steps ask for them, and they cost a read each.

    A folder that cannot be written to keeps nothing: whoever only reads there need not be able to write.
    """
    if fitted.place is not None and outputs:  # of an empty split there is nothing to keep
        with suppress(BadInput, SafetensorError):
            write_checkpoint(fitted.place / SAID.format(split), pack_ragged(outputs), made_from=states)


def load_split_outputs(fitted: FittedHead, split: str, states: str) -> list[NDArray[np.float32]] | None:
    """What :func:`keep_said` kept; None if nothing, of other states, or damaged: it costs only a read to make again."""
    if fitted.place is None:
        return None
    with suppress(BadInput, KeyError):
        saved = read_checkpoint(fitted.place / SAID.format(split), states)
        return None if saved is None else unpack_ragged(saved[0])
    return None


def save_outputs(outputs: Sequence[NDArray[np.float32]], path: Path) -> None:
    """Outputs of many windows as a file."""
    save_file(pack_ragged(outputs), path)


def load_outputs(path: Path) -> list[NDArray[np.float32]]:
    """The inverse of :func:`save_outputs`."""
    return unpack_ragged(load_file(path))


def pack_ragged(outputs: Sequence[NDArray[np.float32]]) -> dict[str, Tensor]:
    """Ragged outputs as one flat tensor and the lengths."""
    flat = torch.from_numpy(np.concatenate([np.atleast_2d(row) for row in outputs]))
    lengths = torch.tensor([len(np.atleast_2d(row)) for row in outputs], dtype=torch.int32)
    return {"flat": flat, "lengths": lengths, "ragged": torch.tensor([outputs[0].ndim == 2])}


def unpack_ragged(saved: Mapping[str, Tensor]) -> list[NDArray[np.float32]]:
    """The inverse of :func:`to_flat`."""
    rows = saved["flat"].split(saved["lengths"].tolist())
    return [row.numpy() if bool(saved["ragged"]) else row[0].numpy() for row in rows]
