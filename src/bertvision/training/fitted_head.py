"""Fitted heads and their files; storage of ragged outputs."""

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

SPLIT_OUTPUTS = "said-{}.safetensors"
"""Cached outputs of a saved head on a split; deleted when the head is fitted again."""


@dataclass(frozen=True)
class FittedHead:
    """A head at its best epoch, with its training history and outputs on inner."""

    spec: str
    seed: int
    head: Head
    history: tuple[dict[str, float], ...]
    best_epoch: int
    seconds: float
    inner: tuple[NDArray[np.float32], ...]  # outputs on inner at the best epoch, in window order
    threshold: float | None = None  # no-answer threshold, fitted on inner
    temperatures: Mapping[str, float] = field(default_factory=dict)  # by kind of probability, fitted on inner
    lr: float | None = None  # learning rate; the best on inner if several were tried
    states: tuple[int, ...] = ()  # the encoder states that it was fitted on; () = all
    tokens: str = "all"  # which tokens' states it was fitted on
    folder: Path | None = None  # where it is saved, if it is
    inner_scores: SplitScores | None = None  # scores on inner, if it was fitted in this process
    validation: str = "inner"  # split that ``inner`` predicts: "inner", or "folds" for out-of-fold predictions
    penalty: float | None = None  # strength of the L2 penalty of a solved head

    @property
    def parameters(self) -> int:
        return self.head.num_parameters

    def __repr__(self) -> str:
        score = max((epoch["inner"] for epoch in self.history), default=float("nan"))
        return f"FittedHead({self.spec!r}, seed={self.seed}, best_epoch={self.best_epoch}, inner={score:.4g})"


def scatter_outputs(logits: Tensor, batch: LayerBatch, kind: str, outputs: list[Any]) -> None:
    """Write a batch's outputs, without padding, to the positions of its windows in ``outputs``."""
    rows, sizes = logits.float().cpu().numpy(), batch.mask.sum(1).tolist()
    for row, size, window in zip(rows, sizes, batch.windows.tolist(), strict=True):
        outputs[window] = row[:size].copy() if kind == "span" else row.copy()


def save_fitted(fitted: FittedHead, folder: Path, made_from: str) -> FittedHead:
    """Write ``head.safetensors``, ``inner.safetensors`` (outputs) and, last, ``head.json``; return the saved head."""
    folder.mkdir(parents=True, exist_ok=True)
    for outdated in folder.glob(SPLIT_OUTPUTS.format("*")):
        outdated.unlink()
    save_file({key: value.contiguous() for key, value in fitted.head.state_dict().items()}, folder / "head.safetensors")
    save_outputs(fitted.inner, folder / "inner.safetensors")
    write_json(folder / "head.json", {**head_document(fitted), "made_from": made_from})
    return replace(fitted, folder=folder)


def head_document(fitted: FittedHead) -> dict[str, Any]:
    """The content of ``head.json``."""
    weights = fitted.head.module.layer_weights()
    # Keys that only some heads have are left out of the others, as in files of earlier versions.
    extra: dict[str, object] = {} if fitted.validation == "inner" else {"validation": fitted.validation}
    extra |= {} if fitted.penalty is None else {"penalty": fitted.penalty}
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
        **extra,
    }


def load_fitted(folder: Path) -> tuple[FittedHead, str]:
    """Read a saved head, and the hash of what it was made from."""
    try:
        document = json.loads((folder / "head.json").read_text(encoding="utf-8"))
        head = build_head(document["spec"], Shape(**document["shape"]))
        head.load_state_dict(load_file(folder / "head.safetensors"))
        fitted = FittedHead(
            spec=document["spec"],
            seed=document["seed"],
            head=head.eval(),
            history=tuple(document["history"]),
            best_epoch=document["best_epoch"],
            seconds=document["seconds"],
            inner=tuple(load_outputs(folder / "inner.safetensors")),
            threshold=document["threshold"],
            temperatures=document.get("temperatures", {}),
            lr=document.get("lr"),
            states=tuple(document.get("states", [])),
            tokens=document.get("tokens", "all"),
            folder=folder,
            validation=document.get("validation", "inner"),
            penalty=document.get("penalty"),
        )
        return fitted, document["made_from"]
    except (SafetensorError, OSError, json.JSONDecodeError, UnicodeError, KeyError, TypeError, RuntimeError) as error:
        raise BadInput(
            f"the head in {folder} cannot be read: {shorten(error, 200)}; delete that folder and fit it again"
        ) from error


def save_split_outputs(fitted: FittedHead, split: str, states: str, outputs: Sequence[NDArray[np.float32]]) -> None:
    """Cache outputs on a split next to a saved head; ``states`` is the id of the store.

    Write errors are ignored, so that runs in read-only folders can be analysed.
    """
    if fitted.folder is not None and outputs:
        with suppress(BadInput, SafetensorError):
            write_checkpoint(fitted.folder / SPLIT_OUTPUTS.format(split), pack_ragged(outputs), made_from=states)


def load_split_outputs(fitted: FittedHead, split: str, states: str) -> list[NDArray[np.float32]] | None:
    """Cached outputs on a split; None if they are missing, damaged or of other states."""
    if fitted.folder is None:
        return None
    with suppress(BadInput, KeyError):
        saved = read_checkpoint(fitted.folder / SPLIT_OUTPUTS.format(split), states)
        return None if saved is None else unpack_ragged(saved[0])
    return None


def save_outputs(outputs: Sequence[NDArray[np.float32]], path: Path) -> None:
    """Write the outputs of many windows to a file."""
    save_file(pack_ragged(outputs), path)


def load_outputs(path: Path) -> list[NDArray[np.float32]]:
    """The inverse of :func:`save_outputs`."""
    return unpack_ragged(load_file(path))


def pack_ragged(outputs: Sequence[NDArray[np.float32]]) -> dict[str, Tensor]:
    """Arrays of different lengths as one flat tensor and their lengths."""
    flat = torch.from_numpy(np.concatenate([np.atleast_2d(row) for row in outputs]))
    lengths = torch.tensor([len(np.atleast_2d(row)) for row in outputs], dtype=torch.int32)
    return {"flat": flat, "lengths": lengths, "ragged": torch.tensor([outputs[0].ndim == 2])}


def unpack_ragged(saved: Mapping[str, Tensor]) -> list[NDArray[np.float32]]:
    """The inverse of :func:`to_flat`."""
    rows = saved["flat"].split(saved["lengths"].tolist())
    return [row.numpy() if bool(saved["ragged"]) else row[0].numpy() for row in rows]
