"""What the run cost: time and disk by step, and what the store holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.report.markup import NOTHING, Html, Section, duration, facts, number, section, size, table, tag
from bertvision.runs.reader import Line, Run

Step = tuple[str, str, float | None, int]


def cost_section(run: Run, lines: Sequence[Line]) -> Section:
    """Steps with seconds and bytes, then the store by split."""
    steps = _steps(run)
    total = sum(step[2] or 0.0 for step in steps)
    rows = [_step_row(step, total) for step in steps]
    parts = [table(["step", "what it did", "time", "share of time", "on disk"], rows, "Cost by step", "steps")]
    if run.manifest:
        parts += [facts(_store_facts(run), class_="tiles"), _splits_table(run)]
    return section("cost", "What it cost", tag("p", _summary(run, steps, lines)), *parts)


def _steps(run: Run) -> list[Step]:
    """(name, what, seconds, bytes) of each step of which there is a record."""
    record = run.encoder.get("record", {})
    steps: list[Step] = []
    if "tune" in record:
        steps.append(("tune", tuning(record), record.get("cost", {}).get("seconds"), run.sizes["tune"]))
    if run.manifest:
        windows, stored = _total(run, "windows"), _total(run, "bytes")
        steps.append(("extract", f"{windows:,} windows through the encoder, once", run.manifest.get("seconds"), stored))
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


def _summary(run: Run, steps: Sequence[Step], lines: Sequence[Line]) -> str:
    seconds = {step[0]: step[2] or 0.0 for step in steps}
    once = seconds.get("tune", 0.0) + seconds.get("extract", 0.0)
    heads = [line for line in lines if line.kind in ("head", "control")]
    if not run.heads:
        return f"Tuning and extracting took {duration(once)}."
    span = dict.fromkeys(duration(find(line.seconds for line in heads)) for find in (min, max))
    return (
        f"Tuning and extracting ({duration(once)}) are paid once, whatever the number of heads. One more fit of a "
        f"head like these takes {' to '.join(span)}."
    )


def _store_facts(run: Run) -> list[tuple[object, object]]:
    shape, tokens, stored = run.manifest["shape"], _total(run, "tokens"), _total(run, "bytes")
    each = number(stored / tokens, 0) if tokens else NOTHING
    return [
        ("windows", f"{_total(run, 'windows'):,}"),
        ("tokens", f"{tokens:,}"),
        ("bytes a token", each),
        ("states a token", f"{shape['layers']} of {shape['width']} numbers, {run.manifest['dtype']}"),
        ("encoder parameters", f"{run.manifest['encoder']['parameters']:,}"),
    ]


def _splits_table(run: Run) -> Html:
    """Examples, windows, tokens and bytes by split."""
    splits = run.manifest["splits"]
    rows = [
        [name, f"{len(run.task[name]):,}", f"{split['windows']:,}", f"{split['tokens']:,}", size(split["bytes"])]
        for name, split in splits.items()
    ]
    return table(["split", "examples", "windows", "tokens", "states on disk"], rows, "The store by split")
