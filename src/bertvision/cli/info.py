"""Commands that tell: heads, tasks, encoders, doctor."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bertvision.cli.options import add_heads, at_least_one, expand_heads
from bertvision.core.errors import install_line

Result = tuple[Any, str]

CORE = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy")
EXTRAS = (
    ("search", "optuna"),
    ("peft", "peft"),
    ("tables", "pyarrow"),
    ("hub", "datasets"),
    ("remote", "s3fs"),
    ("ray", "ray"),
)
"""Extras of the package, and what each brings."""


def add_commands(commands: Any) -> None:
    heads = commands.add_parser("heads", help="every head with its parameters for a shape")
    sizes = {"type": at_least_one, "metavar": "N"}
    heads.add_argument("--layers", default=7, **sizes, help="states per token: layers + 1; default 7, as minilm")
    heads.add_argument("--width", default=384, **sizes, help="numbers per state; default 384")
    heads.add_argument("--tokens", default=384, **sizes, help="tokens of a window; default 384")
    heads.add_argument("--labels", default=2, **sizes, help="outputs: labels, 2 for spans, 1 for a value; default 2")
    kinds = ("span", "classify", "multilabel", "regress")
    heads.add_argument("--kind", choices=kinds, help="default: what --labels suggests")
    heads.add_argument("--shapes", action="store_true", help="also the shapes of what passes through each head")
    add_heads(heads, "only these; default: every head in every variant")
    heads.set_defaults(run=_heads)
    commands.add_parser("tasks", help="known tasks").set_defaults(run=_tasks)
    commands.add_parser("encoders", help="known encoder families").set_defaults(run=_encoders)
    commands.add_parser("doctor", help="versions, extras, device, threads, embedded encoder").set_defaults(run=_doctor)


def _heads(options: argparse.Namespace) -> Result:
    from bertvision.core.records import Kind, Shape
    from bertvision.heads.summary import count_head, fits, head_shapes

    kind: Kind = options.kind or ("span" if options.labels == 2 else "regress" if options.labels == 1 else "classify")
    shape = Shape(options.layers, options.width, options.tokens, options.labels, kind)
    # Heads for labels alone are told of too, unless spans were asked for.
    labels = shape if options.kind else replace(shape, kind="classify")
    specs = expand_heads(options.heads or ["all"], labels)
    shapes = {spec: shape if fits(spec, shape) else labels for spec in specs}
    rows = [count_head(spec, shapes[spec]) for spec in specs]
    if options.shapes:
        rows = [{**row, "shapes": head_shapes(spec, shapes[spec])} for spec, row in zip(specs, rows, strict=True)]
    wide = max(len(str(row["spec"])) for row in rows)
    head = f"{'spec':{wide}} {'parameters':>12} {'of a BERT':>11}  {'kind':10} source"
    return {"heads": rows}, "\n".join([head, *(_head_line(row, wide) for row in rows)])


def _head_line(row: Mapping[str, Any], wide: int) -> str:
    line = f"{row['spec']:{wide}} {row['parameters']:>12,} {row['percent']:>9.4f} %  {row['kind']:10} {row['source']}"
    if "shapes" not in row:
        return line
    shapes = (f"({','.join(map(str, shape))})" for shape in row["shapes"])
    return f"{line}\n    {' -> '.join(shapes)}"


def _tasks(options: argparse.Namespace) -> Result:
    from bertvision.tasks.task import TASKS

    rows = [{"name": name, "about": _first_line(TASKS[name])} for name in TASKS]
    width = max(len(row["name"]) for row in rows)
    return {"tasks": rows}, "\n".join(f"{row['name']:{width}}  {row['about']}" for row in rows)


def _first_line(loader: Any) -> str:
    """What a loader says of itself; a partial one may say more than the function it fills in."""
    function = getattr(loader, "func", loader)
    return str(vars(loader).get("__doc__") or function.__doc__ or "").strip().split("\n")[0]


def _encoders(options: argparse.Namespace) -> Result:
    from bertvision.encoders.architectures import FAMILIES

    rows = [{"model_type": row.model_type, "layers": row.layers, "pooler": row.pooler} for row in FAMILIES.values()]
    text = "\n".join(f"{row['model_type']:12} layers in {row['layers']}" for row in rows)
    return {"embedded": ["minilm"], "families": rows}, f"minilm       embedded, no network needed\n{text}"


def _doctor(options: argparse.Namespace) -> Result:
    import contextlib
    import importlib.metadata
    import importlib.util
    import platform

    import torch

    from bertvision.core.runtime import choose_device
    from bertvision.encoders.loading import MINILM_PACKAGE

    def version(name: str) -> str | None:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
        return None

    facts: dict[str, Any] = {"python": platform.python_version()}
    facts |= {name: version(name) or "not installed" for name in CORE}
    facts.update(device=str(choose_device()), threads=torch.get_num_threads())
    facts["minilm"] = "installed" if importlib.util.find_spec(MINILM_PACKAGE) else "not installed"
    extras = {name: version(name) for _, name in EXTRAS}
    told = {name: extras[name] or f"not installed; {install_line(extra)}" for extra, name in EXTRAS}
    return {**facts, "extras": extras}, "\n".join(f"{key:14} {value}" for key, value in {**facts, **told}.items())
