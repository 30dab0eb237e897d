"""Commands that list what there is: heads, tasks, encoders, doctor."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from bertvision.cli.options import Result, add_heads, expand_heads, positive_int
from bertvision.core.errors import install_line

CORE = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy")
EXTRAS = (
    ("search", "optuna"),
    ("peft", "peft"),
    ("tables", "pyarrow"),
    ("hub", "datasets"),
    ("remote", "s3fs"),
    ("ray", "ray"),
)
"""Extras of the package and the library that each one installs."""


def add_commands(commands: Any) -> None:
    heads = commands.add_parser("heads", help="every head with its number of parameters for a shape")
    number = {"type": positive_int, "metavar": "N"}
    heads.add_argument("--layers", default=7, **number, help="states per token: layers + 1; default 7, as minilm")
    heads.add_argument("--width", default=384, **number, help="width of a state; default 384")
    heads.add_argument("--tokens", default=384, **number, help="tokens per window; default 384")
    heads.add_argument("--labels", default=2, **number, help="outputs: labels, 2 for spans, 1 for a value; default 2")
    kinds = ("span", "classify", "multilabel", "regress")
    heads.add_argument("--kind", choices=kinds, help="default: derived from --labels")
    heads.add_argument("--shapes", action="store_true", help="show the shapes of each head's intermediate outputs too")
    add_heads(heads, "heads to list; default: every head in every variant")
    commands.add_parser("tasks", help="known tasks")
    commands.add_parser("encoders", help="known encoder families")
    commands.add_parser("doctor", help="versions, extras, device, threads, embedded encoder")


def heads_command(options: argparse.Namespace) -> Result:
    from bertvision.core.records import Kind, Shape
    from bertvision.heads.summary import fits, head_info, head_shapes

    kind: Kind = options.kind or ("span" if options.labels == 2 else "regress" if options.labels == 1 else "classify")
    shape = Shape(options.layers, options.width, options.tokens, options.labels, kind)
    # Heads for labels only are listed too, unless spans were asked for.
    labels = shape if options.kind else replace(shape, kind="classify")
    rows: list[dict[str, Any]] = []
    for spec in expand_heads(options.heads or ["all"], labels):
        fitting = shape if fits(spec, shape) else labels
        rows.append(dict(head_info(spec, fitting)))
        if options.shapes:
            rows[-1]["shapes"] = head_shapes(spec, fitting)
    width = max(len(row["spec"]) for row in rows)
    lines = [f"{'spec':{width}} {'parameters':>12} {'of a BERT':>11}  {'kind':10} source"]
    for row in rows:
        counts = f"{row['parameters']:>12,} {row['percent']:>9.4f} %"
        lines.append(f"{row['spec']:{width}} {counts}  {row['kind']:10} {row['source']}")
        if options.shapes:
            shapes = [f"({','.join(map(str, shape))})" for shape in row["shapes"]]
            lines.append(f"    {' -> '.join(shapes)}")
    return {"heads": rows}, "\n".join(lines)


def tasks_command(options: argparse.Namespace) -> Result:
    from bertvision.tasks.task import TASKS

    rows = []
    for name in TASKS:
        loader = TASKS[name]
        function = getattr(loader, "func", loader)  # a partial may have a docstring of its own
        about = str(vars(loader).get("__doc__") or function.__doc__ or "")
        rows.append({"name": name, "about": about.strip().split("\n")[0]})
    width = max(len(row["name"]) for row in rows)
    return {"tasks": rows}, "\n".join(f"{row['name']:{width}}  {row['about']}" for row in rows)


def encoders_command(options: argparse.Namespace) -> Result:
    from bertvision.encoders.architectures import FAMILIES

    rows = [{"model_type": row.model_type, "layers": row.layers, "pooler": row.pooler} for row in FAMILIES.values()]
    text = "\n".join(f"{row['model_type']:12} layers in {row['layers']}" for row in rows)
    return {"embedded": ["minilm"], "families": rows}, f"minilm       embedded, no network needed\n{text}"


def doctor_command(options: argparse.Namespace) -> Result:
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
    rows = {**facts, **{name: extras[name] or f"not installed; {install_line(extra)}" for extra, name in EXTRAS}}
    return {**facts, "extras": extras}, "\n".join(f"{name:14} {value}" for name, value in rows.items())
