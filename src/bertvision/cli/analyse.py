"""The command that looks into a finished run: how many layers it needs, which of its adapters matter."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bertvision.cli.options import add_set, whole_numbers

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    analyse = commands.add_parser("analyse", help="score by encoder layers used, or without some adapters")
    analyse.add_argument("folder", metavar="RUN", help="a folder that run made")
    what = analyse.add_mutually_exclusive_group(required=True)
    what.add_argument("--depth", metavar="SPEC", help="the head to fit over states 0..k for every k")
    what.add_argument("--ablation", action="store_true", help="switch off the adapters of every span of layers")
    analyse.add_argument("--within", type=float, metavar="X", help="save a model cut where inner is this close to best")
    analyse.add_argument("--seeds", type=whole_numbers, default=(0,), metavar="0,1,2", help="one fit each; default 0")
    add_set(analyse)
    analyse.set_defaults(run=_analyse)


def _analyse(options: argparse.Namespace) -> Result:
    return _ablation(options) if options.ablation else _depth(options)


def _ablation(options: argparse.Namespace) -> Result:
    """Rows are the first layer without adapters, columns the last."""
    from bertvision.ablation import ablate

    document = ablate(Path(options.folder))
    layers = range(1, document["layers"] + 1)
    lost = {(row["first"], row["last"]): row["decrease"] for row in document["rows"]}
    lines = ["first\\last" + "".join(f"{last:>8}" for last in layers)]
    for first in layers:
        cells = (f"{lost[first, last]:>8.1f}" if (first, last) in lost else " " * 8 for last in layers)
        lines.append(f"{first:>10}" + "".join(cells))
    lines.append(f"% of {document['metric']} {document['score']:.2f} lost without these layers' adapters")
    lines.append(f"picture: {Path(options.folder) / 'ablation' / 'ablation.svg'}")
    return document, "\n".join(lines)


def _depth(options: argparse.Namespace) -> Result:
    from bertvision.config import Recipe, override
    from bertvision.depth import depth_frontier

    config = override(Recipe(task="fit"), options.set).fit
    document = depth_frontier(Path(options.folder), options.depth, options.seeds, config, options.within)
    metric = document["metric"]
    lines = [f"{'layers':>8}{f'dev {metric}':>14}{f'inner {metric}':>14}"]
    lines += [f"{row['depth']:>8}{row['dev']:>14.2f}{row['inner']:>14.2f}" for row in document["rows"]]
    if document["chosen"] is not None:
        cut = document["cut"]
        lines.append(
            f"{document['chosen']} of {cut['of']} layers are within {document['within']:g} of the best on inner: "
            f"{cut['model']} takes {cut['time_ratio']:.2f} of the time"
        )
    return document, "\n".join(lines)
