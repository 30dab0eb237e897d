"""What suits a task by the way its encoder is tuned: adapters take higher rates and more epochs than all weights.

Mohebbi & Rajaei: 3e-4 and 10 epochs on GLUE, 1e-4 and 50 on other sets of texts. On SQuAD, which they
did not try, as many epochs as Hulburd. LoRA and BitFit, which train still less, hardly begin within one epoch.
Adapters in an encoder that is trained with them take what full tuning takes: its weights do not bear more.
"""

from __future__ import annotations

from collections.abc import Mapping

from bertvision.core.config import merge_settings
from bertvision.core.registry import parse_spec
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.task import task_defaults

GLUE_SETS = {"lr": 3e-4, "epochs": 10.0}
OTHER_SETS = {"lr": 1e-4, "epochs": 50.0}
SQUAD_SETS = {"lr": 3e-4, "epochs": 3.0}
LITTLE = {"lora": {"epochs": 3.0}, "bitfit": {"epochs": 3.0}}
SQUAD = ("squad1", "squad2", "answerability")


def recipe_defaults(name: str, method: str = "full") -> Mapping[str, Mapping[str, object]]:
    """What a task and a method set differently from the defaults of a recipe."""
    return merge_settings(task_defaults(name), {"tune": method_defaults(name, method)})


def method_defaults(name: str, method: str) -> dict[str, float]:
    """Rate and epochs of a method on a task, where they are not the common ones."""
    spec = parse_spec(method, "adapters:size=64")
    if spec.name != "adapters" or spec.options.get("unfreeze", 0) != 0:
        return dict(LITTLE.get(spec.name, {}))
    return GLUE_SETS if name in GLUE else SQUAD_SETS if name in SQUAD else OTHER_SETS
