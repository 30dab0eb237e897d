"""What the run cost: time and disk by step, and what the store holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.report.markup import NOTHING, duration, number, size
from bertvision.report.render import Section, section
from bertvision.runs.reader import Line, Run

Step = tuple[str, str, float | None, int]
"""Name, what it did, seconds and bytes."""


def cost_section(run: Run, lines: Sequence[Line]) -> Section:
    """Steps with seconds and bytes, then the store by split."""
    steps = _steps(run)
    seconds = {name: taken or 0.0 for name, _, taken, _ in steps}
    fits = [line.seconds for line in lines if line.kind in ("head", "control")]
    return section(
        "cost",
        "What it cost",
        steps=[_step_row(step, sum(seconds.values())) for step in steps],
        once=seconds.get("tune", 0.0) + seconds.get("extract", 0.0),
        fit_seconds=[min(fits), max(fits)] if run.heads else [],
        store=_store_facts(run) if run.manifest else [],
        splits=_split_rows(run) if run.manifest else [],
    )


def _steps(run: Run) -> list[Step]:
    """Every step of which there is a record."""
    record = run.encoder.get("record", {})
    steps: list[Step] = []
    if "tune" in record:
        steps.append(("tune", tuning(record), record.get("cost", {}).get("seconds"), run.sizes["tune"]))
    if run.manifest:
        what = f"{_total(run, 'windows'):,} windows through the encoder, once"
        steps.append(("extract", what, run.manifest.get("seconds"), _total(run, "bytes")))
    if run.heads:
        specs = len({head.spec for head in run.heads})
        what = f"{specs} heads, {len(run.heads)} fits in all"
        steps.append(("fit", what, sum(head.seconds for head in run.heads), run.sizes["fit"]))
    return steps


def tuning(record: Mapping[str, Any]) -> str:
    """How the encoder was tuned, in a few words."""
    tune = record.get("tune")
    if not tune:
        return "not tuned"
    epochs = f"{tune['epochs']:g} {'epoch' if tune['epochs'] == 1 else 'epochs'}"
    return f"tuned {epochs} ({tune['method']}, {tune['steps']:,} steps, rate {tune['lr']:g})"


def _step_row(step: Step, total: float) -> list[str]:
    name, what, seconds, stored = step
    share = f"{100 * seconds / total:.0f} %" if seconds is not None and total > 0 else NOTHING
    return [name, what, NOTHING if seconds is None else duration(seconds), share, size(stored) if stored else NOTHING]


def _total(run: Run, key: str) -> int:
    return sum(int(split[key]) for split in run.manifest["splits"].values())


def _store_facts(run: Run) -> list[tuple[str, str]]:
    shape, tokens, stored = run.manifest["shape"], _total(run, "tokens"), _total(run, "bytes")
    return [
        ("windows", f"{_total(run, 'windows'):,}"),
        ("tokens", f"{tokens:,}"),
        ("bytes a token", number(stored / tokens, 0) if tokens else NOTHING),
        ("states a token", f"{shape['layers']} of {shape['width']} numbers, {run.manifest['dtype']}"),
        ("encoder parameters", f"{run.manifest['encoder']['parameters']:,}"),
    ]


def _split_rows(run: Run) -> list[list[str]]:
    """Examples, windows, tokens and bytes by split."""
    return [
        [name, f"{len(run.task[name]):,}", f"{split['windows']:,}", f"{split['tokens']:,}", size(split["bytes"])]
        for name, split in run.manifest["splits"].items()
    ]
