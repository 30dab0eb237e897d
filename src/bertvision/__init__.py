"""BERTVision: cache the hidden states of every layer of an encoder once, and train many small heads on them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertvision.core.errors import BadInput
    from bertvision.core.records import Board, Example, LayerBatch, Predictions
    from bertvision.encoders.loading import Encoder, load_encoder
    from bertvision.evaluation.ensemble import ensemble
    from bertvision.evaluation.leaderboard import compare, evaluate
    from bertvision.model import Model, QuestionAnswerer, TextClassifier, load_model
    from bertvision.store.store import Store
    from bertvision.tasks.task import Task, load_task
    from bertvision.training.extract import extract
    from bertvision.training.fit import fit
    from bertvision.training.predict import predict, predict_own
    from bertvision.training.tune import tune
    from bertvision.workflows.run import run

__version__ = "0.1.0"

_MODULES = {
    "BadInput": "core.errors",
    "Board": "core.records",
    "Encoder": "encoders.loading",
    "Example": "core.records",
    "LayerBatch": "core.records",
    "Model": "model",
    "Predictions": "core.records",
    "QuestionAnswerer": "model",
    "Store": "store.store",
    "Task": "tasks.task",
    "TextClassifier": "model",
    "compare": "evaluation.leaderboard",
    "ensemble": "evaluation.ensemble",
    "evaluate": "evaluation.leaderboard",
    "extract": "training.extract",
    "fit": "training.fit",
    "load_encoder": "encoders.loading",
    "load_model": "model",
    "load_task": "tasks.task",
    "predict": "training.predict",
    "predict_own": "training.predict",
    "run": "workflows.run",
    "tune": "training.tune",
}

__all__ = [
    "BadInput",
    "Board",
    "Encoder",
    "Example",
    "LayerBatch",
    "Model",
    "Predictions",
    "QuestionAnswerer",
    "Store",
    "Task",
    "TextClassifier",
    "compare",
    "ensemble",
    "evaluate",
    "extract",
    "fit",
    "load_encoder",
    "load_model",
    "load_task",
    "predict",
    "predict_own",
    "run",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that ``import bertvision`` does not import torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'bertvision' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bertvision.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
