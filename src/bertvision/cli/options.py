"""Options that several commands share, and how they become a recipe."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertvision.config import (
    QUICK_HEADS,
    DataConfig,
    Recipe,
    built_in_recipe,
    from_mapping,
    override,
    read_recipe,
    to_mapping,
)


def add_data(parser: argparse.ArgumentParser) -> None:
    """What the examples are."""
    group = parser.add_argument_group("data")
    group.add_argument("--train", nargs="+", metavar="F", help="training files: SQuAD JSON, CSV, TSV or JSON lines")
    group.add_argument("--dev", nargs="+", metavar="F", help="files to report on; without them a tenth is cut off")
    group.add_argument("--text-column", metavar="NAME")
    group.add_argument("--pair-column", metavar="NAME", help="second text of a pair")
    group.add_argument("--label-column", metavar="NAME")
    group.add_argument("--encoding", metavar="NAME", help="of CSV and TSV files, e.g. cp1252")
    group.add_argument("--kind", choices=("classify", "regress"), help="labels or numbers; guessed if not given")
    group.add_argument("--limit", type=int, metavar="N", help="take a sample of N training examples")
    group.add_argument("--skip-bad", action="store_true", default=None, help="leave bad rows out and count them")
    group.add_argument("--max-length", type=int, metavar="N", help="tokens of a window")
    group.add_argument("--overlap", type=int, metavar="N", help="tokens that neighbouring windows share")


def add_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--encoder", metavar="E", help="minilm (embedded), a folder, or a Hub name")


def add_tune(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tuning the encoder")
    group.add_argument("--method", metavar="SPEC", help="full")
    group.add_argument("--epochs", type=float, metavar="X", help="epochs of tuning, fractions allowed")
    group.add_argument("--lr", type=float, metavar="X", help="peak learning rate of tuning")
    group.add_argument("--tune-head", metavar="SPEC", help="tune together with this head instead of the plain one")


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, e.g. fit.lr=1e-3")


def whole_numbers(text: str) -> tuple[int, ...]:
    """``0,1,2`` as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected whole numbers such as 0,1,2") from None


def recipe_from(options: argparse.Namespace) -> Recipe:
    """Task or recipe file, overlaid with the flags that were given, then with --set."""
    task: str = options.task
    if task.endswith(".toml"):
        plain = to_mapping(read_recipe(Path(task)))
        sections = _flags(options)
        for key, value in sections.items():
            plain[key] = {**plain.get(key, {}), **value} if isinstance(value, dict) else value
        recipe = from_mapping(Recipe, plain, "flags")
    else:
        recipe = built_in_recipe(task, **_flags(options))
    return override(recipe, getattr(options, "set", []))


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, in the recipe's form."""
    data = _given(options, {item.name: item.name for item in fields(DataConfig)})
    tune = _given(options, {"method": "method", "epochs": "epochs", "lr": "lr", "tune_head": "head"})
    top = _given(options, {"encoder": "encoder", "seeds": "seeds"})
    heads = getattr(options, "heads", None)
    if heads:
        top["heads"] = expand_heads(heads)
    return {**top, "data": data, "tune": tune}


def _given(options: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    found = {setting: getattr(options, flag, None) for flag, setting in names.items()}
    return {setting: value for setting, value in found.items() if value is not None}


def expand_heads(words: list[str]) -> list[str]:
    """``quick``, ``all`` or specs."""
    from bertvision.heads.base import HEADS, canonical_spec

    specs: list[str] = []
    for word in words:
        if word == "quick":
            specs.extend(QUICK_HEADS)
        elif word == "all":
            specs.extend(f"{name}:{v}" if v else name for name in HEADS for v in HEADS[name].variants)
        else:
            specs.append(word)
    return list(dict.fromkeys(canonical_spec(spec) for spec in specs))
