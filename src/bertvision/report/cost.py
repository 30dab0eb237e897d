"""The cost of a run: time and disk space by step, and the contents of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.report.markup import MISSING, format_bytes, format_duration, format_number
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import Line, Run

Step = tuple[str, str, float | None, int]
"""Name, description, seconds and bytes."""


def cost_section(run: Run, lines: Sequence[Line]) -> Section:
    """The steps with seconds and bytes, then the store by split."""
    steps = _recorded_steps(run)
    seconds = {name: taken or 0.0 for name, _, taken, _ in steps}
    total = sum(seconds.values())
    rows = []
    for name, description, taken, stored in steps:
        time = MISSING if taken is None else format_duration(taken)
        share = f"{100 * taken / total:.0f} %" if taken is not None and total > 0 else MISSING
        rows.append([name, description, time, share, format_bytes(stored) if stored else MISSING])
    fits = [line.seconds for line in lines if line.kind in ("head", "control")]
    return render_section(
        "cost",
        "Cost",
        steps=rows,
        once=seconds.get("tune", 0.0) + seconds.get("extract", 0.0),
        fit_seconds=[min(fits), max(fits)] if run.heads else [],
        store=_store_facts(run) if run.manifest else [],
        splits=_split_rows(run) if run.manifest else [],
    )


def _recorded_steps(run: Run) -> list[Step]:
    """All recorded steps."""
    record = run.encoder.get("record", {})
    steps: list[Step] = []
    if "tune" in record:
        steps.append(("tune", tuning_summary(record), record.get("cost", {}).get("seconds"), run.sizes["tune"]))
    if run.manifest:
        windows = f"one pass of the encoder over {_sum_over_splits(run, 'windows'):,} windows"
        steps.append(("extract", windows, run.manifest.get("seconds"), _sum_over_splits(run, "bytes")))
    if run.heads:
        specs = len({head.spec for head in run.heads})
        fits = f"{specs} heads, {len(run.heads)} fits"
        steps.append(("fit", fits, sum(head.seconds for head in run.heads), run.sizes["fit"]))
    return steps


def tuning_summary(record: Mapping[str, Any]) -> str:
    """How the encoder was tuned, in a few words."""
    tune = record.get("tune")
    if not tune:
        return "not tuned"
    epochs = f"{tune['epochs']:g} {'epoch' if tune['epochs'] == 1 else 'epochs'}"
    return f"tuned {epochs} ({tune['method']}, {tune['steps']:,} steps, learning rate {tune['lr']:g})"


def _sum_over_splits(run: Run, key: str) -> int:
    return sum(int(split[key]) for split in run.manifest["splits"].values())


def _store_facts(run: Run) -> list[tuple[str, str]]:
    shape, tokens, stored = run.manifest["shape"], _sum_over_splits(run, "tokens"), _sum_over_splits(run, "bytes")
    return [
        ("windows", f"{_sum_over_splits(run, 'windows'):,}"),
        ("tokens", f"{tokens:,}"),
        ("bytes per token", format_number(stored / tokens, 0) if tokens else MISSING),
        ("states per token", f"{shape['layers']} x {shape['width']}, {run.manifest['dtype']}"),
        ("encoder parameters", f"{run.manifest['encoder']['parameters']:,}"),
    ]


def _split_rows(run: Run) -> list[list[str]]:
    """Examples, windows, tokens and bytes by split."""
    rows = []
    for name, split in run.manifest["splits"].items():
        counts = [len(run.task[name]), split["windows"], split["tokens"]]
        rows.append([name, *(f"{count:,}" for count in counts), format_bytes(split["bytes"])])
    return rows
