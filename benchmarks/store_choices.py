"""Score cost of smaller stores: the same heads on states stored in every format, compared with f32.

python benchmarks/store_choices.py RUN [RUN ...] --scratch FOLDER [--limit 1500] [--seeds 0 1 2]

Each RUN is a folder made by ``bertvision run``; its encoder and data are used, nothing in it is changed. Stores
are made in FOLDER one after the other and removed. Writes results/store_choices.csv, one row per run, choice and
head: bytes per token, the share of dev questions that a head fitted on f32 answers the same on these states (and at
the same threshold), and the score of the refitted head, minus f32's, with its paired interval. Existing
rows are kept; rerun the same command to resume with the next run.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import bertvision as bv
from bertvision.core.config import ExtractConfig, FitConfig, read_recipe
from bertvision.evaluation.scoring import score_predictions
from bertvision.heads.base import canonical_spec
from bertvision.runs.prepare import load_recipe_task
from bertvision.training.fitted_head import FittedHead
from rows import Rows

ONE_SHARD = 16_384
"""MB; a single shard, because shard borders affect the order of batches, which must be the same for all."""


def _store(**settings: str) -> ExtractConfig:
    return ExtractConfig(shard_mb=ONE_SHARD, **settings)  # type: ignore[arg-type]


STORAGE_CHOICES = {
    "f32": _store(dtype="f32"),
    "f16": _store(),
    "int8": _store(dtype="int8"),
    "f16, last 4 states": _store(layers="last4"),
    "f16, every 2nd state": _store(layers="every2"),
}
SPAN_CHOICES = {"f16, context and CLS": _store(tokens="context")}
LABEL_CHOICES = {"f16, CLS": _store(tokens="cls"), "f16, mean": _store(tokens="mean")}
READABLE_BY_F32_HEADS = ("f16", "int8")  # all tokens and layers, as heads fitted on f32 need
HEADS = ("learned-pool", "probe", "compress:size=64")


@dataclass(frozen=True)
class Fitted:
    """Heads fitted on one store and their predictions on dev, by spec in HEADS."""

    heads: dict[str, list[FittedHead]]
    predictions: dict[str, list[bv.Predictions]]


def main() -> None:
    options = _options()
    rows = Rows(options.to)
    for folder in options.runs:
        if not rows.has(run=folder.name):
            for row in _compare_choices(folder, options):  # written together, as all are compared with this run's f32
                rows.add({"run": folder.name, **row})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=1500)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--to", type=Path, default=Path("results/store_choices.csv"))
    return parser.parse_args()


def _compare_choices(folder: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    recipe = read_recipe(folder / "recipe.toml")
    task = load_recipe_task(replace(recipe, data=replace(recipe.data, limit=options.limit)))
    encoder = bv.load_encoder(str(folder / "encoder"))
    reference: Fitted | None = None
    rows: list[dict[str, object]] = []
    for name, config in {**STORAGE_CHOICES, **(SPAN_CHOICES if task.kind == "span" else LABEL_CHOICES)}.items():
        scratch_store = options.scratch / "store"
        shutil.rmtree(scratch_store, ignore_errors=True)
        store = bv.extract(encoder, task, scratch_store, config)
        fitted = _fit(store, config, options.seeds, recipe.fit)
        reference = reference or fitted
        size = round(_bytes_per_token(store), 1)
        for spec in HEADS:
            same = _same_answers(reference, store, spec, task) if name in READABLE_BY_F32_HEADS else None
            row = {"choice": name, "bytes_a_token": size, "head": spec, "same_percent": same}
            rows.append({**row, **_scored(fitted, reference, spec, task)})
        shutil.rmtree(scratch_store)
    return rows


def _fit(store: bv.Store, config: ExtractConfig, seeds: Sequence[int], fit: FitConfig) -> Fitted:
    # A store of means can only be read as means; for all others the default applies.
    read = "read=mean" if config.tokens == "mean" else ""
    names = {canonical_spec(f"{spec}{',' if ':' in spec else ':'}{read}" if read else spec): spec for spec in HEADS}
    heads: dict[str, list[FittedHead]] = {spec: [] for spec in HEADS}
    for head in bv.fit(list(names), store, list(seeds), fit):
        heads[names[head.spec]].append(head)
    return Fitted(heads, {spec: bv.predict(heads_of_spec, store["dev"]) for spec, heads_of_spec in heads.items()})


def _bytes_per_token(store: bv.Store) -> float:
    splits = store.manifest["splits"].values()
    return sum(int(split["bytes"]) for split in splits) / sum(int(split["tokens"]) for split in splits)


def _same_answers(reference: Fitted, store: bv.Store, spec: str, task: bv.Task) -> float:
    """The share of dev answers, in percent, that heads fitted on f32 give again on these states."""
    shares = []
    current = bv.predict(reference.heads[spec], store["dev"])
    for before, now in zip(reference.predictions[spec], current, strict=True):
        old, new = (score_predictions(task, predictions).result.answers for predictions in (before, now))
        shares.append(100 * mean(old[key] == new[key] for key in old))
    return round(mean(shares), 2)


def _scored(fitted: Fitted, reference: Fitted, spec: str, task: bv.Task) -> dict[str, object]:
    """The mean score over seeds on dev, and its difference from f32's with the paired 95 % interval."""
    refitted, reference_predictions = fitted.predictions[spec], reference.predictions[spec]
    score = mean(score_predictions(task, predictions).result.scores[task.metric] for predictions in refitted)
    row: dict[str, object] = {"metric": task.metric, "seeds": len(refitted), "score": round(score, 3)}
    if fitted is reference:
        return {**row, "minus_f32": 0.0, "low": None, "high": None}
    comparison = bv.compare([replace(predictions, name="now") for predictions in refitted], reference_predictions, task)
    return {**row, "minus_f32": round(comparison.difference, 3), "low": comparison.low, "high": comparison.high}


if __name__ == "__main__":
    main()
