"""A search over tunings as a page of its own: it has no leaderboard, and its stores are those of the tunings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertvision.core.files import atomic_open, read_json_or_empty
from bertvision.evaluation.analyses.result import Finding
from bertvision.report.analyses import analyses_section
from bertvision.report.markup import Html, facts, number, tag
from bertvision.report.page import document
from bertvision.runs.folder import SEARCHED, store_place
from bertvision.runs.reader import OF_TRIALS, data_origin, findings_of, store_origin
from bertvision.store.store import MANIFEST


def write_searched(folder: Path, best: Path) -> Path:
    """Write ``report.html`` into the folder of a search over tunings, of which ``best`` is the best one's run."""
    found, path = read_json_or_empty(folder / SEARCHED), folder / "report.html"
    shown = analyses_section(_findings(folder, best))
    page = document(f"{found['task']}: tunings", [_header(found, best)], [] if shown is None else [shown])
    with atomic_open(path) as file:
        file.write(page)
    return path


def _findings(folder: Path, best: Path) -> list[Finding]:
    """How the tunings went, and how the trials on the best one did."""
    manifest = read_json_or_empty(store_place(best) / MANIFEST)
    inner = [one for one in findings_of(best, lambda _: store_origin(manifest)) if one.name.startswith(OF_TRIALS)]
    return [*findings_of(folder, lambda _: data_origin(manifest)), *inner]


def _header(found: Mapping[str, Any], best: Path) -> Html:
    winner, metric = found["winner"], found["metric"]
    settings = ", ".join(f"{key} {value}" for key, value in found["tuning"].items())
    scores = f"inner {metric} {number(winner['inner'])}, dev {metric} {number(winner['dev'])}"
    pairs: list[tuple[object, object]] = [
        ("task", found["task"]),
        ("best tuning on inner", f"{settings}; of {len(found['tunings'])}"),
        ("its run", str(best)),
        ("best head there", f"{winner['spec']}: {scores}"),
        ("to fit it", tag("code", found["command"])),
    ]
    over = tag("p", "BERTVision report", class_="over")
    return tag("header", over, tag("h1", f"{found['task']}: tunings"), facts(pairs, class_="facts"))
