"""A run folder filled step by step: tune, extract, fit; what is done already is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os.path import abspath
from pathlib import Path
from typing import Any

from bertvision.core.config import DataConfig, ExtractConfig, FitConfig, Recipe, read_recipe, to_mapping, write_recipe
from bertvision.core.errors import BadInput
from bertvision.core.files import folder_bytes, hash_json, hashed_fields, hashed_keys, write_json
from bertvision.core.progress import Timer, log_line
from bertvision.core.run_log import RunLog
from bertvision.encoders.loading import ENCODER_FILE, Encoder, load_encoder
from bertvision.heads.base import canonical_spec
from bertvision.runs.folder import STORE_SOURCE, head_folder
from bertvision.store.states import States
from bertvision.store.store import MANIFEST, Store
from bertvision.store.writer import StoreWriter
from bertvision.tasks.class_weights import describe_imbalance
from bertvision.tasks.task import TASKS, Task, load_task
from bertvision.training.distributed import num_processes
from bertvision.training.estimate import check_disk_space
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead, load_fitted, save_fitted
from bertvision.training.head_trainer import FIT_CHECKPOINT
from bertvision.training.inputs import TaskWindows, check_heads, data_hash, encoder_hash
from bertvision.training.live_states import LiveStates, record_live
from bertvision.training.shard_builder import ExtractionPlan
from bertvision.training.tune import TUNING_CHECKPOINT, check_tuning, tune

PARTS = ("task", "encoder", "data", "tune", "extract")
"""What of a recipe makes a run; heads may be fitted anew at any time."""


@dataclass(frozen=True)
class Prepared:
    """What heads are fitted on, and which heads, in canonical form."""

    task: Task
    states: States
    heads: list[str]


def prepare(
    recipe: Recipe, folder: Path, heads: Sequence[str], opened: tuple[Task, Encoder] | None = None
) -> tuple[States, list[str]]:
    """The states and the heads of :func:`prepare_run`."""
    prepared = prepare_run(recipe, folder, heads, opened)
    return prepared.states, prepared.heads


def prepare_run(
    recipe: Recipe, folder: Path, heads: Sequence[str], opened: tuple[Task, Encoder] | None = None
) -> Prepared:
    """Tune and extract, if not done yet.

    ``opened`` are the recipe's task and encoder, where they are loaded already.
    """
    if num_processes() > 1:
        raise BadInput("run is for one process; tune with several (torchrun -m bertvision tune), then run --encoder")
    # What can be wrong is found before the folder is claimed, and long before the heads' turn comes.
    task, base = opened or (load_recipe_task(recipe), load_encoder(recipe.encoder))
    specs = check_heads(heads, task, base, recipe.extract.layers, recipe.extract.tokens)
    check_tuning(base, task, recipe.tune, folder / "encoder")
    windows = TaskWindows(task, base)  # tokenised once for the estimate, tuning and extraction
    if not (recipe.extract.live or (folder / "encoder" / ENCODER_FILE).exists()):
        check_disk_space(ExtractionPlan(base, task, recipe.extract, windows=windows), StoreWriter(folder / "store"))
    _claim(recipe, folder)
    log = RunLog(folder)
    encoder = _tuned(recipe, windows, folder, log)
    return Prepared(task, _extracted(recipe, encoder, windows, folder, log), specs)


def load_recipe_task(recipe: Recipe) -> Task:
    """The task that a recipe names, with its data options; what it holds and what was left out is told."""
    if recipe.task in TASKS and not (recipe.data.train or recipe.data.data or recipe.data.hub):
        raise BadInput(
            f"task {recipe.task} needs --train FILE (and, to report on, --dev FILE); a task of GLUE takes --data FOLDER"
        )
    options = {key: value for key, value in asdict(recipe.data).items() if value is not None and value != ()}
    task = load_task(recipe.task, **options)
    text = f"task {task.name}: " + ", ".join(f"{split} {len(task[split]):,}" for split in task.splits)
    if task.labels:
        text += f"; labels {', '.join(task.labels[:8])}{'...' if len(task.labels) > 8 else ''}"
    if task.skipped:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in task.skipped.items())
        text += f"; {sum(task.skipped.values()):,} bad rows left out: {reasons}"
    log_line(text)
    uneven = describe_imbalance(task)
    if uneven:
        log_line(uneven)
    return task


def _claim(recipe: Recipe, folder: Path) -> None:
    """Write the recipe into the run; heads, seeds and fit settings may change, what lies below may not."""
    path = folder / "recipe.toml"
    if path.exists():
        old = read_recipe(path)
        other = difference(old, recipe)
        if other:
            raise BadInput(f"{folder} holds another run: {other}; choose another --out")
        recipe = replace(recipe, data=old.data)  # paths stay as they were written, for whoever reads the recipe
    elif folder.exists() and (not folder.is_dir() or any(child.name != "data" for child in folder.iterdir())):
        raise BadInput(f"{folder} is not empty and holds no run; choose another --out")
    write_recipe(recipe, path)


def recipe_identity(recipe: Recipe) -> dict[str, Any]:
    """Plain data that is equal where :func:`difference` finds none."""
    keys = hashed_keys(Recipe)
    kept = {keys[part]: _kept(getattr(recipe, part)) for part in PARTS}
    return {key: value if isinstance(value, str) else hashed_fields(value) for key, value in kept.items()}


def difference(old: Recipe, new: Recipe) -> str:
    """The first thing that makes two recipes two runs, in words; nothing if they are the same one."""
    for part in PARTS:
        before, now = _kept(getattr(old, part)), _kept(getattr(new, part))
        if before == now:
            continue
        if isinstance(before, str):
            return f"{part} is {before} there and {now} here"
        stored, wanted = to_mapping(before), to_mapping(now)
        key = next(key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key))
        return f"{part}.{key} is {stored.get(key, 'not set')} there and {wanted.get(key, 'not set')} here"
    return ""


def _kept(part: Any) -> Any:
    """What of a section decides what comes out; how much room it may take, or how a path is written, does not."""
    if isinstance(part, ExtractConfig):
        return replace(part, max_gb=None)
    if isinstance(part, DataConfig):
        train, dev, extra = (tuple(map(abspath, some)) for some in (part.train, part.dev, part.extra))
        return replace(part, train=train, dev=dev, extra=extra, data=part.data and abspath(part.data))
    return part


def _tuned(recipe: Recipe, windows: TaskWindows, folder: Path, log: RunLog) -> Encoder:
    task, base, target = windows.task, windows.encoder, folder / "encoder"
    made_from = hash_json(
        [encoder_hash(base), data_hash(task), hashed_fields(recipe.tune), task.max_length, task.overlap]
    )
    if (target / ENCODER_FILE).exists():
        tuned = load_encoder(str(target))
        if tuned.record.get("made_from") == made_from:
            log_line(f"tune: done before ({target})")
            return tuned
    log_line(f"tune: {recipe.tune.epochs:g} epochs of {len(task['train']):,} examples, method {recipe.tune.method}")
    tuned = tune(base, task, recipe.tune, folder / TUNING_CHECKPOINT, windows)
    tuned = replace(tuned, record={**tuned.record, "made_from": made_from})
    tuned.save_pretrained(target)
    cost = tuned.record["cost"]
    log.write("tune", **cost, parameters=tuned.parameters, bytes=folder_bytes(target))
    log_line(f"tune: {cost['seconds']:.0f} s" + ("" if cost["loss"] is None else f", last loss {cost['loss']:.3f}"))
    return tuned


def _extracted(recipe: Recipe, encoder: Encoder, windows: TaskWindows, folder: Path, log: RunLog) -> States:
    task, target, timer = windows.task, folder / "store", Timer()
    if recipe.extract.live:
        log_line("extract: nothing is stored, the encoder runs once an epoch (live)")
        live = LiveStates(encoder, task, recipe.extract, windows)
        record_live(live, target)
        return live
    done_before = (target / MANIFEST).exists()
    store = extract(encoder, task, target, recipe.extract, windows)
    if done_before:
        log_line(f"extract: done before ({target})")
        return store
    splits = store.manifest["splits"].values()
    facts = {key: sum(split[key] for split in splits) for key in ("windows", "tokens", "bytes")}
    log.write("extract", seconds=timer.seconds, **facts)
    log_line(f"extract: {timer.seconds:.0f} s, {facts['windows']:,} windows, {facts['bytes'] / 1e9:.2f} GB")
    return store


def fit_into(
    folder: Path,
    store: States,
    heads: Sequence[str],
    seeds: Sequence[int],
    config: FitConfig,
    task: Task | None = None,
) -> list[FittedHead]:
    """Every head x seed, loaded where it was fitted before; the rest share one read of the store.

    ``task`` is that of the states, where it is at hand.
    """
    made_from = f"{store.id}:{hash_json(hashed_fields(config))}"
    pairs = [(spec, seed) for spec in dict.fromkeys(canonical_spec(spec) for spec in heads) for seed in seeds]
    fitted: dict[tuple[str, int], FittedHead] = {}
    for spec, seed in pairs:
        place = head_folder(folder, spec, seed)
        if (place / "head.json").exists():
            head, origin = load_fitted(place)
            if origin == made_from:
                fitted[spec, seed] = head
    missing = list(dict.fromkeys(spec for spec, seed in pairs if (spec, seed) not in fitted))
    if not missing:
        log_line("fit: done before")
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
