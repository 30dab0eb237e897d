"""Flags shared by several commands, and the recipe that they define."""

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
"""What a command returns: the document that ``--json`` prints, and the text that is printed otherwise."""

RECIPE_SECTIONS = {"data": DataConfig, "tune": TuneConfig, "extract": ExtractConfig, "fit": FitConfig}


def add_command(subparsers: Any, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    """A command whose help shows what it does and, at the end, examples."""
    lines = [f"  bertvision {name} {example}".rstrip() for example in examples]
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n".join(["examples:" if len(lines) > 1 else "example:", *lines]) if lines else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_settings(parser: Any, config: Any, only: Collection[str] = ()) -> None:
    """Add the flags that a config's fields declare, or those of the named fields.

    Flags default to None, which leaves the value of the recipe unchanged.
    """
    types = setting_types(config)
    for field in fields(config):
        flag, annotation = field.metadata.get("flag"), types[field.name]
        if flag is None or (only and field.name not in only):
            continue
        if annotation is bool:
            parser.add_argument(flag, action="store_true", default=None, help=field.metadata["help"])
            continue
        arguments = {key: field.metadata[key] for key in ("help", "metavar", "choices")}
        if typing.get_origin(annotation) is tuple:
            arguments |= {"action": "extend", "nargs": "+"}
        value_type = (typing.get_args(annotation) or (annotation,))[0]  # of X | None, tuple[X, ...] or X
        parser.add_argument(flag, type=value_type, **arguments)


def add_data(parser: argparse.ArgumentParser) -> None:
    """The task and its data."""
    parser.add_argument(
        "task", metavar="TASK|RECIPE.toml", help="name of a task (list them with: bertvision tasks), or a recipe file"
    )
    add_settings(parser.add_argument_group("data"), DataConfig)


def add_encoder(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, Recipe)


def add_tune(parser: argparse.ArgumentParser) -> None:
    add_settings(parser.add_argument_group("tuning the encoder"), TuneConfig)


def add_heads(parser: argparse.ArgumentParser, help_text: str) -> None:
    """``--head A --head B`` and ``--heads A B`` are the same."""
    parser.add_argument("--heads", "--head", action="extend", nargs="+", metavar="SPEC", help=help_text)


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting, e.g. fit.lr=1e-3; may be given more than once",
    )


def int_list(text: str) -> tuple[int, ...]:
    """Parse ``0,1,2``; repeated values are an error, because one seed would count as two."""
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected whole numbers such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected each number once")
    return seeds


def float_list(text: str) -> list[float]:
    """Parse ``0,0.1,1``."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers such as 0,0.1,1") from None


def fraction_of_shards(text: str) -> tuple[int, int]:
    """Parse ``2/8``, part 2 of 8, as (2, 8)."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected I/N with I from 1 to N, e.g. 2/8 for part 2 of 8")
    return int(index), int(count)


def positive_int(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at least 1")
    return int(text)


def recipe_from(options: argparse.Namespace) -> Recipe:
    """The recipe of a command: task or recipe file, overridden by flags, then by ``--set``."""
    from bertvision.tasks.recipe_defaults import recipe_defaults

    flags: dict[str, Any] = _flag_values(options, Recipe)
    for name in ("heads", "seeds"):
        if getattr(options, name, None) is not None:
            flags[name] = getattr(options, name)
    for name, config in RECIPE_SECTIONS.items():
        if values := _flag_values(options, config):
            flags[name] = values
    for text in options.set:
        if text.startswith("tune.method="):  # the method selects presets, which --set overrides: apply it first
            flags["tune"] = {**flags.get("tune", {}), "method": text.partition("=")[2]}
    if options.task.endswith(".toml"):
        recipe = read_recipe(Path(options.task), recipe_defaults, flags)
    else:
        recipe = built_in_recipe(options.task, recipe_defaults, **flags)
    recipe = override(recipe, options.set)
    return with_settings(recipe, heads=tuple(expand_heads(recipe.heads)))


def _flag_values(options: argparse.Namespace, config: Any) -> dict[str, Any]:
    """Values of the flags of a config that were given, by field."""
    values: dict[str, Any] = {}
    for field in fields(config):
        flag = field.metadata.get("flag")
        value = None if flag is None else getattr(options, flag.removeprefix("--").replace("-", "_"), None)
        if value is not None:
            values[field.name] = value
    return values


def expand_heads(
    names: Sequence[str], shape: Shape | None = None, pooled: bool = True, tokens: str = "all"
) -> list[str]:
    """Expand ``quick`` and ``all`` to specs; ``all`` depends on the shape and stays ``all`` without one."""
    from bertvision.heads.base import canonical_spec
    from bertvision.heads.summary import compatible_heads

    specs: list[str] = []
    for name in names:
        if name == "quick":
            specs.extend(QUICK_HEADS)
        elif name == "all":
            specs.extend(["all"] if shape is None else compatible_heads(shape, pooled, tokens))
        else:
            specs.append(canonical_spec(name))
    return list(dict.fromkeys(specs))
