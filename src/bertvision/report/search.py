"""A search over tunings as a page of its own: it has no leaderboard, and its stores are those of the tunings."""

from __future__ import annotations

from pathlib import Path

from bertvision.core.files import read_json_or_empty
from bertvision.report.analyses import analyses_section
from bertvision.report.markup import number
from bertvision.report.page import document, write_document
from bertvision.report.render import render
from bertvision.runs.folder import SEARCH_RESULT, store_folder
from bertvision.runs.reader import TRIAL_FINDINGS, data_origin, read_findings, store_origin
from bertvision.store.store import MANIFEST


def write_search_page(folder: Path, best: Path) -> Path:
    """Write ``report.html`` into the folder of a search over tunings, of which ``best`` is the best one's run."""
    found, manifest = read_json_or_empty(folder / SEARCH_RESULT), read_json_or_empty(store_folder(best) / MANIFEST)
    # How the tunings went, and how the trials on the best one did.
    tunings = read_findings(folder, lambda _: data_origin(manifest))
    trials = read_findings(best, lambda _: store_origin(manifest))
    analyses = analyses_section([*tunings, *(one for one in trials if one.name.startswith(TRIAL_FINDINGS))])
    title, winner, metric = f"{found['task']}: tunings", found["winner"], found["metric"]
    settings = ", ".join(f"{key} {value}" for key, value in found["tuning"].items())
    scores = f"inner {metric} {number(winner['inner'])}, dev {metric} {number(winner['dev'])}"
    pairs = [
        ("task", found["task"]),
        ("best tuning on inner", f"{settings}; of {len(found['tunings'])}"),
        ("its run", str(best)),
        ("best head there", f"{winner['spec']}: {scores}"),
    ]
    header = render("search", title=title, pairs=pairs, command=found["command"])
    return write_document(document(title, header, [] if analyses is None else [analyses]), folder / "report.html")
