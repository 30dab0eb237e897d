"""What fitting the heads of recipes would take: how many fits there are, and how long their states are read.

Hours: epochs x bytes of the states that are learned from / bytes read a second. All heads of a run share a read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertvision.core.config import FitConfig
from bertvision.core.records import CONTROL
from bertvision.heads.base import canonical_spec
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.workflows.reproduce.estimate import base_of, state_bytes
from bertvision.workflows.reproduce.row_sources import heads_by_run
from bertvision.workflows.reproduce.specs import Item, Shared, Source

READ = 500e6
"""Bytes a second: a plain solid-state disk."""


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
