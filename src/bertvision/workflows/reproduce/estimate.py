"""Estimate what recipes take before they are run: data, hours and bytes, from a formula and stated assumptions.

Hours: windows x tokens x epochs / (tokens tuned per second); a forward pass takes 1 / 3.2 of a training step.
Bytes of a store: windows x tokens x states x width x 2. Bytes of a checkpoint: 4 x (12 x layers x width^2 + 30,522 x
width).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertvision.core.text_table import align_columns
from bertvision.heads.info import VOCABULARY
from bertvision.store.codec import state_bytes
from bertvision.workflows.reproduce.defaults import recipe_control, start_settings
from bertvision.workflows.reproduce.specs import Item, RowSpec, Shared, Source, SubsetRow, TunedRow, heads_by_run

FORWARD_PASS = 1 / 3.2
"""Time of a forward pass, relative to a training step."""
WEIGHT_BYTES = 4
"""Bytes of a saved weight."""
SINGLE_VECTOR = ("cls", "mean")
"""Values of ``extract.tokens`` that store one vector per text."""
DISK_BYTES_PER_SECOND = 500e6
"""Bytes per second of an ordinary solid-state disk."""


@dataclass(frozen=True)
class Job:
    """A tuning, curve or run, which is made once for all rows that need it."""

    name: str
    data: str
    windows: int
    tokens: int
    hours: float
    bytes: int


@dataclass(frozen=True)
class HeadJob:
    """The heads of one run."""

    run: str
    fits: int  # heads x seeds
    epochs: int
    bytes: int  # read per epoch
    hours: float


def plan(items: Sequence[Item], shared: Shared) -> dict[str, Any]:
    """All jobs and head fits of some items, each once; shared hours are those of jobs that several items need."""
    jobs: dict[str, Job] = {}
    users: Counter[str] = Counter()
    for item in items:
        needed = {job.name: job for row in item.rows for job in jobs_of(row, shared)}
        jobs |= needed
        users.update(needed.keys())
    data = {}
    for name in dict.fromkeys(job.data for job in jobs.values()):
        files = [file for names in shared.data[name].file_names.values() for file in names]
        data[name] = {
            "about": shared.data[name].about,
            "url": shared.data[name].url,
            "files": list(dict.fromkeys(files)),
        }
    heads = head_jobs(items, shared)
    return {
        "scale": shared.scale,
        "items": [item.name for item in items],
        "assumed": {
            "tokens_tuned_per_second": dict(shared.rates),
            "pass": FORWARD_PASS,
            "bytes_per_value": state_bytes("f16", 1),
            "bytes_read_per_second": DISK_BYTES_PER_SECOND,
        },
        "data": data,
        "jobs": [asdict(job) for job in jobs.values()],
        "hours": sum(job.hours for job in jobs.values()),
        "shared_hours": sum(job.hours for job in jobs.values() if users[job.name] > 1),
        "bytes": sum(job.bytes for job in jobs.values()),
        "heads": [asdict(job) for job in heads],
        "reading_hours": sum(job.hours for job in heads),
    }


def data_of(item: Item, shared: Shared) -> list[str]:
    """Names of the data sets of an item's rows; none if it only counts parameters."""
    return [name for name in dict.fromkeys(map(shared.data_of, item.rows)) if name is not None]


def jobs_of(row: RowSpec, shared: Shared) -> Iterator[Job]:
    """Jobs of a row, its encoder first; none if the row is for another scale."""
    source = shared.source_of(row)
    if source is None or row.only not in (None, shared.scale):
        return
    method, head = (row.method, row.head) if isinstance(row, TunedRow) else ("full", None)
    yield from _source_jobs(shared, source, row.data, method, head)
    if not (isinstance(row, SubsetRow) and row.limited):
        return
    # The encoder tuned on a subset, and its states.
    data, base = shared.data[row.data or str(source.data)], shared.base_encoder(source)
    learned, others = row.share * data.learned, data.windows - data.learned
    epochs, windows = float(source.encoder.partition("@")[2]), round(learned) + others
    hours = _hours(learned * epochs, learned + others, data.tokens, shared.rates[base])
    size = _store_bytes(windows, data.tokens, source, shared.shapes[base])
    yield Job(f"limited {source.name} {row.share:g}", data.name, windows, data.tokens, hours, size)


def _source_jobs(shared: Shared, source: Source, data: str | None, method: str, head: str | None) -> Iterator[Job]:
    if not source.available:
        return
    for below in list(shared.source_chain(source))[1:2]:
        yield from _source_jobs(shared, below, None if below.data else data, "full", None)
    name = [source.kind, source.name, data, *((method, head) if source.kind == "tune" else ())]
    chosen, base = shared.data[data or str(source.data)], shared.base_encoder(source)
    layers, width = shared.shapes[base]
    if source.at:  # a curve ends at its last checkpoint
        epochs = max(source.at)
    else:
        epochs = float(source.tune.get("epochs", start_settings(chosen.task, method)["tune"]["epochs"]))
    dev = chosen.windows - chosen.learned
    read = chosen.windows if source.kind == "run" else dev * max(1, len(source.at))
    hours = _hours(chosen.learned * epochs, read, chosen.tokens, shared.rates[base])
    size = _store_bytes(chosen.windows, chosen.tokens, source, (layers, width)) if source.kind == "run" else 0
    encoders = len(source.at) if source.at else int(source.kind == "tune" and method == "full")
    size += encoders * WEIGHT_BYTES * (12 * layers * width**2 + VOCABULARY * width)
    yield Job(" ".join(part for part in name if part), chosen.name, chosen.windows, chosen.tokens, hours, size)


def _hours(tuned: float, read: float, tokens: int, rate: float) -> float:
    """Hours to tune on some windows (times epochs) and to read some; ``rate`` is in tokens tuned per second."""
    return (tuned + FORWARD_PASS * read) * tokens / rate / 3600


def _store_bytes(windows: int, tokens: int, source: Source, shape: tuple[int, int]) -> int:
    """Size of the states of these windows in a store."""
    layers, width = shape
    kept = 1 if source.extract.get("tokens") in SINGLE_VECTOR else tokens
    return windows * kept * (layers + 1) * state_bytes("f16", width)


def plan_text(document: Mapping[str, Any]) -> str:
    """The plan as a table."""
    cells = [["what", "data", "windows", "tokens each", "hours", "GB"]]
    for job in document["jobs"]:
        size = f"{job['bytes'] / 1e9:,.1f}" if job["bytes"] else ""
        counts = [f"{job['windows']:,}", str(job["tokens"]), f"{job['hours']:.3f}"]
        cells.append([job["name"], job["data"], *counts, size])
    cells.append(["all", "", "", "", f"{document['hours']:.1f}", f"{document['bytes'] / 1e9:,.1f}"])
    cells.append(["of which shared by several tables or figures", "", "", "", f"{document['shared_hours']:.1f}", ""])
    lines = align_columns(cells)
    for name, data in document["data"].items():
        files = ", ".join(data["files"]).replace("|", " or ")
        lines.append(f"data {name}: {data['about']}: {files} {data['url']}".rstrip())
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in document["assumed"]["tokens_tuned_per_second"].items())
    lines.append(f"assumed: tokens tuned per second: {rates}; a forward pass takes 1/3.2 of that time; states in f16")
    fits, hours = sum(job["fits"] for job in document["heads"]), document["reading_hours"]
    speed = f"{DISK_BYTES_PER_SECOND / 1e6:.0f} MB/s"
    reading = f"reading their states once per epoch for all heads of a run takes another {hours:.1f} hours at {speed}"
    lines.append(f"heads: {fits:,} fits; {reading}; their computation is not included")
    return "\n".join(lines)


def head_jobs(items: Sequence[Item], shared: Shared) -> list[HeadJob]:
    """A job per run that is available at this scale; its heads include the control."""
    jobs = []
    for label, specs in heads_by_run([row for item in items for row in shared.rows_of(item)]).items():
        run, _, name = label.partition("/")
        source = shared.sources[f"run:{run}"]
        if not source.available:
            continue
        data = shared.data[name or str(source.data)]
        epochs = int(source.fit.get("epochs", start_settings(data.task)["fit"]["epochs"]))
        size = _store_bytes(data.learned, data.tokens, source, shared.shapes[shared.base_encoder(source)])
        fits = sum(len(shared.seeds_of(spec)) for spec in dict.fromkeys([recipe_control(data.task), *specs]))
        jobs.append(HeadJob(label.rstrip("/"), fits, epochs, size, epochs * size / DISK_BYTES_PER_SECOND / 3600))
    return jobs
