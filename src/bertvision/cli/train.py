"""Commands that train and evaluate: demo, run, tune, extract, fit, costs, evaluate, ensemble."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bertvision.cli.options import (
    Result,
    add_command,
    add_data,
    add_encoder,
    add_heads,
    add_set,
    add_settings,
    add_tune,
    expand_heads,
    float_list,
    fraction_of_shards,
    int_list,
    positive_int,
    recipe_from,
    run_folder_of,
)
from bertvision.core.config import ExtractConfig, Recipe
from bertvision.core.errors import BadInput
from bertvision.core.progress import log_line

HEADS_HELP = (
    "heads to train: quick (a preset of fast heads, default), all, or specs such as compress:size=64 (list them with: "
    "bertvision heads)"
)
RUN_HELP = "run folder created by `bertvision run` or `fit`"


def add_commands(subparsers: Any) -> None:
    for add in (_add_demo, _add_run, _add_tune, _add_extract, _add_fit, _add_costs, _add_evaluate, _add_ensemble):
        add(subparsers)


def _add_demo(subparsers: Any) -> None:
    parser = add_command(subparsers, "demo", "run the whole pipeline on generated questions (a few minutes)", "")
    parser.add_argument("--out", default="runs/demo", metavar="RUN", help="output folder (default: runs/demo)")


def _add_run(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "run",
        "tune an encoder, train heads on its hidden states, and save the best model with a report",
        "reviews.csv",
        "text --train reviews.csv --text-column review --label-column stars --out runs/reviews",
        "squad2 --train train-v2.0.json --dev dev-v2.0.json --heads all --seeds 0,1,2 --out runs/squad",
        "runs/reviews/recipe.toml --set fit.epochs=10 --out runs/longer",
    )
    parser.add_argument(
        "--out",
        metavar="RUN",
        help="output folder; rerun the same command to resume an interrupted run (default for a table: runs/ and its "
        "name, runs/reviews for reviews.csv)",
    )
    add_heads(parser, HEADS_HELP)
    parser.add_argument(
        "--seeds", type=int_list, metavar="0,1", help="random seeds; every head is trained once per seed (default: 0,1)"
    )
    add_settings(parser, ExtractConfig, ("dtype", "tokens", "pairs", "layers", "max_gb", "live"))
    add_settings(parser, Recipe, ("prefer",))
    for add in (add_data, add_encoder, add_tune, add_set):
        add(parser)


def _add_tune(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "tune",
        "fine-tune an encoder and save it in RUN/encoder",
        "text --train reviews.csv --epochs 0.5 --out runs/reviews",
        "squad2 --train train-v2.0.json --method lora:r=8 --out runs/lora",
    )
    parser.add_argument("--out", required=True, metavar="RUN", help="run folder; the encoder is saved in RUN/encoder")
    parser.add_argument("--head", dest="tune_head", metavar="SPEC", help="same as --tune-head")
    parser.add_argument(
        "--from-store",
        nargs="?",
        const="",
        metavar="STORE",
        help="with --method freeze:k=K: compute the output of layer K once, store it in STORE (default: RUN/store), "
        "and tune only the layers above",
    )
    parser.add_argument(
        "--curve",
        type=float_list,
        metavar="0,0.1,1,2",
        help="score a checkpoint after each of these numbers of epochs, all from one tuning, and save it in "
        "RUN/curve/EPOCHS",
    )
    for add in (add_data, add_encoder, add_tune, add_set):
        add(parser)


def _add_extract(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "extract",
        "store the hidden states of all layers, for all splits",
        "text --train reviews.csv --encoder runs/reviews/encoder --to runs/reviews/store",
        "text --train reviews.csv --encoder runs/reviews/encoder --to s3://bucket/store --shard 2/8",
    )
    parser.add_argument(
        "--to", required=True, metavar="STORE", help="folder or URL of the store; an unfinished store is resumed"
    )
    add_settings(parser, ExtractConfig, ("dtype", "tokens", "pairs", "layers", "max_gb", "shard_mb"))
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--shard",
        type=fraction_of_shards,
        metavar="I/N",
        help="write only every N-th shard, starting with the I-th; start N such processes, then run --finalize",
    )
    parts.add_argument("--finalize", action="store_true", help="check that all shards exist and finish the store")
    parts.add_argument("--engine", choices=("ray",), help="extract on a Ray cluster (see docs/how-to/clusters.md)")
    parser.add_argument(
        "--address", metavar="A", help="with --engine ray: auto or HOST:PORT (default: start a local cluster)"
    )
    parser.add_argument(
        "--actors",
        type=positive_int,
        metavar="N",
        help="with --engine ray: maximum number of actors (default: no limit)",
    )
    for add in (add_data, add_encoder, add_set):
        add(parser)


def _add_fit(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "fit",
        "train heads on stored hidden states, all in one pass, and update the leaderboard and the report",
        "runs/reviews/store --heads compress:size=64 ngrams --seeds 0,1,2",
    )
    parser.add_argument("store", metavar="STORE", help="store made by extract, e.g. RUN/store")
    add_heads(parser, HEADS_HELP)
    parser.add_argument(
        "--seeds",
        type=int_list,
        default=(0,),
        metavar="0,1,2",
        help="random seeds; every head is trained once per seed (default: 0)",
    )
    parser.add_argument("--out", metavar="RUN", help="output folder (default: RUN if STORE is RUN/store)")
    add_set(parser)


def _add_costs(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "costs",
        "compare tuned encoders: parameters, time, memory and scores",
        "text --train reviews.csv --encoders runs/full/encoder runs/lora/encoder",
    )
    parser.add_argument("--encoders", nargs="+", required=True, metavar="RUN/encoder", help="encoders saved by tune")
    add_data(parser)
    add_set(parser)


def _add_evaluate(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "evaluate",
        "score a run and write its leaderboard",
        "runs/reviews",
        "runs/reviews --compare compress:size=64 encoder",
    )
    parser.add_argument("folder", metavar="RUN", help=RUN_HELP)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="only test two rows: NAME (mean over seeds) or NAME@SEED"
    )
    instead.add_argument("--decode", choices=("legacy",), help="also score with the span decoding of the paper")


def _add_ensemble(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "ensemble",
        "score several leaderboard rows (models) of a run as an ensemble",
        "runs/reviews --members encoder probe compress:size=64@0 --save runs/ensemble",
    )
    parser.add_argument("folder", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--members",
        nargs="+",
        default=[],
        metavar="ROW",
        help="rows to combine: encoder, NAME@SEED, or NAME for its best seed on inner (default: encoder and the "
        "best head)",
    )
    parser.add_argument(
        "--how",
        choices=("max", "mean", "fitted"),
        default="fitted",
        help="combine by maximum, by mean, or by weights fitted on inner (default: fitted)",
    )
    parser.add_argument("--save", metavar="MODEL", help="save the ensemble as a model in this new folder")


def demo_command(options: argparse.Namespace) -> Result:
    from bertvision.workflows.demo import demo

    return demo(Path(options.out))


def run_command(options: argparse.Namespace) -> Result:
    from bertvision.workflows.run import run

    recipe, folder = recipe_from(options), run_folder_of(options)
    if options.out is None:
        log_line(f"run folder: {folder} (choose another with --out)")
    result = run(recipe, folder)
    log_line(f"report: {result.folder / 'report.html'}")
    return {**result.document, "run": str(result.folder)}, str(result)


def tune_command(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.distributed import leads, num_processes
    from bertvision.training.tune import TUNING_CHECKPOINT, check_tuning, tune
    from bertvision.training.tune_from_store import tune_from_store

    from_store, processes = options.from_store is not None, num_processes()
    if options.curve and from_store:
        raise BadInput("--curve and --from-store cannot be combined; leave one of them out")
    if processes > 1 and (options.curve or from_store):
        raise BadInput(
            f"--curve and --from-store support a single process, got {processes}; start the command without torchrun"
        )
    recipe = recipe_from(options)
    task = load_recipe_task(recipe)
    folder, encoder = Path(options.out), load_encoder(recipe.encoder)
    check_tuning(encoder, task, recipe.tune, folder / "encoder")
    if options.curve:
        return _tuning_curve(encoder, task, recipe.tune, options.curve, folder)
    if from_store:
        store = options.from_store or folder / "store"
        tuned = tune_from_store(encoder, task, store, recipe.tune, folder / TUNING_CHECKPOINT)
    else:
        tuned = tune(encoder, task, recipe.tune, folder / TUNING_CHECKPOINT)
    target = folder / "encoder"
    if leads():
        tuned.save_pretrained(target)
    facts = {"encoder": str(target), **tuned.record}
    return facts, f"{target}: {tuned.record['tune']['steps']} steps, {tuned.record['cost']['seconds']:.0f} s"


def _tuning_curve(encoder: Any, task: Any, config: Any, epochs: list[float], folder: Path) -> Result:
    from bertvision.core.text_table import align_columns
    from bertvision.workflows.tuning_curve import tune_curve

    document = tune_curve(encoder, task, config, epochs, folder)
    metric = document["metric"]
    cells = [["epochs", "steps", "seconds", f"dev {metric}", f"inner {metric}"]]
    for row in document["rows"]:
        scores = [f"{row['scores'][metric]:.2f}", f"{row['inner'][metric]:.2f}"]
        cells.append([f"{row['epochs']:g}", str(row["steps"]), f"{row['seconds']:.0f}", *scores])
    return document, "\n".join([*align_columns(cells), f"chart: {folder / 'curve.svg'}"])


def costs_command(options: argparse.Namespace) -> Result:
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.workflows.tuning_costs import cost_table, cost_table_text

    document = cost_table([Path(folder) for folder in options.encoders], load_recipe_task(recipe_from(options)))
    return document, cost_table_text(document)


def extract_command(options: argparse.Namespace) -> Result:
    from bertvision.encoders.loading import load_encoder
    from bertvision.runs.prepare import load_recipe_task
    from bertvision.training.extract import extract, extract_share, finalize
    from bertvision.training.extract_ray import ray_extract
    from bertvision.training.inputs import resolve_tokens
    from bertvision.training.pair_texts import resolve_pairs

    if not options.engine and (options.address or options.actors):
        raise BadInput("--address and --actors need --engine ray; add it, or leave them out")
    recipe = recipe_from(options)
    task = load_recipe_task(recipe)
    encoder = load_encoder(recipe.encoder)
    recipe = replace(recipe, extract=resolve_pairs(recipe.extract, task, tuned=True))
    recipe = replace(recipe, extract=resolve_tokens(recipe.extract, [], task, encoder))  # no heads: all tokens
    if options.shard:
        shards = extract_share(encoder, task, options.to, options.shard, recipe.extract)
        part = "{}/{}".format(*options.shard)
        text = f"{options.to}: part {part} is done, {shards} shards; when all parts are: extract ... --finalize"
        return {"store": options.to, "share": part, "shards": shards}, text
    if options.engine:
        store = ray_extract(encoder, task, options.to, recipe.extract, options.address, options.actors)
    else:
        store = (finalize if options.finalize else extract)(encoder, task, options.to, recipe.extract)
    splits: dict[str, Any] = {}
    for name, split in store.manifest["splits"].items():
        splits[name] = {key: value for key, value in split.items() if key != "shards"}
    windows = sum(split["windows"] for split in splits.values())
    size = sum(split["bytes"] for split in splits.values())
    document = {"store": options.to, "id": store.id, "shape": asdict(store.shape), "splits": splits}
    return document, f"{options.to}: {windows:,} windows, {size / 1e6:,.1f} MB"


def fit_command(options: argparse.Namespace) -> Result:
    from bertvision.core.config import override
    from bertvision.runs.prepare import fit_into
    from bertvision.store.store import Store
    from bertvision.training.selection import has_seen_labels
    from bertvision.workflows.conclude import conclude

    store = Store(options.store)
    if options.out is None and store.folder.name != "store":
        raise BadInput(f"{store.folder} is not in a run folder (RUN/store); choose an output folder with --out RUN")
    out = Path(options.out) if options.out else store.folder.parent
    config = override(Recipe(task="fit"), options.set).fit
    pooled = next(store["inner"].batches(1)).pooled is not None
    words = ["control", *(options.heads or ["quick"])]
    heads = expand_heads(words, store.shape, pooled, store.tokens, has_seen_labels(store), store.pairs)
    fit_into(out, store, heads, options.seeds, config)
    result = conclude(out)
    return result.document, str(result)


def evaluate_command(options: argparse.Namespace) -> Result:
    """Rewrite the leaderboard; ``--compare`` and ``--decode`` only print."""
    from bertvision.workflows.compare import compare_rows, paper_board
    from bertvision.workflows.conclude import conclude

    folder = Path(options.folder)
    if options.compare is not None:
        return compare_rows(folder, *options.compare)
    if options.decode is not None:
        return paper_board(folder)
    result = conclude(folder)
    return result.document, str(result)


def ensemble_command(options: argparse.Namespace) -> Result:
    from bertvision.core.leaderboard_text import board_document
    from bertvision.workflows.compare import ensemble_rows

    model = None if options.save is None else Path(options.save)
    board = ensemble_rows(Path(options.folder), options.members, options.how, model)
    return board_document(board), str(board) + (f"\nmodel: {model}" if model else "")
