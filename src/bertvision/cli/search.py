"""The command that looks for better settings: search."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from bertvision.cli.options import (
    Result,
    add_data,
    add_encoder,
    add_heads,
    add_set,
    add_tune,
    at_least_one,
    whole_numbers,
)
from bertvision.core.config import DataConfig
from bertvision.core.errors import BadInput


def add_commands(commands: Any) -> None:
    search = commands.add_parser("search", help="try heads and their settings, chosen on inner (Optuna)")
    for add in (add_data, add_encoder, add_tune, add_set):
        add(search)
    search.add_argument("--out", metavar="RUN", help="folder of the run; not needed where TASK is one")
    add_heads(search, "specs to try (an option named there is fixed), quick, all; default compress learned-pool probe")
    search.add_argument(
        "--trials", type=at_least_one, default=30, metavar="N", help="in all, over all calls; default 30"
    )
    search.add_argument(
        "--together",
        type=at_least_one,
        default=8,
        metavar="N",
        help="heads in memory at a time, which share a read of the states; default 8",
    )
    search.add_argument(
        "--space",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUES",
        help="what to try: compress.size=16|64|256 fit.lr=1e-4..1e-2 tune.epochs=0.3|1",
    )
    search.add_argument(
        "--seeds", dest="final_seeds", type=whole_numbers, default=(0, 1, 2), metavar="0,1,2", help="of the finalists"
    )
    search.add_argument("--search-seed", type=int, default=0, metavar="N", help="of what is drawn; default 0")
    search.add_argument(
        "--tunings", type=at_least_one, metavar="N", help="with tune. keys in --space: how many tunings"
    )


def search_command(options: argparse.Namespace) -> Result:
    from bertvision.tasks.task import TASKS
    from bertvision.workflows.search.heads import Plan

    plan = Plan(options.trials, options.together, tuple(options.final_seeds), options.search_seed)
    _check_tunings(options)
    # A folder may happen to be called as a task is; a search that begins with one has --out.
    if Path(options.task).is_dir() and (options.out is None or options.task not in TASKS):
        return _on_run(options, plan)
    if options.out is None:
        raise BadInput(f"search needs --out RUN, or a run in place of TASK; {options.task} is no folder")
    return _on_task(options, plan)


def _check_tunings(options: argparse.Namespace) -> None:
    """Every tuning takes as long as a run: how many is never guessed."""
    tuned = [text for text in options.space if text.startswith("tune.")]
    if tuned and options.tunings is None:
        raise BadInput(f"--space {tuned[0]} searches over tunings; say how many: --tunings N, or leave it out")
    if options.tunings is not None and not tuned:
        raise BadInput(
            f"--tunings {options.tunings} needs tune. keys in --space, got {' '.join(options.space) or 'none'}; "
            "e.g. --space tune.lr=5e-5..3e-4, or leave --tunings out"
        )


HEADS = ("compress", "learned-pool", "probe")
OF_A_TASK = (*(item.name for item in fields(DataConfig)), "encoder", "method", "epochs", "lr", "tune_head", "out")
"""Options that say what a run is made of: one that is made already does not listen to them."""


def _check_ignored(options: argparse.Namespace) -> None:
    given = [f"--{name.replace('_', '-')}" for name in OF_A_TASK if getattr(options, name) is not None]
    given += [f"--set {text}" for text in options.set if not text.startswith("fit.")]
    if options.tunings is not None:
        given.append("--tunings")
    if given:
        raise BadInput(
            f"{options.task} is a run, and {given[0]} is for a search that begins with a task: a run keeps its data, "
            f"encoder and tuning; leave it out, or search TASK {given[0]} ... --out ANOTHER"
        )


def _on_run(options: argparse.Namespace, plan: Any) -> Result:
    """A finished run: its states, and how its heads were fitted."""
    from bertvision.core.config import override, recipe_of_run
    from bertvision.runs.folder import run_states
    from bertvision.workflows.search.heads import search, states_space

    _check_ignored(options)
    folder = Path(options.task)
    states = run_states(folder)
    recipe = recipe_of_run(folder)
    space = states_space(states, options.heads or HEADS, options.space)
    return told_search(search(folder, states, space, override(recipe, options.set).fit, plan), folder)


def _on_task(options: argparse.Namespace, plan: Any) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task, prepare
    from bertvision.workflows.search.heads import recipe_ground, search
    from bertvision.workflows.search.space import named_heads, space_of
    from bertvision.workflows.search.tunings import search_tuning

    words, folder = tuple(options.heads or HEADS), Path(options.out)
    options.heads = list(words)
    if options.tunings is not None:
        document, _ = search_tuning(partial(_recipe, options), folder, words, options.space, plan, options.tunings)
        return told_search(document, folder)
    recipe = _recipe(options)
    task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
    ground = recipe_ground(recipe, task, encoder)
    # As typed: the canonical form would name options, and so fix them.
    heads = named_heads(words, ground)
    space = space_of(heads, ground, options.space)
    states, _ = prepare(recipe, folder, heads, (task, encoder))
    return told_search(search(folder, states, space, recipe.fit, plan), folder)


def _recipe(options: argparse.Namespace, method: str | None = None) -> Any:
    """The recipe that was asked for, or that of another method, which brings settings of its own."""
    from bertvision.cli.options import recipe_from

    more = [] if method is None else [f"tune.method={method}"]
    return recipe_from(argparse.Namespace(**{**vars(options), "set": [*options.set, *more]}))


def told_search(document: Mapping[str, Any], folder: Path) -> Result:
    """The winner beside the defaults (it may be one of them), and on which tuning."""
    metric, winner = document["metric"], document["winner"]
    lines = [*_told_tuning(document), f"{document['trials']} trials on inner; dev was looked at once for these rows:"]
    lines.append(f"{'':10}{f'inner {metric}':>14}{f'dev {metric}':>14}  head and settings")
    rows = [("winner", winner), *(("default", row) for row in document["defaults"])]
    for name, row in rows:
        settings = " ".join(f"{key}={value:.3g}" for key, value in row["fit"].items())
        lines.append(f"{name:10}{row['inner']:>14.2f}{row['dev']:>14.2f}  {row['spec']} {settings}".rstrip())
    if document["default_wins"]:
        lines.append(f"nothing that was tried is better on inner than the default {winner['spec']}")
    found = document["difference"]
    if found:
        ends = "" if found["low"] is None else f", 95 % {found['low']:+.2f} to {found['high']:+.2f}"
        # An F1 of labels or a correlation is no mean over examples, so that one seed stands for each side.
        one = len(document["seeds"]) > 1 and max(map(len, found.get("seeds", [()]))) == 1
        which = " (of each the seed best on inner)" if one else ""
        lines.append(
            f"winner minus {found['against']}{which}: {found['difference']:+.2f} on dev{ends}, p {found['p']:.2g}"
        )
    if document["dev_looks"] > 1:
        lines.append(
            f"dev was looked at {document['dev_looks']} times over all calls: its scores favour the winner a little"
        )
    return dict(document), "\n".join([*lines, document["command"], f"{folder / 'search'}, {folder / 'analysis'}"])


def _told_tuning(document: Mapping[str, Any]) -> list[str]:
    if "tuning" not in document:
        return []
    from bertvision.workflows.search.tunings import told_settings

    count = len(document["tunings"])
    return [f"best of {count} tunings on inner: {told_settings(document['tuning'])}, {document['run']}"]
