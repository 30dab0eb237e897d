"""What a recipe would take before it is run: data, hours and bytes, from a formula and stated assumptions.

Hours: windows x tokens x (epochs / rate), the rate being tokens tuned a second; a pass without gradient
takes 1 / 3.2 of a tuned one. Bytes of a store: windows x tokens x states x width x 2; of a checkpoint 4 x (12 layers
x width^2 + 30,522 x width).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertvision.core.config import FitConfig
from bertvision.core.records import CONTROL, aligned
from bertvision.heads.base import canonical_spec
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.workflows.reproduce.row_sources import heads_by_run
from bertvision.workflows.reproduce.specs import DataSet, Item, Line, Shared, Source, file_names

PASS = 1 / 3.2
"""Of a tuned token's time: reading it only."""

F16, F32 = 2, 4

VOCABULARY = 30_522

ONE = ("cls", "mean")
"""Kinds of store that keep one vector a text."""

READ = 500e6
"""Bytes a second: a plain solid-state disk."""


@dataclass(frozen=True)
class Job:
    """One thing that is made once, whoever asks for it."""

    name: str
    data: str
    windows: int
    tokens: int
    hours: float
    bytes: int


def plan(items: Sequence[Item], shared: Shared) -> dict[str, Any]:
    """All jobs of some items, each once; shared hours are of those that several items need."""
    needs = {item.name: {job.name: job for line in item.lines for job in jobs_of(line, shared)} for item in items}
    jobs = list({name: job for found in needs.values() for name, job in found.items()}.values())
    users = Counter(name for found in needs.values() for name in found)
    needed = {name: shared.data[name] for name in dict.fromkeys(job.data for job in jobs)}
    return {
        "scale": shared.scale,
        "items": [item.name for item in items],
        "assumed": {"tokens_tuned_per_second": dict(shared.rates), "pass": PASS, "bytes_per_value": F16},
        "data": {name: _told_data(one) for name, one in needed.items()},
        "jobs": [asdict(job) for job in jobs],
        "hours": sum(job.hours for job in jobs),
        "shared_hours": sum(job.hours for job in jobs if users[job.name] > 1),
        "bytes": sum(job.bytes for job in jobs),
    }


def _told_data(data: DataSet) -> dict[str, Any]:
    files = [name for names in file_names(data).values() for name in names]
    return {"about": data.about, "url": data.url, "files": list(dict.fromkeys(files))}


def data_of(item: Item, shared: Shared) -> list[str]:
    """What an item's rows are learned from and judged on, by name; nothing where parameters are counted."""
    found = [str(line.data or source.data) for line in item.lines for source in sources_of(line, shared)]
    return list(dict.fromkeys(found))


def sources_of(line: Line, shared: Shared) -> list[Source]:
    """The run, curve or tuning that a row names."""
    named = {"run": line.run, "curve": line.curve, "tune": line.tune}
    return [shared.sources[f"{kind}:{name}"] for kind, name in named.items() if name is not None]


def jobs_of(line: Line, shared: Shared) -> Iterator[Job]:
    """What a row needs, its encoder first; nothing if it is for another scale."""
    if line.only not in (None, shared.scale):
        return
    for source in sources_of(line, shared):
        yield from _source_jobs(shared, source, line.data, line.method, line.head)
        if line.limited:
            yield _limited_job(line, source, shared)


def _limited_job(line: Line, source: Source, shared: Shared) -> Job:
    """The encoder tuned on a share, and its states."""
    chosen, share = shared.data[line.data or str(source.data)], float(line.share or 1.0)
    others, (layers, width) = chosen.windows - chosen.learned, shared.shapes[base_of(shared, source)]
    learned, epochs = share * chosen.learned, float(source.encoder.partition("@")[2])
    work = learned * epochs + PASS * (learned + others)
    hours = work * chosen.tokens / shared.rates[base_of(shared, source)] / 3600
    windows = round(learned) + others
    size = windows * chosen.tokens * (layers + 1) * width * F16
    return Job(f"limited {source.name} {share:g}", chosen.name, windows, chosen.tokens, hours, size)


def _source_jobs(shared: Shared, source: Source, data: str | None, method: str, head: str | None) -> Iterator[Job]:
    chosen = shared.data[data or str(source.data)]
    if not source.there:
        return
    for below in list(chain_below(shared, source))[1:2]:
        yield from _source_jobs(shared, below, None if below.data else data, "full", None)
    parts = [source.kind, source.name, *([data] if data else [])]
    name = " ".join([*parts, *([method, head or ""] if source.kind == "tune" else [])]).strip()
    base = base_of(shared, source)
    others = chosen.windows - chosen.learned
    read = chosen.windows if source.kind == "run" else others * max(1, len(source.at))
    tuned = chosen.learned * _epochs(source, chosen, method) + PASS * read
    layers, width = shared.shapes[base]
    states = state_bytes(chosen.windows, chosen.tokens, source, (layers, width)) if source.kind == "run" else 0
    kept_encoders = len(source.at) if source.at else int(source.kind == "tune" and method == "full")
    size = states + kept_encoders * F32 * (12 * layers * width**2 + VOCABULARY * width)
    hours = tuned * chosen.tokens / shared.rates[base] / 3600
    yield Job(name, chosen.name, chosen.windows, chosen.tokens, hours, size)


def state_bytes(windows: int, tokens: int, source: Source, shape: tuple[int, int]) -> int:
    """Of all states of these windows, as a run keeps them."""
    kept = 1 if source.extract.get("tokens") in ONE else tokens
    return windows * kept * (shape[0] + 1) * shape[1] * F16


def chain_below(shared: Shared, source: Source) -> Iterator[Source]:
    """A source, what its encoder was tuned by, and so on down to an encoder of the scale."""
    yield source
    while source.encoder not in shared.encoders:
        curve, at, _ = source.encoder.partition("@")
        source = shared.sources[f"{'curve' if at else 'tune'}:{curve}"]
        yield source


def base_of(shared: Shared, source: Source) -> str:
    """The encoder that everything below a source begins with, by its name in the scale."""
    return list(chain_below(shared, source))[-1].encoder


def _epochs(source: Source, data: DataSet, method: str) -> float:
    """Epochs of tuning: of the curve to its end, else as set, by the source or by what task and method bring."""
    if source.at:
        return max(source.at)
    brought: Mapping[str, Any] = recipe_defaults(data.task, method).get("tune", {})
    return float(source.tune.get("epochs", brought.get("epochs", 1.0)))


def plan_text(document: Mapping[str, Any]) -> str:
    """The plan as a table."""
    cells = [["what", "data", "windows", "tokens each", "hours", "GB"]]
    for job in document["jobs"]:
        size = f"{job['bytes'] / 1e9:,.1f}" if job["bytes"] else ""
        told = [job["name"], job["data"], f"{job['windows']:,}", str(job["tokens"]), f"{job['hours']:.3f}", size]
        cells.append(told)
    cells.append(["all", "", "", "", f"{document['hours']:.1f}", f"{document['bytes'] / 1e9:,.1f}"])
    shared = f"{document['shared_hours']:.1f}"
    cells.append(["of which for several tables or figures", "", "", "", shared, ""])
    needs = [
        f"data {name}: {one['about']}: {', '.join(one['files']).replace('|', ' or ')} {one['url']}".rstrip()
        for name, one in document["data"].items()
    ]
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in document["assumed"]["tokens_tuned_per_second"].items())
    assumed = f"assumed: tokens tuned a second: {rates}; a pass alone takes 1/3.2 of that; states in f16"
    return "\n".join([*aligned(cells), *needs, assumed])


@dataclass(frozen=True)
class HeadJob:
    """The heads of one run."""

    run: str
    fits: int  # heads x seeds
    epochs: int
    bytes: int  # read an epoch
    hours: float


def with_heads(document: Mapping[str, Any], items: Sequence[Item], shared: Shared) -> dict[str, Any]:
    """A plan with what its heads take."""
    jobs = head_jobs(items, shared)
    assumed = {**document["assumed"], "bytes_read_per_second": READ}
    told = {"heads": [asdict(job) for job in jobs], "reading_hours": sum(job.hours for job in jobs)}
    return {**document, "assumed": assumed, **told}


def head_text(document: Mapping[str, Any]) -> str:
    """The heads of a plan in one line."""
    fits, hours = sum(job["fits"] for job in document["heads"]), document["reading_hours"]
    reading = f"reading their states once an epoch, all heads of a run together, {hours:.1f} hours more"
    return f"heads: {fits:,} fits; {reading} at {READ / 1e6:.0f} MB a second; what they compute is not counted"


def head_jobs(items: Sequence[Item], shared: Shared) -> list[HeadJob]:
    """A job a run that is there at this scale, the control among its heads."""
    wanted = heads_by_run([line for item in items for line in shared.lines_of(item)])
    return [_job(label, specs, shared) for label, specs in wanted.items() if _source(label, shared).there]


def _source(label: str, shared: Shared) -> Source:
    return shared.sources[f"run:{label.partition('/')[0]}"]


def _job(label: str, specs: Sequence[str], shared: Shared) -> HeadJob:
    source, data = _source(label, shared), label.partition("/")[2]
    chosen = shared.data[data or str(source.data)]
    brought = recipe_defaults(chosen.task).get("fit", {}).get("epochs", FitConfig().epochs)
    epochs = int(str(source.fit.get("epochs", brought)))
    size = state_bytes(chosen.learned, chosen.tokens, source, shared.shapes[base_of(shared, source)])
    heads = dict.fromkeys([canonical_spec(CONTROL), *specs])
    fits = sum(len(shared.seeds_of(spec)) for spec in heads)
    return HeadJob(label.rstrip("/"), fits, epochs, size, epochs * size / READ / 3600)
