"""What the tests of the command line share: calling it, and what it came to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from bertvision.cli.main import main


class Said(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def refused(self, code: int = 2) -> str:
        """The one line that a command which failed has to say, and nothing on stdout."""
        assert (self.code, self.out) == (code, ""), self
        assert len(self.errors) == 1, self.err
        assert "Traceback" not in self.err
        return self.errors[0]

    def document(self) -> Any:
        """The one JSON document on stdout."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def called(*words: object) -> Said:
        capsys.readouterr()
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return Said(code, shown.out, shown.err)

    return called
