"""The search command: hyperparameter search over heads, their training and the tuning of the encoder."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from bertvision.cli.options import (
    Result,
    add_command,
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
from bertvision.core.summaries import TOGETHER

HEADS = ("compress", "learned-pool", "probe")

TASK_OPTIONS = (*(item.name for item in fields(DataConfig)), "encoder", "method", "epochs", "lr", "tune_head", "out")
"""Options that apply only if the search starts from a task; a finished run has its data, encoder and tuning."""


def add_commands(subparsers: Any) -> None:
    search = add_command(
        subparsers,
        "search",
        "search over heads and hyperparameters with Optuna, selecting on inner (held-out training data)",
        "runs/reviews --trials 100",
        "runs/reviews --heads compress --space compress.size=16|64|256 fit.lr=1e-4..1e-2",
        "text --train reviews.csv --out runs/search --space tune.lr=2e-5..2e-4 --tunings 5",
    )
    for add in (add_data, add_encoder, add_tune, add_set):
        add(search)
    search.add_argument("--out", metavar="RUN", help="run folder; leave it out if TASK is a run folder")
    add_heads(
        search,
        "heads to try: quick, all, or specs, whose options are then fixed (default: compress learned-pool probe)",
    )
    search.add_argument(
        "--trials",
        type=positive_int,
        default=30,
        metavar="N",
        help="number of trials, those of earlier calls included (default: 30)",
    )
    search.add_argument(
        "--together",
        type=positive_int,
        default=8,
        metavar="N",
        help="heads trained at a time, in one pass over the hidden states (default: 8)",
    )
    search.add_argument(
        "--space",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUES",
        help="values of head options and of fit and tune settings: A|B|C, or a range LOW..HIGH "
        "(default: declared by the heads)",
    )
    search.add_argument(
        "--seeds",
        dest="final_seeds",
        type=int_list,
        default=(0, 1, 2),
        metavar="0,1,2",
        help="random seeds that finalists are trained with (default: 0,1,2)",
    )
    search.add_argument(
        "--search-seed", type=int, default=0, metavar="N", help="random seed of the sampler (default: 0)"
    )
    search.add_argument(
        "--tunings", type=positive_int, metavar="N", help="number of tunings, required with tune. keys in --space"
    )


def search_command(options: argparse.Namespace) -> Result:
    from bertvision.tasks.task import TASKS
    from bertvision.workflows.search.heads import SearchBudget

    plan = SearchBudget(options.trials, options.together, tuple(options.final_seeds), options.search_seed)
    tuned = [text for text in options.space if text.startswith("tune.")]
    if tuned and options.tunings is None:  # no default, because each tuning takes as long as a run
        raise BadInput(
            f"--space {tuned[0]} searches over tunings; set how many with --tunings N, or leave {tuned[0]} out"
        )
    if options.tunings is not None and not tuned:
        raise BadInput(
            f"--tunings {options.tunings} needs a tune setting in --space, got {' '.join(options.space) or 'none'}; "
            "add one, e.g. --space tune.lr=5e-5..3e-4, or leave --tunings out"
        )
    # If a folder has the name of a task, --out selects the task.
    if Path(options.task).is_dir() and (options.out is None or options.task not in TASKS):
        return _search_run(options, plan)
    if options.out is None:
        raise BadInput(f"search needs --out RUN, or a run folder instead of TASK; no folder named {options.task}")
    return _search_task(options, plan)


def _search_run(options: argparse.Namespace, plan: Any) -> Result:
    """Search on the hidden states of a finished run, starting from its ``fit`` settings."""
    from bertvision.core.config import override, read_run_recipe
    from bertvision.runs.folder import run_states
    from bertvision.workflows.search.heads import search, space_for_states

    given = [f"--{name.replace('_', '-')}" for name in TASK_OPTIONS if getattr(options, name) is not None]
    given += [f"--set {text}" for text in options.set if not text.startswith("fit.")]
    if options.tunings is not None:
        given.append("--tunings")
    if given:
        raise BadInput(
            f"{options.task} is a run folder, whose data, encoder and tuning are fixed: {given[0]} does not apply; "
            f"leave it out, or start from the task: bertvision search TASK {given[0]} ... --out ANOTHER"
        )
    folder = Path(options.task)
    states = run_states(folder)
    config = override(read_run_recipe(folder), options.set).fit
    space = space_for_states(states, options.heads or HEADS, options.space)
    return search_result(search(folder, states, space, config, plan), folder)


def _search_task(options: argparse.Namespace, plan: Any) -> Result:
    """Search from a task: tune and extract first, or search over tunings too."""
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task, prepare_run
    from bertvision.workflows.search.heads import recipe_features, search
    from bertvision.workflows.search.space import build_space, expand_head_names
    from bertvision.workflows.search.tunings import search_tuning

    words, folder = tuple(options.heads or HEADS), Path(options.out)
    options.heads = list(words)
    if options.tunings is not None:
        recipes = partial(_recipe_with_method, options)
        return search_result(search_tuning(recipes, folder, words, options.space, plan, options.tunings), folder)
    recipe = _recipe_with_method(options, None)
    task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
    features = recipe_features(recipe, task, encoder)
    # Not the canonical specs of the recipe: they name options, which would fix them.
    heads = expand_head_names(words, features)
    space = build_space(heads, features, options.space)
    states = prepare_run(recipe, folder, heads, (task, encoder)).states
    return search_result(search(folder, states, space, recipe.fit, plan), folder)


def _recipe_with_method(options: argparse.Namespace, method: str | None) -> Any:
    """The recipe of the command line, optionally with another tuning method and its presets."""
    override = [] if method is None else [f"tune.method={method}"]
    recipe = recipe_from(argparse.Namespace(**{**vars(options), "set": [*options.set, *override]}))
    extract = recipe.extract
    tokens = "all" if extract.tokens == "auto" else extract.tokens  # heads of any reading are tried
    pairs = TOGETHER if extract.pairs == "auto" else extract.pairs
    return replace(recipe, extract=replace(extract, tokens=tokens, pairs=pairs))


def search_result(document: Mapping[str, Any], folder: Path) -> Result:
    """The outcome as text: the winner, the default heads, and their difference on dev."""
    metric, winner, test = document["metric"], document["winner"], document["difference"]
    lines = []
    if "tuning" in document:
        from bertvision.workflows.search.tunings import settings_text

        count, tuning = len(document["tunings"]), settings_text(document["tuning"])
        lines.append(f"best of {count} tunings on inner: {tuning}, {document['run']}")
    lines.append(f"{document['trials']} trials scored on inner; only these rows were scored on dev:")
    lines.append(f"{'':10}{f'inner {metric}':>14}{f'dev {metric}':>14}  head and settings")
    for name, row in [("winner", winner), *(("default", row) for row in document["defaults"])]:
        settings = " ".join(f"{key}={value:.3g}" for key, value in row["fit"].items())
        lines.append(f"{name:10}{row['inner']:>14.2f}{row['dev']:>14.2f}  {row['spec']} {settings}".rstrip())
    if document["default_wins"]:
        lines.append(f"no trial beats the default {winner['spec']} on inner")
    if test:
        interval = "" if test["low"] is None else f", 95 % {test['low']:+.2f} to {test['high']:+.2f}"
        # Metrics that are not means over examples are tested with one seed per row, see compare().
        one_seed = len(document["seeds"]) > 1 and max(map(len, test.get("seeds", [()]))) == 1
        which = " (each with its best seed on inner)" if one_seed else ""
        lines.append(
            f"winner minus {test['against']}{which}: {test['difference']:+.2f} on dev{interval}, p {test['p']:.2g}"
        )
    if document["dev_looks"] > 1:
        lines.append(
            f"dev was scored {document['dev_looks']} times over all searches, so the winner's dev score is slightly "
            "optimistic"
        )
    return dict(document), "\n".join([*lines, document["command"], f"{folder / 'search'}, {folder / 'analysis'}"])
