"""The import levels, enforced by reading the source, and what a fresh process loads.

A module may import what lies below it and what its own package holds. Imports inside functions count
too, except that the command line may import anything; names that only a type checker sees do not.
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

LEVEL_0 = ("errors", "registry", "records", "board_text", "hashing", "runtime", "run_log", "convert", "config")
LEVEL_1 = ("tasks", "scoring", "encoder", "store", "heads")
ABOVE = (
    "steps",
    "analyse",
    "report",
    "members",
    "model",
    "asking",
    "findings",
    "conclude",
    "recheck",
    "mixing",
    "timing",
    "costs",
    "curve",
    "from_store",
    "planning",
    "pipeline",
    "depth",
    "ablation",
    "refits",
    "study",
    "completing",
    "domains",
    "spaces",
    "trying",
    "finals",
    "search",
    "search_tuning",
    "reproduce",
    "demo",
    "scale",
    "cli",
    "__main__",
)
"""Each may import all before it."""

SUPPORT = (
    "inputs",
    "evidence",
    "judge",
    "no_answer",
    "calibrate",
    "trust",
    "noted",
    "fitted",
    "runner",
    "fit_saved",
    "block",
    "team",
    "tuning",
    "tune_setup",
    "tune_loop",
    "prefix",
    "manifest",
    "live",
    "shard_maker",
    "shard_work",
    "forecast",
)
"""Modules of ``steps`` that are no steps: any step may import them."""

HEAVY = ("torch", "transformers", "scipy", "sklearn", "datasets", "pyarrow", "peft", "optuna")
MAY_IMPORT_TORCH = ("heads", "encoder", "store", "steps", "members", "model", "asking")
AT_IMPORT = {"torch": MAY_IMPORT_TORCH, "safetensors": MAY_IMPORT_TORCH, "scipy": (), "sklearn": ()}
ANYWHERE = {"transformers": ("encoder",), "datasets": ("tasks",)}


def allowed(part: str) -> set[str]:
    """The parts (modules and packages right below ``bertvision``) that a part may import."""
    if part in LEVEL_0:
        return set(LEVEL_0)
    if part in LEVEL_1:
        return {*LEVEL_0, part}
    assert part in ABOVE, f"{part} has no level: give it one here and in the architecture notes"
    return {*LEVEL_0, *LEVEL_1, *ABOVE[: ABOVE.index(part) + 1]}


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


def crimes(name: str, source: str) -> list[str]:
    """What a module, named without the leading ``bertvision.``, imports against the rules."""
    part = name.partition(".")[0]
    found = []
    for target, inside in imports(ast.parse(source)):
        root = target.partition(".")[0]
        if root == "bertvision":
            found += [f"{name} imports {target}"] if _is_upward(part, target) else []
        elif part not in ANYWHERE.get(root, (part,)) or (not inside and part not in AT_IMPORT.get(root, (part,))):
            found.append(f"{name} imports {target}{'' if inside else ' when imported'}")
    return found


def _is_upward(part: str, target: str) -> bool:
    if part in ("cli", "__main__") or target == "bertvision.__version__":
        return False
    other, _, within = target.removeprefix("bertvision").removeprefix(".").partition(".")
    if part == other == "steps":
        return within.partition(".")[0] not in SUPPORT
    return other not in allowed(part)


def modules() -> list[str]:
    found = pkgutil.walk_packages([str(SOURCE)], PREFIX)
    return sorted(module.name.removeprefix(PREFIX) for module in found)


def source_of(name: str) -> str:
    path = SOURCE.joinpath(*name.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_what_lies_below_it(name: str) -> None:
    assert crimes(name, source_of(name)) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("errors", "from bertvision.tasks.base import Task"),
        ("records", "import torch"),
        ("config", "def f():\n    from bertvision.heads.base import HEADS"),
        ("tasks.squad", "from bertvision.scoring.squad import f1"),
        ("tasks.squad", "def f():\n    import transformers"),
        ("tasks.squad", "import torch"),
        ("scoring.squad", "import scipy.stats"),
        ("scoring.squad", "from sklearn import metrics"),
        ("encoder.load", "from bertvision.store.store import Store"),
        ("encoder.load", "import datasets"),
        ("store.plan", "from bertvision.steps.fit import fit"),
        ("heads.probe", "class A:\n    def f(self):\n        from bertvision.encoder import load"),
        ("heads.probe", "if True:\n    from transformers import AutoModel"),
        ("steps.fit", "from bertvision.steps.predict import predict"),
        ("steps.fit", "from bertvision.steps import predict"),
        ("steps.judge", "from bertvision.steps.evaluate import evaluate"),
        ("steps.fit", "from bertvision.analyse.advice import advise"),
        ("steps.fit", "from bertvision.model import Model"),
        ("analyse.advice", "from bertvision.report.html import write_report"),
        ("report.html", "from bertvision.model import Model"),
        ("model", "from bertvision.conclude import conclude"),
        ("conclude", "import bertvision.pipeline"),
        ("pipeline", "from bertvision.cli.main import main"),
        ("model", "from bertvision import run"),
        ("analyse.x", "import torch"),
        ("report.x", "import transformers"),
    ],
)
def test_a_planted_crime_is_seen(name: str, source: str) -> None:
    assert len(crimes(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("records", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("scoring.regression", "def f():\n    from scipy import stats"),
        ("encoder.load", "import torch, transformers"),
        ("tasks.text", "from bertvision.tasks.base import Task\nfrom bertvision.errors import BadInput"),
        ("steps.fit", "from bertvision.steps.judge import judge\nfrom bertvision.store.store import Store"),
        ("steps.judge", "from bertvision.steps.inputs import data_hash"),
        ("analyse.advice", "from bertvision.steps.judge import judge"),
        ("report.html", "from bertvision.analyse.advice import advise"),
        ("conclude", "from bertvision.model import Model"),
        ("cli.main", "from bertvision import __version__\nfrom bertvision.cli import use"),
    ],
)
def test_what_is_allowed_is_not_a_crime(name: str, source: str) -> None:
    assert crimes(name, source) == []


def fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_scoring_and_help_wait_for_nothing_heavy() -> None:
    imported = "import bertvision, bertvision.cli.main, bertvision.scoring.squad, bertvision.config"
    parsed = "bertvision.cli.main.build_parser(); dir(bertvision)"
    assert fresh(f"import sys; {imported}; {parsed}; print(sorted(set({HEAVY}) & set(sys.modules)))") == "[]"


def test_loading_a_task_waits_for_nothing_heavy() -> None:
    code = "import sys; from bertvision.tasks.base import TASKS; list(TASKS)"
    assert fresh(f"{code}; print(sorted(set({HEAVY}) & set(sys.modules)))") == "[]"


def test_every_module_imports_and_every_public_name_is_there() -> None:
    names = [PREFIX + name for name in modules() if name != "__main__"]
    code = f"import importlib, bertvision; [importlib.import_module(n) for n in {names}]"
    assert fresh(f"{code}; print(all(getattr(bertvision, n) is not None for n in bertvision.__all__))") == "True"


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bertvision.nothing  # noqa: B018
