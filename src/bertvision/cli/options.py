"""Flags shared by several commands, and the recipe that they define."""

from __future__ import annotations

import argparse
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertvision.core.config import (
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
from bertvision.core.errors import BadInput
from bertvision.core.summaries import TOGETHER

if TYPE_CHECKING:
    from bertvision.core.records import Shape

Result = tuple[Any, str]
"""What a command returns: the document that ``--json`` prints, and the text that is printed otherwise."""

SOURCE = "TASK|RECIPE.toml|TABLE.csv"
"""Where a command takes its task from, in usage lines."""

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
        "task",
        metavar=SOURCE,
        help="name of a task (list them with: bertvision tasks), a recipe file, or a table of your own: CSV, TSV, JSON "
        "Lines or Parquet",
    )
    add_settings(parser.add_argument_group("data"), DataConfig)


def add_encoder(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, Recipe, ("encoder",))


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
    """The recipe of a command: task, recipe file or table, overridden by flags, then by ``--set``."""
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
    recipe = override(_recipe_of(options.task, flags), options.set)
    return with_settings(recipe, heads=tuple(expand_heads(recipe.heads)))


def _recipe_of(source: str, flags: Mapping[str, Any]) -> Recipe:
    """The recipe of a task, a recipe file or a table, overridden by flags."""
    from bertvision.tasks.recipe_defaults import recipe_defaults

    if source.endswith(".toml"):
        return read_recipe(Path(source), recipe_defaults, flags)
    if is_table(source):
        return built_in_recipe("text", recipe_defaults, **_with_table(source, flags))
    check_task_word(source)
    return built_in_recipe(source, recipe_defaults, **flags)


def is_table(source: str) -> bool:
    """Whether the source of a command is a table of the user's own, judged by its extension."""
    from bertvision.tasks.readers.files import TABLES

    return Path(source).suffix.lower() in TABLES


def run_folder_of(options: argparse.Namespace) -> Path:
    """The folder that ``run`` writes to; for a table without ``--out`` it is named after the table."""
    if options.out is not None:
        return Path(options.out)
    if is_table(options.task):
        return Path("runs", Path(options.task).stem)
    check_task_word(options.task)
    raise BadInput(
        "bertvision run: the following arguments are required: --out (only a table of your own has a default); "
        "see bertvision run --help"
    )


def check_task_word(source: str) -> None:
    """Raise BadInput for a path, which is neither a task nor, by its extension, a recipe or a table."""
    from bertvision.tasks.readers.files import TABLES

    if source.endswith(".toml") or not re.search(r"[./\\]", source):
        return
    path = Path(source)
    problem = "this is a folder" if path.is_dir() else "unknown extension" if path.exists() else "no such file"
    raise BadInput(
        f"{source}: {problem}; expected the name of a task, a recipe (.toml) or a table ({', '.join(TABLES)})"
    )


def _with_table(table: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags that train on the table, which must exist."""
    from bertvision.tasks.readers.encodings import open_file

    open_file(Path(table)).close()
    data = flags.get("data", {})
    if data.get("train"):
        files = " ".join([table, *data["train"]])
        raise BadInput(f"{table} and --train are both training data; name all files: text --train {files}")
    return {**flags, "data": {**data, "train": [table]}}


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
    names: Sequence[str],
    shape: Shape | None = None,
    pooled: bool = True,
    tokens: str = "all",
    tuned: bool = True,
    pairs: str = TOGETHER,
) -> list[str]:
    """Specs in canonical form; ``quick`` and ``all`` depend on the shape and stay as they are without one."""
    from bertvision.heads.base import canonical_spec
    from bertvision.heads.info import HEAD_WORDS, expand_head_words

    if shape is not None:
        return expand_head_words(names, shape, pooled, tokens, tuned, pairs)
    return list(dict.fromkeys(name if name in HEAD_WORDS else canonical_spec(name) for name in names))
