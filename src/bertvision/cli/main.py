"""Argument parsing, one-line errors, and exit codes: 0 success, 1 failure, 2 bad input, 130 interrupted."""

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
from bertvision.cli.options import Result, run_folder_of
from bertvision.core.errors import BadInput
from bertvision.core.progress import escape_control_chars, log_line
from bertvision.core.run_log import log_command, record_command
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
"""Errors caused by a path that the user can change."""


def run_folder(options: argparse.Namespace) -> Path | None:
    """The run folder that a command writes to and is logged in; None for commands that only read."""
    match options.command:
        case "run":
            return run_folder_of(options)
        case "demo" | "tune":
            return Path(options.out)
        case "extract":  # a store outside a run folder belongs to no run
            run = Path(options.to).parent
            return run if Path(options.to).name == "store" and (run / "encoder").is_dir() else None
        case "fit":
            return Path(options.out) if options.out else Path(options.store).parent
        case "evaluate" if options.compare is None and options.decode is None:
            return Path(options.folder)
        case "analyse" if not options.list and options.folder is not None:
            return Path(options.folder)
        case "report" if options.to is None:  # a report written elsewhere does not change the runs
            return Path(options.folders[0])
        case "search" if Path(options.task).is_dir():
            return Path(options.task)
        case "search" if options.out is not None:
            return Path(options.out)
    return None


class _Parser(argparse.ArgumentParser):
    """One-line usage errors, and no abbreviated options, because a typo could then mean another option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject unknown arguments in the parser of the command, whose --help lists its options."""
        options, stray = super().parse_known_args(args, namespace)
        if stray:
            close = difflib.get_close_matches(stray[0], self._option_string_actions, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            self.error(f"unrecognized arguments: {' '.join(stray)}{hint}")
        return options, stray

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{self.prog}: {message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bertvision", description=bertvision.__doc__)
    parser.add_argument("--version", action="version", version=f"bertvision {bertvision.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for module in (train, analyse, search, reproduce, store, predict, info):
        module.add_commands(subparsers)
    for command in subparsers.choices.values():
        command.add_argument("--json", action="store_true", help="print one JSON document instead of text")
        command.add_argument("--debug", action="store_true", help="show the traceback if the command fails")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are one line on stderr."""
    set_omp_wait_policy()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = argparse.Namespace(debug="--debug" in words)
    try:
        options = build_parser().parse_args(words)
        is_first_process = os.environ.get("RANK", "0") == "0"  # under torchrun only one process writes the log
        with record_command(words, run_folder(options) if is_first_process else None):
            document, text = COMMANDS[options.command](options)
            log_command()  # not reached if the command failed
        print(json.dumps(document) if options.json else escape_control_chars(text), flush=True)
        return 0
    except BadInput as error:
        return _failed(error, 2, options)
    except KeyboardInterrupt:
        print("interrupted; rerun the same command to resume", file=sys.stderr)
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
