"""Commands that make things: demo, run, tune, extract, fit, evaluate, ensemble."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertvision.cli.options import (
    add_data,
    add_encoder,
    add_heads,
    add_set,
    add_tune,
    at_least_one,
    expand_heads,
    numbers,
    recipe_from,
    share,
    whole_numbers,
)
from bertvision.core.errors import BadInput
from bertvision.core.progress import log_line

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    demo = commands.add_parser("demo", help="everything once, on generated questions, in a few minutes")
    demo.add_argument("--out", default="runs/demo", metavar="RUN", help="folder for everything this makes")
    demo.set_defaults(run=_demo)

    run = commands.add_parser("run", help="from text to a scored, saved model")
    run.add_argument("--out", required=True, metavar="RUN", help="folder for everything this makes")
    add_heads(run, "quick (default), all, or specs such as compress:size=64; see bertvision heads")
    run.add_argument("--seeds", type=whole_numbers, metavar="0,1", help="one fit of every head for each")
    _add_store_choices(run)
    run.add_argument("--live", action="store_true", default=None, help="store no states; run the encoder every epoch")
    for add in (add_data, add_encoder, add_tune, add_set):
        add(run)
    run.set_defaults(run=_run)

    tune = commands.add_parser("tune", help="tune an encoder and save it in RUN/encoder")
    tune.add_argument("--out", required=True, metavar="RUN", help="the encoder goes into RUN/encoder")
    tune.add_argument("--head", dest="tune_head", metavar="SPEC", help="the same as --tune-head")
    tune.add_argument(
        "--from-store",
        nargs="?",
        const="",
        metavar="STORE",
        help="with --method freeze:k=K: read state K from here (written once; default RUN/store), run what is above",
    )
    tune.add_argument(
        "--curve",
        type=numbers,
        metavar="0,0.1,1,2",
        help="keep and score a checkpoint at each of these epochs of one run, in RUN/curve/EPOCHS",
    )
    for add in (add_data, add_encoder, add_tune, add_set):
        add(tune)
    tune.set_defaults(run=_tune)

    _add_extract(commands)
    _add_fit(commands)
    _add_costs(commands)
    evaluate = commands.add_parser("evaluate", help="leaderboard of a run")
    evaluate.add_argument("folder", metavar="RUN", help="a folder that run or fit made")
    instead = evaluate.add_mutually_exclusive_group()
    instead.add_argument("--compare", nargs=2, metavar=("A", "B"), help="only two rows: NAME (all seeds) or NAME@SEED")
    instead.add_argument("--decode", choices=("legacy",), help="the paper's decoding of spans instead, beside ours")
    evaluate.set_defaults(run=_evaluate)
    _add_ensemble(commands)


def _add_store_choices(command: Any) -> None:
    dtypes, tokens = ("f32", "f16", "int8"), ("all", "context", "cls", "mean")
    command.add_argument("--dtype", choices=dtypes, help="how states are stored; default f16, int8 is half of it")
    command.add_argument("--tokens", choices=tokens, help="context: with CLS, for spans; cls, mean: one vector a text")
    command.add_argument("--layers", metavar="all|last4|first6|every2|0+3+6", help="states to store; 0: embeddings")
    command.add_argument("--max-gb", type=float, metavar="X", help="refuse to start a store larger than this")


def _add_ensemble(commands: Any) -> None:
    mixed = commands.add_parser("ensemble", help="several rows of a run as one predictor")
    mixed.add_argument("folder", metavar="RUN", help="a folder that run or fit made")
    mixed.add_argument("--members", nargs="+", default=[], metavar="ROW", help="encoder, NAME or NAME@SEED")
    mixed.add_argument("--how", choices=("max", "mean", "fitted"), default="fitted", help="default: weights of inner")
    mixed.add_argument("--save", metavar="MODEL", help="a new folder to save it in as a model")
    mixed.set_defaults(run=_ensemble)


def _add_extract(commands: Any) -> None:
    extract = commands.add_parser("extract", help="all layers' states of all splits into a store")
    extract.add_argument("--to", required=True, metavar="STORE", help="a new folder or URL, or one to go on in")
    _add_store_choices(extract)
    extract.add_argument("--shard-mb", type=int, metavar="N", help="most megabytes of a file; default 256")
    parts = extract.add_mutually_exclusive_group()
    parts.add_argument("--shard", type=share, metavar="I/N", help="make every N-th shard from the I-th on, and no more")
    parts.add_argument("--finalize", action="store_true", help="check that all shards are there and finish the store")
    parts.add_argument("--engine", choices=("ray",), help="let a Ray cluster make the shards (docs/clusters.md)")
    extract.add_argument("--address", metavar="A", help="with --engine ray: auto or HOST:PORT; default: one of its own")
    extract.add_argument("--actors", type=at_least_one, metavar="N", help="with --engine ray: at most so many at work")
    for add in (add_data, add_encoder, add_set):
        add(extract)
    extract.set_defaults(run=_extract)


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser("fit", help="heads on a store, all from one read")
    fit.add_argument("store", metavar="STORE", help="a folder that extract made, e.g. RUN/store")
    add_heads(fit, "quick (default), all, or specs such as compress:size=64; see bertvision heads")
    fit.add_argument("--seeds", type=whole_numbers, default=(0,), metavar="0,1,2", help="one fit each; default 0")
    fit.add_argument("--out", metavar="RUN", help="folder for what this makes; default: RUN where STORE is RUN/store")
    add_set(fit)
    fit.set_defaults(run=_fit)


def _add_costs(commands: Any) -> None:
    costs = commands.add_parser("costs", help="what tuned encoders cost and give, in one table")
    costs.add_argument("--encoders", nargs="+", required=True, metavar="RUN/encoder", help="folders that tune made")
    add_data(costs)
    add_set(costs)
    costs.set_defaults(run=_costs)


def _demo(options: argparse.Namespace) -> Result:
    from bertvision.workflows.demo import demo

    return demo(Path(options.out))


def _run(options: argparse.Namespace) -> Result:
    from bertvision.workflows.run import run

    recipe = recipe_from(options)
    result = run(recipe, options.out)
    log_line(f"report: {result.folder / 'report.html'}")
    return {**result.document, "run": str(result.folder)}, str(result)


def _tune(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.distributed import leads, team_size
    from bertvision.training.tune import SAVED, check_tuning, tune
    from bertvision.training.tune_from_store import tune_from_store

    _check_ways(options, team_size())
    recipe = recipe_from(options)
    task = load_recipe_task(recipe)
    folder, encoder = Path(options.out), load_encoder(recipe.encoder)
    check_tuning(encoder, task, recipe.tune, folder / "encoder")
    if options.curve:
        return _curve(encoder, task, recipe.tune, options.curve, folder)
    if options.from_store is not None:
        place = options.from_store or folder / "store"
        tuned = tune_from_store(encoder, task, place, recipe.tune, folder / SAVED)
    else:
        tuned = tune(encoder, task, recipe.tune, folder / SAVED)
    target = folder / "encoder"
    if leads():
        tuned.save_pretrained(target)
    facts = {"encoder": str(target), **tuned.record}
    return facts, f"{target}: {tuned.record['tune']['steps']} steps, {tuned.record['cost']['seconds']:.0f} s"


def _check_ways(options: argparse.Namespace, processes: int) -> None:
    """What cannot be asked for together."""
    if options.curve and options.from_store is not None:
        raise BadInput("--curve and --from-store do not go together; leave one of them out")
    if processes > 1 and (options.curve or options.from_store is not None):
        raise BadInput(
            f"--curve and --from-store are for one process, these are {processes}; start it without torchrun"
        )


def _curve(encoder: Any, task: Any, config: Any, at: list[float], folder: Path) -> Result:
    from bertvision.core.records import aligned
    from bertvision.workflows.tuning_curve import tune_curve

    document = tune_curve(encoder, task, config, at, folder)
    metric = document["metric"]
    cells = [["epochs", "steps", "seconds", f"dev {metric}", f"inner {metric}"]]
    for row in document["rows"]:
        told = [f"{row['epochs']:g}", str(row["steps"]), f"{row['seconds']:.0f}"]
        cells.append([*told, f"{row['scores'][metric]:.2f}", f"{row['inner'][metric]:.2f}"])
    return document, "\n".join([*aligned(cells), f"picture: {folder / 'curve.svg'}"])


def _costs(options: argparse.Namespace) -> Result:
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.workflows.tuning_costs import cost_lines, cost_table

    document = cost_table([Path(folder) for folder in options.encoders], load_recipe_task(recipe_from(options)))
    return document, cost_lines(document)


def _extract(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.extract import extract, extract_share, finalize
    from bertvision.training.extract_ray import ray_extract

    if not options.engine and (options.address or options.actors):
        raise BadInput("--address and --actors are for a Ray cluster; add --engine ray, or leave them out")
    recipe = recipe_from(options)
    task = load_recipe_task(recipe)
    encoder = load_encoder(recipe.encoder)
    if options.shard:
        made = extract_share(encoder, task, options.to, options.shard, recipe.extract)
        of = "{}/{}".format(*options.shard)
        text = f"{options.to}: share {of} is there, {made} shards; when all are: extract ... --finalize"
        return {"store": options.to, "share": of, "shards": made}, text
    if options.engine:
        store = ray_extract(encoder, task, options.to, recipe.extract, options.address, options.actors)
    else:
        store = (finalize if options.finalize else extract)(encoder, task, options.to, recipe.extract)
    splits = {
        name: {k: v for k, v in split.items() if k != "shards"} for name, split in store.manifest["splits"].items()
    }
    size = sum(split["bytes"] for split in splits.values())
    text = f"{options.to}: {sum(s['windows'] for s in splits.values()):,} windows, {size / 1e6:,.1f} MB"
    return {"store": options.to, "id": store.id, "shape": asdict(store.shape), "splits": splits}, text


def _fit(options: argparse.Namespace) -> Result:
    from bertvision.core.config import Recipe, override
    from bertvision.core.records import CONTROL
    from bertvision.heads.summary import fits
    from bertvision.runs.prepare import fit_into
    from bertvision.store.store import Store
    from bertvision.workflows.conclude import conclude

    store = Store(options.store)
    if options.out is None and store.folder.name != "store":
        raise BadInput(f"{store.folder} is not the store of a run (RUN/store); give --out RUN for what fit makes")
    out = Path(options.out) if options.out else store.folder.parent
    config = override(Recipe(task="fit"), options.set).fit
    pooled = next(store["inner"].batches(1)).pooled is not None
    heads = expand_heads(options.heads or ["quick"], store.shape, pooled, store.tokens)
    control = [CONTROL] if fits(CONTROL, store.shape, pooled, store.tokens) else []
    fit_into(out, store, [*control, *heads], options.seeds, config)
    result = conclude(out)
    return result.document, str(result)


def _ensemble(options: argparse.Namespace) -> Result:
    from bertvision.core.records import board_document
    from bertvision.workflows.compare import mix

    place = None if options.save is None else Path(options.save)
    board = mix(Path(options.folder), options.members, options.how, place)
    return board_document(board), str(board) + (f"\nmodel: {place}" if place else "")


def _evaluate(options: argparse.Namespace) -> Result:
    """The leaderboard, written anew; a comparison or another decoding writes nothing."""
    from bertvision.workflows.compare import compare_rows, legacy_board
    from bertvision.workflows.conclude import conclude

    folder = Path(options.folder)
    if options.compare is not None:
        return compare_rows(folder, *options.compare)
    if options.decode is not None:
        return legacy_board(folder)
    result = conclude(folder)
    return result.document, str(result)
