"""In which run a command leaves something: there it is written down."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def workplace(options: argparse.Namespace) -> Path | None:
    """The run's folder; None for a command that only looks, and for all but the first of several processes."""
    if os.environ.get("RANK", "0") != "0":
        return None
    find = PLACES.get(options.command)
    return None if find is None else find(options)


def _out(options: argparse.Namespace) -> Path:
    return Path(options.out)


def _extracted(options: argparse.Namespace) -> Path | None:
    """The run that a store lies in; of a store on its own there is none."""
    run = Path(options.to).parent
    return run if Path(options.to).name == "store" and (run / "encoder").is_dir() else None


def _fitted(options: argparse.Namespace) -> Path:
    return Path(options.out) if options.out else Path(options.store).parent


def _evaluated(options: argparse.Namespace) -> Path | None:
    return Path(options.folder) if options.compare is None and options.decode is None else None


def _analysed(options: argparse.Namespace) -> Path | None:
    return None if options.list or options.folder is None else Path(options.folder)


def _reported(options: argparse.Namespace) -> Path | None:
    """A page that goes elsewhere leaves its runs as they are."""
    return Path(options.folders[0]) if options.to is None else None


def _searched(options: argparse.Namespace) -> Path | None:
    if Path(options.task).is_dir():
        return Path(options.task)
    return None if options.out is None else Path(options.out)


PLACES = {
    "demo": _out,
    "run": _out,
    "tune": _out,
    "extract": _extracted,
    "fit": _fitted,
    "evaluate": _evaluated,
    "analyse": _analysed,
    "report": _reported,
    "search": _searched,
}
"""By command where it works."""
