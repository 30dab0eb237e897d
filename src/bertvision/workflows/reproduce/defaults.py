"""What recipes start from: ``recipes/defaults.toml`` instead of the package's defaults, which may change."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe, merge_settings, setting_types
from bertvision.core.errors import BadInput
from bertvision.core.registry import Spec, parse_spec
from bertvision.heads.base import canonical_spec

RECIPES = Path(__file__).parents[1] / "recipes"
SPAN_TASKS = ("squad1", "squad2")
READING = ("read", "pooled")
"""Options of heads that say how a text is read; heads on spans read every token."""


def start_settings(task: str, method: str = "full") -> dict[str, Any]:
    """Every setting that recipes of a task and a tuning method start from; None is not set."""
    file = _defaults_file()
    spec = parse_spec(method)
    settings = merge_settings(file["recipe"], file["task"].get(task, {}))
    if spec.name == "adapters" and not spec.options.get("unfreeze"):
        settings = merge_settings(settings, file["adapters"].get(task, {}))
    for name, kind in setting_types(Recipe).items():
        if is_dataclass(kind):
            # None also for settings that this file should have: the recipe then is an error.
            settings[name] = {**dict.fromkeys(setting_types(kind)), **settings[name]}  # type: ignore[arg-type]
    return settings


def recipe_head(spec: str, shape: str) -> str:
    """The canonical spec of a recipe's head; options that the recipe leaves out are those of ``defaults.toml``."""
    parsed = parse_spec(spec)
    options: Mapping[str, Any] = _defaults_file()["head"][parsed.name]
    if shape == "span":
        options = {key: value for key, value in options.items() if key not in READING}
    return canonical_spec(str(Spec(parsed.name, {**options, **parsed.options})))


def recipe_control(task: str) -> str:
    """The control of the runs of a task."""
    return recipe_head(_defaults_file()["control"], "span" if task in SPAN_TASKS else "classify")


@cache
def _defaults_file() -> dict[str, Any]:
    return read_toml(RECIPES / "defaults.toml")


def read_toml(path: Path) -> dict[str, Any]:
    """A file of the recipes."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read recipe {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
