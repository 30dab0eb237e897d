"""Parsing, one-line errors, exit codes: 0 done, 1 failed, 2 bad input or usage."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import bertvision
from bertvision.cli import analyse, info, predict, reproduce, search, store, train
from bertvision.cli.options import Result
from bertvision.core.errors import BadInput
from bertvision.core.progress import escape_control_chars, log_line
from bertvision.core.run_log import log_command, typed
from bertvision.core.runtime import set_omp_wait_policy

COMMANDS: dict[str, Callable[[argparse.Namespace], Result]] = {
    "demo": train.demo_command,
    "run": train.run_command,
    "tune": train.tune_command,
    "extract": train.extract_command,
    "fit": train.fit_command,
    "costs": train.costs_command,
    "evaluate": train.evaluate_command,
    "ensemble": train.ensemble_command,
    "analyse": analyse.analyse_command,
    "report": analyse.report_command,
    "search": search.search_command,
    "reproduce": reproduce.reproduce_command,
    "plan": store.plan_command,
    "store": store.store_command,
    "predict": predict.predict_command,
    "score": predict.score_command,
    "heads": info.heads_command,
    "tasks": info.tasks_command,
    "encoders": info.encoders_command,
    "doctor": info.doctor_command,
}

PATH_ERRORS = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
"""Errors that a path given by the user can cause anywhere."""


def run_folder(options: argparse.Namespace) -> Path | None:
    """The run that a command writes to, and is logged in; None if it only reads."""
    match options.command:
        case "demo" | "run" | "tune":
            return Path(options.out)
        case "extract":  # a store outside a run belongs to none
            run = Path(options.to).parent
            return run if Path(options.to).name == "store" and (run / "encoder").is_dir() else None
        case "fit":
            return Path(options.out) if options.out else Path(options.store).parent
        case "evaluate" if options.compare is None and options.decode is None:
            return Path(options.folder)
        case "analyse" if not options.list and options.folder is not None:
            return Path(options.folder)
        case "report" if options.to is None:  # a page written elsewhere leaves its runs as they are
            return Path(options.folders[0])
        case "search" if Path(options.task).is_dir():
            return Path(options.task)
        case "search" if options.out is not None:
            return Path(options.out)
    return None


class _Parser(argparse.ArgumentParser):
    """Usage errors are one line; options cannot be abbreviated, because half of one may mean another."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report unknown arguments by the command itself, whose help lists the right ones."""
        options, unknown_name = super().parse_known_args(args, namespace)
        if unknown_name:
            close = difflib.get_close_matches(unknown_name[0], self._option_string_actions, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            self.error(f"unrecognized arguments: {' '.join(unknown_name)}{hint}")
        return options, unknown_name

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{self.prog}: {message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bertvision", description=bertvision.__doc__)
    parser.add_argument("--version", action="version", version=f"bertvision {bertvision.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for module in (train, analyse, search, reproduce, store, predict, info):
        module.add_commands(commands)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print one JSON document on stdout and nothing else")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; everything that goes wrong is one line on stderr."""
    set_omp_wait_policy()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = argparse.Namespace(debug="--debug" in words)
    try:
        options = build_parser().parse_args(words)
        leads = os.environ.get("RANK", "0") == "0"  # of several processes only the first one writes the log
        with typed(words, run_folder(options) if leads else None):
            document, text = COMMANDS[options.command](options)
            log_command()  # only a command that succeeded
        print(json.dumps(document) if options.json else escape_control_chars(text), flush=True)
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


def _failed(error: Exception, code: int, options: argparse.Namespace) -> int:
    if options.debug:
        raise error
    name = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
    text = " ".join(f"{name}{error}".split())
    log_line(f"error: {text}")
    return code
