"""Which trained adapters matter: those of every span of layers are switched off, without training anew.

Mohebbi & Rajaei, figure 8 (after Houlsby et al.): rows are the first layer whose adapters are off, columns
the last, the value is the share of the score that is lost.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.runtime import progress, write_json, written_whole
from bertvision.encoders.adapters import adapters_of, switched_off
from bertvision.encoders.loading import RECORD, Encoder, load_encoder
from bertvision.encoders.methods import inside
from bertvision.evaluation.analyses.adapter_ablation import by_span
from bertvision.evaluation.scoring import Verdict, judge, judge_inner
from bertvision.model import Model, own_model
from bertvision.report.line_plot import write_picture
from bertvision.report.plots import draw
from bertvision.tasks.task import Task, read_task
from bertvision.workflows.conclude import run_place

SPLIT = "dev"
NONE = (0, 0)


def ablate(folder: Path) -> dict[str, Any] | None:
    """Score of a run's encoder without the adapters of each span, in ``RUN/ablation``; None where it has none."""
    task, encoder = read_task(run_place(folder) / "task"), _adapted(folder)
    if encoder is None:
        return None
    verdicts = without_spans(encoder, task)
    whole = verdicts.pop(NONE).scores[task.metric]
    if whole <= 0:
        what = f"the encoder of {folder} has {task.metric} {whole:g} on {SPLIT}, so that nothing can be lost"
        raise BadInput(f"{what}; tune one that scores above 0, with more --epochs or another --lr")
    rows = []
    for (first, last), verdict in verdicts.items():
        score = float(verdict.scores[task.metric])
        rows.append({"first": first, "last": last, "score": score, "decrease": 100 * (whole - score) / whole})
    facts = {"task": task.name, "split": SPLIT, "metric": task.metric, "layers": encoder.layers - 1}
    facts["method"] = inside(encoder.model)  # an encoder may have been tuned in another way since
    document: dict[str, Any] = {**facts, "score": whole, "rows": rows}
    _write(document, folder / "ablation")
    return document


def without_spans(encoder: Encoder, task: Task) -> dict[tuple[int, int], Verdict]:
    """The encoder's own head on dev without the adapters from one layer to another; NONE is with all of them."""
    model, threshold = _with_threshold(encoder, task)
    layers = encoder.layers - 1
    found = {NONE: judge(task, SPLIT, *model.outputs(task[SPLIT]), threshold)}
    for first, last in progress(spans(layers), "ablate", total=layers * (layers + 1) // 2, unit="span"):
        with switched_off(encoder.model, first, last):
            found[first, last] = judge(task, SPLIT, *model.outputs(task[SPLIT]), threshold)
    return found


def spans(layers: int) -> Iterator[tuple[int, int]]:
    """Every first and last layer, counted from 1."""
    return ((first, last) for first in range(1, layers + 1) for last in range(first, layers + 1))


def _adapted(folder: Path) -> Encoder | None:
    place = folder / "encoder"
    encoder = load_encoder(str(place)) if (place / RECORD).exists() else None
    return None if encoder is None or adapters_of(encoder.model) is None else encoder


def _with_threshold(encoder: Encoder, task: Task) -> tuple[Model, float]:
    """The encoder with its own head, and the threshold that inner gives it with all adapters at work."""
    model = own_model(encoder, task)
    if model.threshold is None:
        return model, 0.0
    return model, float(judge_inner(task, *model.outputs(task["inner"])).threshold or 0.0)


def _write(document: dict[str, Any], out: Path) -> None:
    write_json(out / "ablation.json", document)
    with written_whole(out / "ablation.csv") as file:
        table = csv.DictWriter(file, ["first", "last", "score", "decrease"])
        table.writeheader()
        table.writerows(document["rows"])
    write_picture(draw(by_span(document).plots[0]), out / "ablation.svg")
