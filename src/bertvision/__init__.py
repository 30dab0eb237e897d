"""BERTVision: tune an encoder briefly, keep every layer's states, train any number of tiny heads on them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertvision.asking import QuestionAnswerer, TextClassifier, load_model
    from bertvision.encoder.load import Encoder, load_encoder
    from bertvision.errors import BadInput
    from bertvision.model import Model
    from bertvision.pipeline import run
    from bertvision.records import Board, Example, LayerBatch, Predictions
    from bertvision.steps.ensemble import ensemble
    from bertvision.steps.evaluate import compare, evaluate
    from bertvision.steps.extract import extract
    from bertvision.steps.fit import fit
    from bertvision.steps.predict import predict, predict_own
    from bertvision.steps.tune import tune
    from bertvision.store.store import Store
    from bertvision.tasks.base import Task, load_task

__version__ = "0.1.0"

_HOMES = {
    "BadInput": "errors",
    "Board": "records",
    "Encoder": "encoder.load",
    "Example": "records",
    "LayerBatch": "records",
    "Model": "model",
    "Predictions": "records",
    "QuestionAnswerer": "asking",
    "Store": "store.store",
    "Task": "tasks.base",
    "TextClassifier": "asking",
    "compare": "steps.evaluate",
    "ensemble": "steps.ensemble",
    "evaluate": "steps.evaluate",
    "extract": "steps.extract",
    "fit": "steps.fit",
    "load_encoder": "encoder.load",
    "load_model": "asking",
    "load_task": "tasks.base",
    "predict": "steps.predict",
    "predict_own": "steps.predict",
    "run": "pipeline",
    "tune": "steps.tune",
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
    """Public names are loaded when first asked for: ``import bertvision`` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bertvision' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bertvision.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
