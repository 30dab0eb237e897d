"""Default learning rate and epochs by task and tuning method.

Adapters need higher learning rates and more epochs than full fine-tuning. Mohebbi & Rajaei use 3e-4 and 10
epochs on GLUE, 1e-4 and 50 epochs on other text datasets; SQuAD, which they did not try, gets as many epochs
as in Hulburd. LoRA and BitFit train even fewer parameters and need more than one epoch. Adapters that are
trained together with the encoder keep the defaults of full fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping

from bertvision.core.config import merge_settings
from bertvision.core.registry import parse_spec
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.task import task_defaults

ADAPTERS_ON_GLUE = {"lr": 3e-4, "epochs": 10.0}
ADAPTERS_ON_SQUAD = {"lr": 3e-4, "epochs": 3.0}
ADAPTERS_ON_TEXTS = {"lr": 1e-4, "epochs": 50.0}
OTHER_METHODS = {"lora": {"epochs": 3.0}, "bitfit": {"epochs": 3.0}}
TEXT_TASKS = ("text", *GLUE)
"""Tasks whose default heads read summaries of a text, so that a run need not store every token, and whose pairs may be
encoded apart."""
SQUAD = ("squad1", "squad2", "answerability")


def recipe_defaults(name: str, method: str = "full") -> Mapping[str, Mapping[str, object]]:
    """Recipe settings, by section, that a task and a tuning method change."""
    presets = merge_settings(task_defaults(name), {"tune": method_defaults(name, method)})
    return merge_settings(presets, {"extract": {"tokens": "auto", "pairs": "auto"}}) if name in TEXT_TASKS else presets


def method_defaults(name: str, method: str) -> dict[str, float]:
    """Learning rate and epochs of a tuning method on a task, where they differ from the recipe's defaults."""
    spec = parse_spec(method, "adapters:size=64")
    if spec.name != "adapters" or spec.options.get("unfreeze", 0) != 0:
        return dict(OTHER_METHODS.get(spec.name, {}))
    return ADAPTERS_ON_GLUE if name in GLUE else ADAPTERS_ON_SQUAD if name in SQUAD else ADAPTERS_ON_TEXTS
