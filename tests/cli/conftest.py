"""Fixtures of command-line tests: calling a command and reading its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from bertvision.cli.main import main


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def refused(self, code: int = 2) -> str:
        """The single error line of a command that failed; stdout must be empty."""
        assert (self.code, self.out) == (code, ""), self
        assert len(self.errors) == 1, self.err
        assert "Traceback" not in self.err
        return self.errors[0]

    def document(self) -> Any:
        """The single JSON document on stdout."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    def run(*arguments: object) -> CommandResult:
        capsys.readouterr()
        code = main([str(word) for word in arguments])
        shown = capsys.readouterr()
        return CommandResult(code, shown.out, shown.err)

    return run
