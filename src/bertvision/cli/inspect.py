"""Commands that tell: heads, tasks, encoders, store, doctor."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bertvision.cli.options import add_heads, at_least_one, expand_heads
from bertvision.errors import BadInput

if TYPE_CHECKING:
    from bertvision.records import Shape

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    heads = commands.add_parser("heads", help="every head with its parameters for a shape")
    sizes = {"type": at_least_one, "metavar": "N"}
    heads.add_argument("--layers", default=7, **sizes, help="states per token: layers + 1; default 7, as minilm")
    heads.add_argument("--width", default=384, **sizes, help="numbers per state; default 384")
    heads.add_argument("--tokens", default=384, **sizes, help="tokens of a window; default 384")
    heads.add_argument("--labels", default=2, **sizes, help="outputs: labels, 2 for spans, 1 for a value; default 2")
    kinds = ("span", "classify", "multilabel", "regress")
    heads.add_argument("--kind", choices=kinds, help="default: what --labels suggests")
    add_heads(heads, "only these; default: every head in every variant")
    heads.set_defaults(run=_heads)
    commands.add_parser("tasks", help="known tasks").set_defaults(run=_tasks)
    commands.add_parser("encoders", help="known encoder families").set_defaults(run=_encoders)
    commands.add_parser("doctor", help="versions, device, threads, embedded encoder").set_defaults(run=_doctor)
    store = commands.add_parser("store", help="what a store holds")
    store.add_argument("what", choices=("info",), help="windows, tokens and bytes of every split")
    store.add_argument("store", metavar="STORE", help="a folder that extract made, e.g. RUN/store")
    store.set_defaults(run=_store)


def _heads(options: argparse.Namespace) -> Result:
    from bertvision.heads.count import count_head
    from bertvision.records import Kind, Shape

    asked = options.heads or ["all"]
    kind: Kind = options.kind or ("span" if options.labels == 2 else "regress" if options.labels == 1 else "classify")
    shape = Shape(options.layers, options.width, options.tokens, options.labels, kind)
    rows = [count_head(spec, shape) for spec in expand_heads(asked) if asked != ["all"] or _fits(spec, shape)]
    lines = [
        f"{r['spec']:45} {r['parameters']:>12,} {r['percent']:>9.4f} %  {r['kind']:10} {r['source']}" for r in rows
    ]
    head = f"{'spec':45} {'parameters':>12} {'of a BERT':>11}  {'kind':10} source"
    return {"heads": rows}, "\n".join([head, *lines])


def _fits(spec: str, shape: Shape) -> bool:
    """Whether a variant can be built at all: the last four of three states cannot."""
    from bertvision.heads.count import count_head

    try:
        return bool(count_head(spec, shape))
    except BadInput:
        return False


def _tasks(options: argparse.Namespace) -> Result:
    from bertvision.tasks.base import TASKS

    rows = [{"name": name, "about": _first_line(TASKS[name])} for name in TASKS]
    width = max(len(row["name"]) for row in rows)
    return {"tasks": rows}, "\n".join(f"{row['name']:{width}}  {row['about']}" for row in rows)


def _first_line(loader: Any) -> str:
    """What a loader says of itself; a partial one may say more than the function it fills in."""
    function = getattr(loader, "func", loader)
    return str(vars(loader).get("__doc__") or function.__doc__ or "").strip().split("\n")[0]


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

    names = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy")
    facts: dict[str, Any] = {"python": platform.python_version()}
    for name in names:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = "not installed"
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
