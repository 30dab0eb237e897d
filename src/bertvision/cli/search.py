"""The command that looks for better settings: search."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertvision.cli.options import add_data, add_encoder, add_heads, add_set, add_tune, at_least_one, whole_numbers
from bertvision.errors import BadInput

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    search = commands.add_parser("search", help="try heads and their settings, chosen on inner (Optuna)")
    for add in (add_data, add_encoder, add_tune, add_set):
        add(search)
    search.add_argument("--out", metavar="RUN", help="folder of the run; not needed where TASK is one")
    add_heads(search, "which to try, as specs; an option named there is fixed; default compress learned-pool probe")
    search.add_argument(
        "--trials", type=at_least_one, default=30, metavar="N", help="in all, over all calls; default 30"
    )
    search.add_argument(
        "--together",
        type=at_least_one,
        default=8,
        metavar="N",
        help="trials that share a read of the states; default 8",
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
    search.set_defaults(run=_search)


def _search(options: argparse.Namespace) -> Result:
    from bertvision.search import Plan

    typed = options.space
    plan = Plan(options.trials, options.together, tuple(options.final_seeds), options.search_seed)
    tuning = any(text.startswith("tune.") for text in typed)
    if tuning != (options.tunings is not None):
        raise BadInput("tune. keys in --space and --tunings N belong together: each tuning takes as long as a run")
    if Path(options.task).is_dir():
        return _on_run(options, plan)
    if options.out is None:
        raise BadInput(f"search needs --out RUN, or a run in place of TASK; {options.task} is no folder")
    return _on_task(options, plan)


HEADS = ("compress", "learned-pool", "probe")


def _on_run(options: argparse.Namespace, plan: Any) -> Result:
    """A finished run: its states, and how its heads were fitted."""
    from bertvision.conclude import run_states
    from bertvision.config import Recipe, override, read_recipe
    from bertvision.search import search, states_space

    if options.tunings is not None:
        raise BadInput("to search over tuning give the task and its data, and another --out")
    folder = Path(options.task)
    states = run_states(folder)
    path = folder / "recipe.toml"
    recipe = read_recipe(path) if path.exists() else Recipe(task="fit")
    space = states_space(states, options.heads or HEADS, options.space)
    return told_search(search(folder, states, space, override(recipe, options.set).fit, plan), folder)


def _on_task(options: argparse.Namespace, plan: Any) -> Result:
    from bertvision.cli.options import recipe_from
    from bertvision.pipeline import prepare
    from bertvision.search import search, states_space
    from bertvision.search_tuning import search_tuning

    # As typed: the canonical form would name options, and so fix them.
    heads = tuple(options.heads or HEADS)
    options.heads = list(heads)
    recipe, folder = recipe_from(options), Path(options.out)
    if options.tunings is not None:
        document, place = search_tuning(recipe, folder, heads, options.space, plan, options.tunings)
        return told_search(document, place)
    states, _ = prepare(recipe, folder, heads)
    return told_search(search(folder, states, states_space(states, heads, options.space), recipe.fit, plan), folder)


def told_search(document: Mapping[str, Any], folder: Path) -> Result:
    """The winner beside the defaults."""
    metric, winner = document["metric"], document["winner"]
    lines = [f"{document['trials']} trials on inner; dev was looked at once for these rows:"]
    lines.append(f"{'':10}{f'inner {metric}':>14}{f'dev {metric}':>14}  head and settings")
    rows = [("winner", winner), *(("default", row) for row in document["defaults"])]
    for name, row in rows:
        settings = " ".join(f"{key}={value:.3g}" for key, value in row["fit"].items())
        lines.append(f"{name:10}{row['inner']:>14.2f}{row['dev']:>14.2f}  {row['spec']} {settings}".rstrip())
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
