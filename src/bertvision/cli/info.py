"""Commands that list what is available: heads, tasks, encoders, doctor."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from bertvision.cli.options import Result, add_command, add_heads, expand_heads, positive_int
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
"""Extras of the package, and the main library of each."""


def add_commands(subparsers: Any) -> None:
    heads = add_command(
        subparsers,
        "heads",
        "list all heads with their parameter counts",
        "--layers 13 --width 768",
        "--heads compress:size=64 ladder --shapes",
    )
    number: Any = {"type": positive_int, "metavar": "N"}
    heads.add_argument(
        "--layers", default=7, **number, help="hidden states per token, embeddings included (default: 7, minilm)"
    )
    heads.add_argument("--width", default=384, **number, help="hidden size of the encoder (default: 384)")
    heads.add_argument("--tokens", default=384, **number, help="tokens per window (default: 384)")
    heads.add_argument(
        "--labels", default=2, **number, help="number of outputs: labels, 2 for spans, 1 for regression (default: 2)"
    )
    kinds = ("span", "classify", "multilabel", "regress")
    heads.add_argument("--kind", choices=kinds, help="kind of task (default: derived from --labels)")
    heads.add_argument("--shapes", action="store_true", help="also show the shapes of each head's intermediate outputs")
    add_heads(heads, "heads to list (default: all heads in all variants)")
    add_command(subparsers, "tasks", "list all tasks")
    add_command(subparsers, "encoders", "list the supported encoder families")
    add_command(subparsers, "doctor", "show versions, installed extras, device and threads")


def heads_command(options: argparse.Namespace) -> Result:
    from bertvision.core.records import Kind, Shape
    from bertvision.heads.info import fits, head_info, head_shapes

    kind: Kind = options.kind or ("span" if options.labels == 2 else "regress" if options.labels == 1 else "classify")
    shape = Shape(options.layers, options.width, options.tokens, options.labels, kind)
    # Heads that do not support spans are listed for labels, unless --kind span was given.
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
