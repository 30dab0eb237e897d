"""Commands that tell: heads, tasks, encoders, store, doctor."""

from __future__ import annotations

import argparse
from typing import Any

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    heads = commands.add_parser("heads", help="every head with its parameters for a shape")
    heads.add_argument("--layers", type=int, default=7, metavar="N", help="states per token (layers + 1)")
    heads.add_argument("--width", type=int, default=384, metavar="N")
    heads.add_argument("--tokens", type=int, default=384, metavar="N")
    heads.add_argument("--labels", type=int, default=2, metavar="N", help="outputs")
    heads.add_argument("--kind", choices=("span", "classify", "regress"), default=None)
    heads.add_argument("--head", action="append", metavar="SPEC", help="only this one; may be repeated")
    heads.set_defaults(run=_heads)
    commands.add_parser("tasks", help="known tasks").set_defaults(run=_tasks)
    commands.add_parser("encoders", help="known encoder families").set_defaults(run=_encoders)
    commands.add_parser("doctor", help="versions, device, threads, embedded encoder").set_defaults(run=_doctor)
    store = commands.add_parser("store", help="what a store holds")
    store.add_argument("what", choices=("info",))
    store.add_argument("store", metavar="STORE")
    store.set_defaults(run=_store)


def _heads(options: argparse.Namespace) -> Result:
    from bertvision.cli.options import expand_heads
    from bertvision.heads.count import count_head
    from bertvision.records import Kind, Shape

    specs = expand_heads(options.head or ["all"])
    kind: Kind = options.kind or ("span" if options.labels == 2 else "regress" if options.labels == 1 else "classify")
    shape = Shape(options.layers, options.width, options.tokens, options.labels, kind)
    rows = [count_head(spec, shape) for spec in specs]
    lines = [
        f"{r['spec']:45} {r['parameters']:>12,} {r['percent']:>9.4f} %  {r['kind']:10} {r['source']}" for r in rows
    ]
    return {"heads": rows}, "\n".join(lines)


def _tasks(options: argparse.Namespace) -> Result:
    from bertvision.tasks.base import TASKS

    rows = [{"name": name, "about": _first_line(TASKS[name])} for name in TASKS]
    return {"tasks": rows}, "\n".join(f"{row['name']:10} {row['about']}" for row in rows)


def _first_line(loader: Any) -> str:
    function = getattr(loader, "func", loader)
    return str(function.__doc__ or "").strip().split("\n")[0]


def _encoders(options: argparse.Namespace) -> Result:
    from bertvision.encoder.families import FAMILIES

    rows = [{"model_type": row.model_type, "layers": row.layers, "pooler": row.pooler} for row in FAMILIES.values()]
    text = "\n".join(f"{row['model_type']:12} layers in {row['layers']}" for row in rows)
    return {"embedded": ["minilm"], "families": rows}, f"minilm       embedded, no network needed\n{text}"


def _doctor(options: argparse.Namespace) -> Result:
    import importlib.metadata
    import importlib.util
    import platform

    import torch

    from bertvision.encoder.load import MINILM_PACKAGE
    from bertvision.runtime import choose_device

    names = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "scikit-learn")
    facts: dict[str, Any] = {"python": platform.python_version()}
    facts.update({name: importlib.metadata.version(name) for name in names})
    facts.update(device=str(choose_device()), threads=torch.get_num_threads())
    facts["minilm"] = "installed" if importlib.util.find_spec(MINILM_PACKAGE) else "not installed"
    return facts, "\n".join(f"{key:14} {value}" for key, value in facts.items())


def _store(options: argparse.Namespace) -> Result:
    from bertvision.store.store import Store

    manifest = Store(options.store).manifest
    splits = {name: {k: v for k, v in s.items() if k != "shards"} for name, s in manifest["splits"].items()}
    facts = {key: manifest[key] for key in ("id", "shape", "layers", "dtype", "own")} | {"splits": splits}
    lines = [
        f"{n:6} {s['windows']:>9,} windows {s['tokens']:>12,} tokens {s['bytes'] / 1e6:>12,.1f} MB"
        for n, s in splits.items()
    ]
    return facts, "\n".join([f"store {manifest['id']}, {manifest['dtype']}, layers {manifest['layers']}", *lines])
