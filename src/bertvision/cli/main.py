"""Parsing, one-line errors, exit codes: 0 done, 1 failed, 2 bad input or usage."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import bertvision
from bertvision.cli import analyse, reproduce, search
from bertvision.cli import info as inspect
from bertvision.cli import predict as use
from bertvision.cli import store as stores
from bertvision.cli import train as experiment
from bertvision.core.errors import BadInput
from bertvision.core.progress import escape_control_chars, log_line
from bertvision.core.run_log import note_command, typed
from bertvision.core.runtime import set_omp_wait_policy

PATH_ERRORS = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
"""What a path that a user gave can lead to where nobody looked closer."""


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


class _Parser(argparse.ArgumentParser):
    """Usage errors are one line, like all others; an option is written out, because half of one may mean another."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What a command does not know is told by the command itself, whose help has what was meant."""
        options, strange = super().parse_known_args(args, namespace)
        if strange:
            close = difflib.get_close_matches(strange[0], self._option_string_actions, n=1)
            self.error(f"unrecognized arguments: {' '.join(strange)}{f' (did you mean {close[0]}?)' if close else ''}")
        return options, strange

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{self.prog}: {message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bertvision", description=bertvision.__doc__)
    parser.add_argument("--version", action="version", version=f"bertvision {bertvision.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for module in (experiment, analyse, search, reproduce, stores, use, inspect):
        module.add_commands(commands)
    for command in commands.choices.values():
        command.add_argument(
            "--json", action="store_true", help="print one JSON document on stdout and nothing else there"
        )
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; everything that goes wrong is one line on stderr."""
    set_omp_wait_policy()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = argparse.Namespace(debug="--debug" in words)
    try:
        options = build_parser().parse_args(words)
        _print(_done(options, words), options.json)
        return 0
    except BadInput as error:
        return _failed(error, 2, options)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except PATH_ERRORS as error:
        return _failed(BadInput(f"cannot use {error.filename}: {error.strerror}; choose another path"), 2, options)
    except Exception as error:
        return _failed(error, 1, options)


def _done(options: argparse.Namespace, words: Sequence[str]) -> Any:
    """What a command gives; one that went well is written down in the run that it worked in."""
    with typed(words, workplace(options)):
        result = options.run(options)
        note_command()
    return result


def _failed(error: Exception, code: int, options: argparse.Namespace) -> int:
    if options.debug:
        raise error
    name = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
    text = " ".join(f"{name}{error}".split())
    log_line(f"error: {text}")
    return code


def _print(result: Any, as_json: bool) -> None:
    """A command returns (plain data, text for a person)."""
    data, text = result
    print(json.dumps(data) if as_json else escape_control_chars(text), flush=True)
