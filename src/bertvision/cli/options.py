"""Options that several commands share, and how they become a recipe."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertvision.core.config import QUICK_HEADS, DataConfig, Recipe, built_in_recipe, override, read_recipe, updated

if TYPE_CHECKING:
    from bertvision.core.records import Shape


def add_data(parser: argparse.ArgumentParser) -> None:
    """What the examples are."""
    parser.add_argument("task", metavar="TASK|RECIPE.toml", help="see bertvision tasks; or a file of settings")
    group = parser.add_argument_group("data")
    files: dict[str, Any] = {"action": "extend", "nargs": "+", "metavar": "F"}
    group.add_argument("--train", **files, help="training files: SQuAD JSON, CSV, TSV, JSON lines or Parquet")
    group.add_argument("--dev", **files, help="files to report on; without them a tenth of train is cut off")
    group.add_argument("--extra", **files, help="files to learn from too, but never to choose on (SQuAD)")
    group.add_argument("--data", metavar="FOLDER", help="GLUE's official files: the task's folder or the one above")
    group.add_argument("--hub", metavar="NAME[:CONFIG]", help="a data set of the Hub in place of files")
    group.add_argument("--text-column", metavar="NAME", help="guessed from the header if not given, as the next two")
    group.add_argument("--pair-column", metavar="NAME", help="second text of a pair")
    several: dict[str, Any] = {"action": "extend", "nargs": "+", "metavar": "NAME"}
    group.add_argument("--label-column", **several, help="what to predict; several: a column of 0 and 1 for each label")
    group.add_argument("--label-separator", metavar="S", help="between the labels of a cell; found if not given: | ; ,")
    group.add_argument("--encoding", metavar="NAME", help="of CSV, TSV and JSON lines, e.g. cp1252; found if not given")
    kinds = ("classify", "multilabel", "regress")
    group.add_argument("--kind", choices=kinds, help="a label, any number of them (never guessed), or a number")
    group.add_argument("--class-weights", choices=("none", "balanced"), help="weigh rare labels up in the loss")
    group.add_argument("--merge", metavar="RULE", help="answerability: any-answerable (default) or any-unanswerable")
    group.add_argument("--threshold", type=float, metavar="X", help="SQuAD 2.0: of no answer, not fitted; 0 is plain")
    group.add_argument(
        "--no-answer-share", type=float, metavar="X", help="SQuAD: leave questions out until X have none"
    )
    group.add_argument("--split-seed", type=int, metavar="N", help="another tenth for dev, where there is no --dev")
    group.add_argument("--limit", type=int, metavar="N", help="a sample of N training examples, and at most N of dev")
    group.add_argument("--skip-bad", action="store_true", default=None, help="leave bad rows out and count them")
    group.add_argument("--max-length", type=int, metavar="N", help="tokens of a window; a longer context needs several")
    group.add_argument("--overlap", type=int, metavar="N", help="context tokens that neighbouring windows share")


def add_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--encoder", metavar="E", help="minilm (embedded, default), a folder, or a Hub name")


def add_tune(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tuning the encoder")
    group.add_argument(
        "--method",
        metavar="SPEC",
        help="full (default), freeze:k=K, adapters:size=64,share=none|layer|3|all, bitfit, lora:r=8",
    )
    group.add_argument("--epochs", type=float, metavar="X", help="epochs of tuning; fractions, and 0 for none, allowed")
    group.add_argument("--lr", type=float, metavar="X", help="peak learning rate of tuning")
    group.add_argument("--tune-head", metavar="SPEC", help="tune together with this head instead of the plain one")


def add_heads(parser: argparse.ArgumentParser, text: str) -> None:
    """``--head A --head B`` and ``--heads A B`` are the same."""
    parser.add_argument("--heads", "--head", action="extend", nargs="+", metavar="SPEC", help=text)


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, as in fit.lr=1e-3; repeatable"
    )


def whole_numbers(text: str) -> tuple[int, ...]:
    """``0,1,2`` as numbers, each once: the same seed twice would count as two."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected whole numbers such as 0,1,2") from None
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected each number once")
    return found


def numbers(text: str) -> list[float]:
    """``0,0.1,1`` as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected numbers such as 0,0.1,1") from None


def share(text: str) -> tuple[int, int]:
    """``2/8`` as numbers."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected I/N with I from 1 to N, e.g. 2/8")
    return int(part), int(parts)


def at_least_one(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of at least 1")
    return int(text)


def recipe_from(options: argparse.Namespace) -> Recipe:
    """Task or recipe file, overlaid with the flags that were given, then with --set."""
    from bertvision.tasks.recipe_defaults import recipe_defaults

    task, flags = options.task, _flags(options)
    if task.endswith(".toml"):
        recipe = read_recipe(Path(task), recipe_defaults, flags)
    else:
        recipe = built_in_recipe(task, recipe_defaults, **flags)
    recipe = override(recipe, options.set)
    return updated(recipe, heads=tuple(expand_heads(recipe.heads)))


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, in the recipe's form."""
    data = _given(options, {item.name: item.name for item in fields(DataConfig)})
    tune = _given(options, {"method": "method", "epochs": "epochs", "lr": "lr", "tune_head": "head"})
    for one in options.set:
        if one.startswith("tune.method="):  # a method brings settings: it must be known before --set has its turn
            tune["method"] = one.partition("=")[2]
    extract = _given(options, {name: name for name in ("dtype", "layers", "tokens", "shard_mb", "max_gb", "live")})
    top = _given(options, {"encoder": "encoder", "seeds": "seeds", "heads": "heads"})
    return {**top, "data": data, "tune": tune, "extract": extract}


def _given(options: argparse.Namespace, names: dict[str, str]) -> dict[str, Any]:
    found = {setting: getattr(options, flag, None) for flag, setting in names.items()}
    return {setting: value for setting, value in found.items() if value is not None}


def expand_heads(
    words: Sequence[str], shape: Shape | None = None, pooled: bool = True, tokens: str = "all"
) -> list[str]:
    """``quick``, ``all`` or specs; what ``all`` are depends on the shape, without which the word is left."""
    from bertvision.heads.base import canonical_spec
    from bertvision.heads.summary import fitting_heads

    specs: list[str] = []
    for word in words:
        if word == "quick":
            specs.extend(QUICK_HEADS)
        elif word == "all":
            specs.extend(["all"] if shape is None else fitting_heads(shape, pooled, tokens))
        else:
            specs.append(canonical_spec(word))
    return list(dict.fromkeys(specs))
