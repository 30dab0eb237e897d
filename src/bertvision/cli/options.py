"""Flags that several commands share, and the recipe that they add up to."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertvision.core.config import (
    QUICK_HEADS,
    DataConfig,
    ExtractConfig,
    FitConfig,
    Recipe,
    TuneConfig,
    built_in_recipe,
    override,
    read_recipe,
    setting_types,
    with_settings,
)

if TYPE_CHECKING:
    from bertvision.core.records import Shape

Result = tuple[Any, str]
"""What a command returns: plain data, and the same as text for a person."""

SECTIONS = {"data": DataConfig, "tune": TuneConfig, "extract": ExtractConfig, "fit": FitConfig}


def add_settings(parser: Any, config: Any, only: Collection[str] = ()) -> None:
    """A flag for every field of a config that declares one, or for those named.

    Without the flag the option is None, so that a recipe's own value stays.
    """
    kinds = setting_types(config)
    for item in fields(config):
        flag, wanted = item.metadata.get("flag"), kinds[item.name]
        if flag is None or (only and item.name not in only):
            continue
        if wanted is bool:
            parser.add_argument(flag, action="store_true", default=None, help=item.metadata["help"])
            continue
        facts = {key: item.metadata[key] for key in ("help", "metavar", "choices")}
        if typing.get_origin(wanted) is tuple:
            facts |= {"action": "extend", "nargs": "+"}
        value_type = (typing.get_args(wanted) or (wanted,))[0]  # of X | None, tuple[X, ...] or X
        parser.add_argument(flag, type=value_type, **facts)


def add_data(parser: argparse.ArgumentParser) -> None:
    """The task, and where its examples come from."""
    parser.add_argument("task", metavar="TASK|RECIPE.toml", help="a task (see bertvision tasks) or a recipe file")
    add_settings(parser.add_argument_group("data"), DataConfig)


def add_encoder(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, Recipe)


def add_tune(parser: argparse.ArgumentParser) -> None:
    add_settings(parser.add_argument_group("tuning the encoder"), TuneConfig)


def add_heads(parser: argparse.ArgumentParser, text: str) -> None:
    """``--head A --head B`` and ``--heads A B`` are the same."""
    parser.add_argument("--heads", "--head", action="extend", nargs="+", metavar="SPEC", help=text)


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, e.g. fit.lr=1e-3; repeatable"
    )


def int_list(text: str) -> tuple[int, ...]:
    """``0,1,2`` as numbers, each once: the same seed twice would count as two."""
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected whole numbers such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected each number once")
    return seeds


def numbers(text: str) -> list[float]:
    """``0,0.1,1`` as a list of floats."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers such as 0,0.1,1") from None


def share(text: str) -> tuple[int, int]:
    """``2/8`` as (2, 8)."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected I/N with I from 1 to N, e.g. 2/8")
    return int(part), int(parts)


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at least 1")
    return int(text)


def recipe_from(options: argparse.Namespace) -> Recipe:
    """Task or recipe file, overridden by the flags that were typed, then by --set."""
    from bertvision.tasks.recipe_defaults import recipe_defaults

    flags: dict[str, Any] = _typed(options, Recipe)
    for name in ("heads", "seeds"):
        if getattr(options, name, None) is not None:
            flags[name] = getattr(options, name)
    for name, config in SECTIONS.items():
        if typed := _typed(options, config):
            flags[name] = typed
    for text in options.set:
        if text.startswith("tune.method="):  # a method presets other settings: it must be known before --set applies
            flags["tune"] = {**flags.get("tune", {}), "method": text.partition("=")[2]}
    if options.task.endswith(".toml"):
        recipe = read_recipe(Path(options.task), recipe_defaults, flags)
    else:
        recipe = built_in_recipe(options.task, recipe_defaults, **flags)
    recipe = override(recipe, options.set)
    return with_settings(recipe, heads=tuple(expand_heads(recipe.heads)))


def _typed(options: argparse.Namespace, config: Any) -> dict[str, Any]:
    """By field the values of a config's flags that were typed."""
    values: dict[str, Any] = {}
    for item in fields(config):
        flag = item.metadata.get("flag")
        value = None if flag is None else getattr(options, flag.removeprefix("--").replace("-", "_"), None)
        if value is not None:
            values[item.name] = value
    return values


def expand_heads(
    words: Sequence[str], shape: Shape | None = None, pooled: bool = True, tokens: str = "all"
) -> list[str]:
    """``quick``, ``all`` or specs; ``all`` depends on the shape and is kept as it is without one."""
    from bertvision.heads.base import canonical_spec
    from bertvision.heads.summary import compatible_heads

    specs: list[str] = []
    for word in words:
        if word == "quick":
            specs.extend(QUICK_HEADS)
        elif word == "all":
            specs.extend(["all"] if shape is None else compatible_heads(shape, pooled, tokens))
        else:
            specs.append(canonical_spec(word))
    return list(dict.fromkeys(specs))
