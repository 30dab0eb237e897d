"""The command that tries heads, settings and tunings: search."""

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
    int_list,
    positive_int,
    recipe_from,
)
from bertvision.core.config import DataConfig
from bertvision.core.errors import BadInput

HEADS = ("compress", "learned-pool", "probe")

OF_A_TASK = (*(item.name for item in fields(DataConfig)), "encoder", "method", "epochs", "lr", "tune_head", "out")
"""Options for a search that starts with a task; a finished run has its data, encoder and tuning already."""


def add_commands(commands: Any) -> None:
    search = commands.add_parser("search", help="try heads and their settings, chosen on inner (Optuna)")
    for add in (add_data, add_encoder, add_tune, add_set):
        add(search)
    search.add_argument("--out", metavar="RUN", help="folder of the run; not needed if TASK is a run")
    add_heads(search, "specs to try (an option named there is fixed), quick, all; default compress learned-pool probe")
    search.add_argument(
        "--trials", type=positive_int, default=30, metavar="N", help="in all, over all calls; default 30"
    )
    search.add_argument(
        "--together",
        type=positive_int,
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
        "--seeds",
        dest="final_seeds",
        type=int_list,
        default=(0, 1, 2),
        metavar="0,1,2",
        help="random seeds of the finalists",
    )
    search.add_argument("--search-seed", type=int, default=0, metavar="N", help="random seed of the sampler; default 0")
    search.add_argument(
        "--tunings", type=positive_int, metavar="N", help="with tune. keys in --space: number of tunings"
    )


def search_command(options: argparse.Namespace) -> Result:
    from bertvision.tasks.task import TASKS
    from bertvision.workflows.search.heads import SearchBudget

    plan = SearchBudget(options.trials, options.together, tuple(options.final_seeds), options.search_seed)
    tuned = [text for text in options.space if text.startswith("tune.")]
    if tuned and options.tunings is None:  # each tuning takes as long as a run: no default
        raise BadInput(f"--space {tuned[0]} searches over tunings; say how many: --tunings N, or leave it out")
    if options.tunings is not None and not tuned:
        raise BadInput(
            f"--tunings {options.tunings} needs tune. keys in --space, got {' '.join(options.space) or 'none'}; "
            "e.g. --space tune.lr=5e-5..3e-4, or leave --tunings out"
        )
    # A folder may have the name of a task; --out tells that the task is meant.
    if Path(options.task).is_dir() and (options.out is None or options.task not in TASKS):
        return _search_run(options, plan)
    if options.out is None:
        raise BadInput(f"search needs --out RUN, or a run in place of TASK; {options.task} is no folder")
    return _search_task(options, plan)


def _search_run(options: argparse.Namespace, plan: Any) -> Result:
    """Search on the states of a finished run, starting from its settings of fitting."""
    from bertvision.core.config import override, read_run_recipe
    from bertvision.runs.folder import run_states
    from bertvision.workflows.search.heads import search, space_for_states

    given = [f"--{name.replace('_', '-')}" for name in OF_A_TASK if getattr(options, name) is not None]
    given += [f"--set {text}" for text in options.set if not text.startswith("fit.")]
    if options.tunings is not None:
        given.append("--tunings")
    if given:
        raise BadInput(
            f"{options.task} is a run, and {given[0]} is for a search that begins with a task: a run keeps its data, "
            f"encoder and tuning; leave it out, or search TASK {given[0]} ... --out ANOTHER"
        )
    folder = Path(options.task)
    states = run_states(folder)
    config = override(read_run_recipe(folder), options.set).fit
    space = space_for_states(states, options.heads or HEADS, options.space)
    return search_result(search(folder, states, space, config, plan), folder)


def _search_task(options: argparse.Namespace, plan: Any) -> Result:
    """Tune and extract first, or search over tunings too."""
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task, prepare
    from bertvision.workflows.search.heads import recipe_features, search
    from bertvision.workflows.search.space import build_space, expand_head_names
    from bertvision.workflows.search.tunings import search_tuning

    words, folder = tuple(options.heads or HEADS), Path(options.out)
    options.heads = list(words)
    if options.tunings is not None:
        recipes = partial(_recipe, options)
        return search_result(search_tuning(recipes, folder, words, options.space, plan, options.tunings), folder)
    recipe = recipe_from(options)
    task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
    features = recipe_features(recipe, task, encoder)
    # As typed: the canonical form would name options, and so fix them.
    heads = expand_head_names(words, features)
    space = build_space(heads, features, options.space)
    states, _ = prepare(recipe, folder, heads, (task, encoder))
    return search_result(search(folder, states, space, recipe.fit, plan), folder)


def _recipe(options: argparse.Namespace, method: str | None) -> Any:
    """The recipe as typed, or with another tuning method and what that presets."""
    more = [] if method is None else [f"tune.method={method}"]
    return recipe_from(argparse.Namespace(**{**vars(options), "set": [*options.set, *more]}))


def search_result(document: Mapping[str, Any], folder: Path) -> Result:
    """The outcome as text: the winner beside the defaults (it may be one of them), and on which tuning."""
    metric, winner, test = document["metric"], document["winner"], document["difference"]
    lines = []
    if "tuning" in document:
        from bertvision.workflows.search.tunings import settings_text

        count, tuning = len(document["tunings"]), settings_text(document["tuning"])
        lines.append(f"best of {count} tunings on inner: {tuning}, {document['run']}")
    lines.append(f"{document['trials']} trials on inner; dev was looked at once for these rows:")
    lines.append(f"{'':10}{f'inner {metric}':>14}{f'dev {metric}':>14}  head and settings")
    for name, row in [("winner", winner), *(("default", row) for row in document["defaults"])]:
        settings = " ".join(f"{key}={value:.3g}" for key, value in row["fit"].items())
        lines.append(f"{name:10}{row['inner']:>14.2f}{row['dev']:>14.2f}  {row['spec']} {settings}".rstrip())
    if document["default_wins"]:
        lines.append(f"nothing that was tried is better on inner than the default {winner['spec']}")
    if test:
        interval = "" if test["low"] is None else f", 95 % {test['low']:+.2f} to {test['high']:+.2f}"
        # An F1 of labels or a correlation is no mean over examples, so one seed represents each row.
        one_seed = len(document["seeds"]) > 1 and max(map(len, test.get("seeds", [()]))) == 1
        which = " (of each the seed best on inner)" if one_seed else ""
        lines.append(
            f"winner minus {test['against']}{which}: {test['difference']:+.2f} on dev{interval}, p {test['p']:.2g}"
        )
    if document["dev_looks"] > 1:
        lines.append(
            f"dev was looked at {document['dev_looks']} times over all calls: its scores favour the winner a little"
        )
    return dict(document), "\n".join([*lines, document["command"], f"{folder / 'search'}, {folder / 'analysis'}"])
