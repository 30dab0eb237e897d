"""Code measures of a small made-up package, counted by hand."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "measure_code.py"
FILES = {
    "__init__.py": '"""A package."""\n',
    "top.py": """from typing import TYPE_CHECKING

from made.low import part
from made.middle import half

if TYPE_CHECKING:
    from made.low.part import Piece


# The only comment that has a line of its own.
def whole(piece: "Piece") -> float:
    return _twice(half(piece)) + _once(part.half(piece))  # not this one


def _twice(x: float) -> float:
    return _once(x) + 0 * _alone(x)


def _once(x: float) -> float:
    return x


def _alone(x: float) -> float:
    return x
""",
    "middle.py": """from . import low
from .low.part import Piece as Other


class Piece:
    \"\"\"Not the one of part.\"\"\"


def half(piece: Other) -> float:
    from made import top

    return top._alone(piece)
""",
    "low/__init__.py": "",
    "low/part.py": "class Piece: ...\n\n\ndef half(piece: Piece) -> float:\n    return 0.5\n",
    "low/top.py": "",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_code", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def made(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "made"


def test_measures_of_a_small_package(script: ModuleType, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([str(made), "--json", "--twelve", "low"]) == 0
    measures = json.loads(capsys.readouterr().out)
    expected = {
        "files": 6,
        "files without __init__": 4,
        "lines of Python": 42,
        "lines of imports": 7,
        "file length, max": 24,
        "functions (methods and nested ones included)": 6,
        "classes": 2,
        "function length, max": 4,
        "modules in the root": 2,
        "entries in the root (modules and packages)": 3,
        "comment-only lines": 1,
        "docstring lines (of attributes too)": 2,
        "longest import chain": ["made.top", "made.middle", "made.low"],
        "module cycles (module level)": 0,
        "module cycles with function-level imports": 1,
        "function-level imports of the package (module pairs)": 1,
        "edges between root entries (function-level included, cli and __main__ excluded)": 4,
        "pairs of root entries that import each other": 1,
        "low: files, lines": "3, 5",
        "one-caller helpers": 1,
        "one-caller helpers, lines": 2,
        "one-caller helpers of at most 5 lines": 1,
        "module names in more than one package, list": ["top"],
        "public function names in more than one module, list": ["half"],
        "class names in more than one module, list": ["Piece"],
    }
    assert {name: measures[name] for name in expected} == expected


def test_longest_chain_counts_a_cycle_as_one_module(script: ModuleType) -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set()}
    assert script.longest_chain(edges) == [("a",), ("b", "c"), ("d",)]


def test_as_markdown_leaves_out_the_lists_of_the_walk(script: ModuleType) -> None:
    text = script.as_markdown({"files": 3, "chain": ["a", "b"], "walk: files": ["a.py"]}, verbose=False)
    assert text.splitlines()[2:] == ["| files | 3 |", "", "chain: `a`, `b`"]


def test_recorder_ignores_functions_called_during_import(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "walked_inner.py").write_text(
        "def at_import(): return 1\nclass A:\n    x = at_import()\ndef f(): pass\n"
    )
    (tmp_path / "walked.py").write_text(
        "def start():\n    import walked_inner\n    [walked_inner.f() for _ in range(2)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    start = importlib.import_module("walked").start
    recorder = script.Recorder(tmp_path)
    recorder.on = True
    sys.setprofile(recorder)
    start()
    sys.setprofile(None)
    assert list(recorder.files) == ["walked.py", "walked_inner.py"]
    assert recorder.functions == {("walked.py", "start", 1), ("walked_inner.py", "f", 4)}
    assert recorder.calls == {(("walked.py", "start", 1), ("walked_inner.py", "f", 4))}
