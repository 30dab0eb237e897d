"""Tune, extract and fit into a run folder, skipping steps that are already done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os.path import abspath
from pathlib import Path
from typing import Any

from bertvision.core.config import DataConfig, ExtractConfig, FitConfig, Recipe, read_recipe, to_mapping, write_recipe
from bertvision.core.errors import BadInput
from bertvision.core.files import folder_bytes, hash_json, hash_tensors, hashed_fields, hashed_keys, write_json
from bertvision.core.progress import Timer, log_line
from bertvision.core.run_log import RunLog
from bertvision.encoders.loading import ENCODER_FILE, Encoder, load_encoder
from bertvision.heads.base import canonical_spec, is_solved
from bertvision.runs.folder import STORE_SOURCE, head_folder
from bertvision.store.states import States
from bertvision.store.store import MANIFEST, Store
from bertvision.store.writer import StoreWriter
from bertvision.tasks.class_weights import describe_imbalance
from bertvision.tasks.task import TASKS, Task, load_task
from bertvision.training.disk_space import check_disk_space
from bertvision.training.distributed import num_processes
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead, load_fitted, save_fitted
from bertvision.training.head_trainer import FIT_CHECKPOINT
from bertvision.training.inputs import TaskWindows, check_heads, data_hash, encoder_hash, resolve_tokens
from bertvision.training.live_states import LiveStates, record_live
from bertvision.training.pair_texts import check_pairs, resolve_pairs
from bertvision.training.shard_builder import ExtractionPlan
from bertvision.training.tune import TUNING_CHECKPOINT, check_tuning, tune

PARTS = ("task", "encoder", "data", "tune", "extract")
"""The parts of a recipe that identify a run; heads, seeds and fit settings may change."""


@dataclass(frozen=True)
class Prepared:
    """Task, hidden states, canonical specs of the heads to fit, and the encoder of the states."""

    task: Task
    states: States
    heads: list[str]
    encoder: Encoder


def prepare_run(
    recipe: Recipe, folder: Path, heads: Sequence[str], opened: tuple[Task, Encoder] | None = None
) -> Prepared:
    """Tune and extract, unless already done.

    ``opened`` are the recipe's task and encoder, if they are already loaded.
    """
    if num_processes() > 1:
        raise BadInput("run works in one process; tune with several (torchrun -m bertvision tune), then run --encoder")
    # Check everything before the folder is created, and long before the first head is fitted.
    task, base = opened or (load_recipe_task(recipe), load_encoder(recipe.encoder))
    tuned = recipe.tune.epochs > 0 or base.own is not None
    recipe = _resolve_auto(recipe, heads, task, base, tuned, folder)
    config = recipe.extract
    specs = check_heads(heads, task, base, config.layers, config.tokens, tuned, config.pairs)
    check_tuning(base, task, recipe.tune, folder / "encoder")
    windows = TaskWindows(task, base)  # tokenised once for the estimate, tuning and extraction
    if not (recipe.extract.live or (folder / "encoder" / ENCODER_FILE).exists()):
        check_disk_space(ExtractionPlan(base, task, recipe.extract, windows=windows), StoreWriter(folder / "store"))
    _claim(recipe, folder)
    log = RunLog(folder)
    encoder = _tune(recipe, windows, folder, log)
    return Prepared(task, _extract(recipe, encoder, windows, folder, log), specs, encoder)


def _resolve_auto(
    recipe: Recipe, heads: Sequence[str], task: Task, encoder: Encoder, tuned: bool, folder: Path
) -> Recipe:
    """The recipe with ``tokens`` and ``pairs`` resolved if they are ``"auto"``: as in the run, if there is one."""
    config, path = recipe.extract, folder / "recipe.toml"
    if "auto" in (config.tokens, config.pairs) and path.exists():
        stored = read_recipe(path).extract
        tokens = stored.tokens if config.tokens == "auto" else config.tokens
        config = replace(config, tokens=tokens, pairs=stored.pairs if config.pairs == "auto" else config.pairs)
    config = resolve_pairs(config, task, tuned)
    check_pairs(config, task)
    return replace(recipe, extract=resolve_tokens(config, heads, task, encoder, tuned))


def load_recipe_task(recipe: Recipe) -> Task:
    """Load the task of a recipe; log the sizes of its splits and the number of bad rows."""
    if recipe.task in TASKS and not (recipe.data.train or recipe.data.data or recipe.data.hub):
        raise BadInput(
            f"task {recipe.task} needs --train FILE (and --dev FILE for the report); a GLUE task takes --data FOLDER"
        )
    # Settings that are not given are not passed on: a loader takes only the options of its task.
    options = {
        key: value
        for key, value in asdict(recipe.data).items()
        if value is not None and value is not False and value != ()
    }
    task = load_task(recipe.task, **options)
    text = f"task {task.name}: " + ", ".join(f"{split} {len(task[split]):,}" for split in task.splits)
    if task.labels:
        text += f"; labels {', '.join(task.labels[:8])}{'...' if len(task.labels) > 8 else ''}"
    if task.skipped:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in task.skipped.items())
        text += f"; {sum(task.skipped.values()):,} bad rows skipped: {reasons}"
    log_line(text)
    warning = describe_imbalance(task)
    if warning:
        log_line(warning)
    return task


def _claim(recipe: Recipe, folder: Path) -> None:
    """Write the recipe into the run folder; an error if the folder holds another run or other files."""
    path = folder / "recipe.toml"
    if path.exists():
        old = read_recipe(path)
        change = difference(old, recipe)
        if change:
            raise BadInput(f"{folder} holds another run: {change}; choose another folder with --out")
        recipe = replace(recipe, data=old.data)  # keep the paths as they were first written
    elif folder.exists() and (not folder.is_dir() or any(child.name != "data" for child in folder.iterdir())):
        raise BadInput(f"{folder} is not empty and not a run; choose another folder with --out")
    write_recipe(recipe, path)


def recipe_identity(recipe: Recipe) -> dict[str, Any]:
    """The part of a recipe that identifies a run: equal if and only if :func:`difference` is empty."""
    keys = hashed_keys(Recipe)
    parts = {keys[part]: _normalize(getattr(recipe, part)) for part in PARTS}
    return {key: value if isinstance(value, str) else hashed_fields(value) for key, value in parts.items()}


def difference(old: Recipe, new: Recipe) -> str:
    """The first setting in which two recipes describe different runs, as text; empty if there is none."""
    for part in PARTS:
        stored, given = _normalize(getattr(old, part)), _normalize(getattr(new, part))
        if stored == given:
            continue
        if isinstance(stored, str):
            return f"{part} is {stored} there and {given} here"
        old_values, new_values = to_mapping(stored), to_mapping(given)
        key = next(key for key in {**old_values, **new_values} if old_values.get(key) != new_values.get(key))
        return f"{part}.{key} is {old_values.get(key, 'not set')} there and {new_values.get(key, 'not set')} here"
    return ""


def _normalize(part: Any) -> Any:
    """A section of a recipe without what has no effect on results: the size limit, and how paths are written."""
    if isinstance(part, ExtractConfig):
        return replace(part, max_gb=None)
    if isinstance(part, DataConfig):
        train, dev, extra = (tuple(map(abspath, paths)) for paths in (part.train, part.dev, part.extra))
        return replace(part, train=train, dev=dev, extra=extra, data=part.data and abspath(part.data))
    return part


def _tune(recipe: Recipe, windows: TaskWindows, folder: Path, log: RunLog) -> Encoder:
    """The run's tuned encoder; tuned now if it is missing or was made from other inputs."""
    task, base, target = windows.task, windows.encoder, folder / "encoder"
    made_from = hash_json(
        [encoder_hash(base), data_hash(task), hashed_fields(recipe.tune), task.max_length, task.overlap]
    )
    # Not core.files.reuse: the result is an encoder, which keeps its fingerprint in its own record.
    if (target / ENCODER_FILE).exists():
        tuned = load_encoder(str(target))
        if tuned.record.get("made_from") == made_from:
            log_line(f"tune: already done, skipping ({target})")
            return tuned
    log_line(f"tune: {recipe.tune.epochs:g} epochs of {len(task['train']):,} examples, method {recipe.tune.method}")
    tuned = tune(base, task, recipe.tune, folder / TUNING_CHECKPOINT, windows)
    if recipe.tune.epochs == 0:
        tuned = _as_it_came(tuned, base)
    tuned = replace(tuned, record={**tuned.record, "made_from": made_from})
    tuned.save_pretrained(target)
    cost = tuned.record["cost"]
    log.write("tune", **cost, parameters=tuned.parameters, bytes=folder_bytes(target))
    log_line(f"tune: {cost['seconds']:.0f} s" + ("" if cost["loss"] is None else f", last loss {cost['loss']:.3f}"))
    return tuned


def _as_it_came(tuned: Encoder, base: Encoder) -> Encoder:
    """The result of tuning for 0 epochs: without a head that was not trained, and with the record of earlier tuning."""
    earlier = base.record.get("tune")
    record = tuned.record if earlier is None else {**tuned.record, "tune": {**tuned.record["tune"], "before": earlier}}
    assert tuned.own is not None, "tuning adds a head"
    new, old = hash_tensors(tuned.own.state.items()), base.own and hash_tensors(base.own.state.items())
    return replace(tuned, own=tuned.own if new == old else None, record=record)


def _extract(recipe: Recipe, encoder: Encoder, windows: TaskWindows, folder: Path, log: RunLog) -> States:
    """The run's hidden states: its store, extracted now if missing, or live states."""
    task, target, timer = windows.task, folder / "store", Timer()
    if recipe.extract.live:
        log_line("extract: nothing is stored, the encoder runs in every epoch (live)")
        live = LiveStates(encoder, task, recipe.extract, windows)
        record_live(live, target)
        return live
    finished = (target / MANIFEST).read_bytes() if (target / MANIFEST).exists() else b""
    store = extract(encoder, task, target, recipe.extract, windows, replace=True)
    if (target / MANIFEST).read_bytes() == finished:
        log_line(f"extract: already done, skipping ({target})")
        return store
    splits = store.manifest["splits"].values()
    totals = {key: sum(split[key] for split in splits) for key in ("windows", "tokens", "bytes")}
    log.write("extract", seconds=timer.seconds, **totals)
    log_line(f"extract: {timer.seconds:.0f} s, {totals['windows']:,} windows, {totals['bytes'] / 1e9:.2f} GB")
    return store


def fit_into(
    folder: Path,
    store: States,
    heads: Sequence[str],
    seeds: Sequence[int],
    config: FitConfig,
    task: Task | None = None,
) -> list[FittedHead]:
    """Fit every head x seed into a run folder; heads that were already fitted on these states are loaded.

    ``task`` is the task of the states, if it is already loaded.
    """
    made_from = f"{store.id}:{hash_json(hashed_fields(config))}"
    specs = dict.fromkeys(canonical_spec(spec) for spec in heads)
    pairs = [(spec, seed) for spec in specs for seed in ((0,) if is_solved(spec) else seeds)]
    fitted: dict[tuple[str, int], FittedHead] = {}
    # Not core.files.reuse: heads are loaded with their weights, and all that are missing are fitted in one pass.
    for spec, seed in pairs:
        path = head_folder(folder, spec, seed)
        if (path / "head.json").exists():
            head, origin = load_fitted(path)
            if origin == made_from:
                fitted[spec, seed] = head
    missing = list(dict.fromkeys(spec for spec, seed in pairs if (spec, seed) not in fitted))
    if not missing:
        log_line("fit: already done, skipping")
    else:
        timer, saved = Timer(), folder / FIT_CHECKPOINT
        log_line(f"fit: {len(missing)} heads x {len(seeds)} seeds, {config.epochs} epochs")
        for head in fit(missing, store, seeds, config, task, saved):
            fitted[head.spec, head.seed] = save_fitted(head, head_folder(folder, head.spec, head.seed), made_from)
        saved.unlink(missing_ok=True)
        RunLog(folder).write("fit", seconds=timer.seconds, heads=missing, seeds=list(seeds))
        log_line(f"fit: {timer.seconds:.0f} s")
    if isinstance(store, Store) and store.folder.resolve() != (folder / "store").resolve():
        write_json(folder / STORE_SOURCE, {"store": str(store.folder.resolve())})
    return [fitted[pair] for pair in pairs if pair in fitted]
