"""The report of a search over tuning settings, which has no leaderboard of its own."""

from __future__ import annotations

from pathlib import Path

from bertvision.core.files import read_json_or_empty
from bertvision.report.analyses import analyses_section
from bertvision.report.markup import format_number
from bertvision.report.page import render_page, write_html
from bertvision.report.render import render
from bertvision.runs.folder import SEARCH_RESULT, store_folder
from bertvision.runs.reader import TRIAL_FINDINGS, data_origin, read_findings, store_origin
from bertvision.store.store import MANIFEST


def write_search_page(folder: Path, best: Path) -> Path:
    """Write ``report.html`` into the folder of the search; ``best`` is the run of its best setting."""
    results, manifest = read_json_or_empty(folder / SEARCH_RESULT), read_json_or_empty(store_folder(best) / MANIFEST)
    # Findings on the tunings, and on the head search in the best one.
    tunings = read_findings(folder, lambda _: data_origin(manifest))
    trials = read_findings(best, lambda _: store_origin(manifest))
    analyses = analyses_section([*tunings, *(finding for finding in trials if finding.name.startswith(TRIAL_FINDINGS))])
    title, winner, metric = f"{results['task']}: search over tuning settings", results["winner"], results["metric"]
    settings = ", ".join(f"{key} {value}" for key, value in results["tuning"].items())
    scores = f"inner {metric} {format_number(winner['inner'])}, dev {metric} {format_number(winner['dev'])}"
    pairs = [
        ("task", results["task"]),
        ("best setting on inner", f"{settings} (of {len(results['tunings'])} tried)"),
        ("run", str(best)),
        ("best head", f"{winner['spec']}: {scores}"),
    ]
    header = render("search", title=title, pairs=pairs, command=results["command"])
    return write_html(render_page(title, header, [] if analyses is None else [analyses]), folder / "report.html")
