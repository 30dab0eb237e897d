"""The reproduce command: the tables and figures of the papers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from os.path import abspath
from pathlib import Path
from typing import Any

from bertvision.cli.options import Result, add_command, add_set
from bertvision.core.errors import BadInput


def add_commands(subparsers: Any) -> None:
    command = add_command(
        subparsers,
        "reproduce",
        "reproduce a table or figure of the papers, next to the published numbers",
        "list",
        "all --plan --scale paper",
    )
    command.add_argument("name", metavar="list|NAME|all", help="name of a table or figure; list shows all names")
    command.add_argument(
        "--scale",
        choices=("paper", "laptop"),
        default="laptop",
        help="encoders and data of the paper, or small ones (default: laptop)",
    )
    command.add_argument("--data", metavar="FOLDER", help="folder with squad/, glue/ and crowdflower/")
    command.add_argument(
        "--out", default="runs/reproduce", metavar="RUNS", help="folder for all runs (default: runs/reproduce)"
    )
    command.add_argument("--encoder", metavar="E", help="use this encoder instead of those of the scale")
    command.add_argument(
        "--plan", action="store_true", help="only estimate the data, hours and disk space that are needed"
    )
    add_set(command)


def reproduce_command(options: argparse.Namespace) -> Result:
    from bertvision.workflows.reproduce.specs import find_items, shared_at

    shared = shared_at(options.scale)
    if options.name == "list":
        return _list_items(shared)
    items = find_items(options.name)
    if options.data is not None and not Path(options.data).is_dir():
        raise BadInput(f"--data {options.data} does not exist; expected a folder with squad/, glue/ and crowdflower/")
    if options.plan:
        if options.encoder or options.set:
            raise BadInput("--plan estimates the recipes unchanged; leave --encoder and --set out")
        from bertvision.workflows.reproduce.estimate import plan, plan_text

        document = plan(items, shared)
        return document, plan_text(document)
    from bertvision.workflows.reproduce.documents import claim_verdicts, current_documents, reproduce
    from bertvision.workflows.reproduce.experiments import Experiments
    from bertvision.workflows.reproduce.text import item_text

    # Absolute, because recipes of runs contain these paths: the command resumes from any working directory.
    data = None if options.data is None else Path(abspath(options.data))
    out = Path(abspath(options.out)) / options.scale
    experiments = Experiments(shared, data, out, options.encoder, tuple(options.set))
    documents = reproduce(items, experiments)
    claims = claim_verdicts(current_documents(experiments))
    tested = {test["claim"] for document in documents for test in document["tests"]}
    text = "\n\n".join(item_text(document, claims) for document in documents)
    return {
        "items": documents,
        "claims": [claim for claim in claims if claim["id"] in tested],
        "out": str(out),
    }, text


def _list_items(shared: Any) -> Result:
    from bertvision.workflows.reproduce.estimate import data_of
    from bertvision.workflows.reproduce.published import claims_of
    from bertvision.workflows.reproduce.specs import all_items

    rows: list[Mapping[str, Any]] = [
        {
            "name": item.name,
            "title": item.title,
            "source": item.source,
            "kind": item.kind,
            "data": data_of(item, shared),
            "claims": [claim.id for claim in claims_of(item.name)],
        }
        for item in all_items().values()
    ]
    lines = [f"{'name':<24}{'kind':<13}title (data)"]
    for row in rows:
        lines.append(f"{row['name']:<24}{row['kind']:<13}{row['title']} ({', '.join(row['data']) or 'no data needed'})")
    return {"items": rows}, "\n".join(lines)
