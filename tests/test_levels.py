"""Which room may import which, enforced by reading the source, and what a fresh process loads.

A module may import its own package and everything to the right of it in::

    cli > workflows > report > runs > model > training > {encoders, heads, store, evaluation > tasks} > core

Imports inside functions count too, except in the command line; names that only a type checker sees do not.
"""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertvision

SOURCE = Path(bertvision.__file__).parent
PREFIX = "bertvision."

# The empty name is the package itself: the command line prints its version.
BASE = {"core", "tasks", "encoders", "heads", "store", "evaluation"}
MAY_IMPORT = {
    "core": set[str](),
    "tasks": {"core"},
    "encoders": {"core"},
    "heads": {"core"},
    "store": {"core"},
    "evaluation": {"core", "tasks"},
    "training": BASE,
    "model": {*BASE, "training"},
    "runs": {*BASE, "training", "model"},
    "report": {*BASE, "training", "model", "runs"},
    "workflows": {*BASE, "training", "model", "runs", "report"},
    "cli": {*BASE, "training", "model", "runs", "report", "workflows", ""},
    "__main__": {"cli"},
}

HEAVY = ("torch", "transformers", "scipy", "sklearn", "datasets", "pyarrow", "peft", "optuna", "jinja2")
MAY_IMPORT_TORCH = ("heads", "encoders", "store", "training", "model", "runs")
AT_IMPORT = {"torch": MAY_IMPORT_TORCH, "safetensors": MAY_IMPORT_TORCH, "scipy": (), "sklearn": ()}
ANYWHERE = {"transformers": ("encoders",), "datasets": ("tasks",)}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """(dotted name, whether it is inside a function) of everything that is imported at run time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from ((f"{node.module}.{alias.name}", inside) for alias in node.names)
        elif not is_type_checking(node):
            yield from imports(node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def forbidden_imports(name: str, source: str) -> list[str]:
    """The imports of a module (named without the leading ``bertvision.``) that break a rule."""
    room = name.partition(".")[0]
    errors = []
    for target, inside in imports(ast.parse(source)):
        root = target.partition(".")[0]
        if root == "bertvision":
            other = target.removeprefix("bertvision").removeprefix(".").partition(".")[0]
            if other not in (room, "__version__") and other not in MAY_IMPORT[room]:
                errors.append(f"{name} imports {target}")
        elif room not in ANYWHERE.get(root, (room,)) or (not inside and room not in AT_IMPORT.get(root, (room,))):
            errors.append(f"{name} imports {target}{'' if inside else ' when imported'}")
    return errors


def modules() -> list[str]:
    infos = pkgutil.walk_packages([str(SOURCE)], PREFIX)
    return sorted(info.name.removeprefix(PREFIX) for info in infos)


def source_of(name: str) -> str:
    path = SOURCE.joinpath(*name.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def test_package_has_the_rooms_of_the_table() -> None:
    assert {name.partition(".")[0] for name in modules()} == set(MAY_IMPORT)


@pytest.mark.parametrize("name", modules())
def test_module_imports_only_allowed_packages(name: str) -> None:
    assert forbidden_imports(name, source_of(name)) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core.errors", "from bertvision.tasks.task import Task"),
        ("core.records", "import torch"),
        ("core.config", "def f():\n    from bertvision.heads.base import HEADS"),
        ("tasks.squad", "from bertvision.evaluation.metrics.squad import f1"),
        ("tasks.squad", "def f():\n    import transformers"),
        ("tasks.squad", "import torch"),
        ("evaluation.metrics.squad", "import scipy.stats"),
        ("evaluation.metrics.squad", "from sklearn import metrics"),
        ("evaluation.scoring", "import torch"),
        ("evaluation.scoring", "from bertvision.training.inputs import data_hash"),
        ("evaluation.analyses.cost", "from bertvision.report.page import write_page"),
        ("encoders.loading", "from bertvision.store.store import Store"),
        ("encoders.loading", "import datasets"),
        ("store.batching", "from bertvision.training.fit import fit"),
        ("heads.probe", "class A:\n    def f(self):\n        from bertvision.encoders import loading"),
        ("heads.probe", "if True:\n    from transformers import AutoModel"),
        ("training.fit", "from bertvision.model import Model"),
        ("model", "from bertvision.workflows.conclude import conclude"),
        ("model", "from bertvision import run"),
        ("runs.reader", "from bertvision.report.page import write_page"),
        ("report.page", "import bertvision.workflows.run"),
        ("report.page", "import transformers"),
        ("report.page", "import torch"),
        ("workflows.run", "from bertvision.cli.main import main"),
    ],
)
def test_planted_forbidden_import_is_found(name: str, source: str) -> None:
    assert len(forbidden_imports(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core.records", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("evaluation.metrics.values", "def f():\n    from scipy import stats"),
        ("evaluation.scoring", "from bertvision.tasks.span_decoding import decode"),
        ("encoders.loading", "import torch, transformers"),
        ("tasks.text", "from bertvision.tasks.task import Task\nfrom bertvision.core.errors import BadInput"),
        ("training.fit", "from bertvision.training.inputs import data_hash\nfrom bertvision.store.store import Store"),
        ("report.page", "from bertvision.runs.reader import Run"),
        ("workflows.conclude", "from bertvision.model import Model"),
        ("cli.main", "from bertvision import __version__\nfrom bertvision.cli import predict"),
    ],
)
def test_allowed_imports_pass(name: str, source: str) -> None:
    assert forbidden_imports(name, source) == []


def run_python(code: str) -> str:
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return process.stdout.strip()


def test_scoring_and_help_load_nothing_heavy() -> None:
    imported = "import bertvision, bertvision.cli.main, bertvision.evaluation.score_files, bertvision.core.config"
    parsed = "bertvision.cli.main.build_parser(); dir(bertvision)"
    assert run_python(f"import sys; {imported}; {parsed}; print(sorted(set({HEAVY}) & set(sys.modules)))") == "[]"


def test_listing_the_tasks_loads_nothing_heavy() -> None:
    code = "import sys; from bertvision.tasks.task import TASKS; list(TASKS)"
    assert run_python(f"{code}; print(sorted(set({HEAVY}) & set(sys.modules)))") == "[]"


def test_every_module_can_be_imported_and_every_public_name_exists() -> None:
    names = [PREFIX + name for name in modules() if name != "__main__"]
    code = f"import importlib, bertvision; [importlib.import_module(n) for n in {names}]"
    assert run_python(f"{code}; print(all(getattr(bertvision, n) is not None for n in bertvision.__all__))") == "True"


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bertvision.nothing  # noqa: B018
