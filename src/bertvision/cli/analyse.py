"""Commands that look closer at what was made: analyse, report."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.cli.options import Result, add_set, int_list, numbers
from bertvision.core.errors import BadInput

FITS = ("layers", "depth", "learning-curve")

USED = {
    "pair": ("agreement",),
    "head": ("depth", "learning-curve"),
    "shares": ("learning-curve",),
    "beside": ("learning-curve", "agreement"),
    "seeds": FITS,
    "set": FITS,
}
"""By option the analyses that look at it."""

OF_DEPTH = ("seeds", "set")
"""What --depth SPEC takes too."""

TOLD, WIDEST = 2, 160
"""Examples of a sort that a terminal shows, and letters of one text of them."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse what does not apply, in a line."""
    given = [name for name in USED if getattr(options, name)]
    if options.folder is None:
        raise BadInput("analyse needs RUN, a folder that run or fit made; only --list goes without")
    if options.depth is None and options.within is not None:
        raise BadInput("--within goes with --depth SPEC")
    if options.ablation or options.depth is not None:
        way, takes = ("--ablation", ()) if options.ablation else ("--depth SPEC", OF_DEPTH)
        for name in (*(["what"] if options.what else []), *given):
            if name not in takes:
                raise BadInput(f"--{name} does not go with {way}, which makes one analysis only; leave one of them out")
    else:
        _check_used(given, options.what)


def _check_used(given: Iterable[str], what: Iterable[str] | None) -> None:
    from bertvision.evaluation.analyses.catalogue import ANALYSES
    from bertvision.workflows.analyse import selected_analyses

    wanted = selected_analyses(what)
    if any(name not in ANALYSES for name in wanted):
        return  # which is refused with the name that was meant
    for name in given:
        if not set(USED[name]) & set(wanted):
            raise BadInput(f"--{name} is for {', '.join(USED[name])}; add --what {USED[name][0]}, or leave it out")


def add_commands(commands: Any) -> None:
    analyse = commands.add_parser("analyse", help="why scores are what they are: tables and pictures of a run")
    analyse.add_argument("folder", nargs="?", metavar="RUN", help="a folder that run or fit made")
    analyse.add_argument(
        "--what", action="extend", nargs="+", metavar="NAME", help="only these, or all; default: all that are quick"
    )
    analyse.add_argument("--list", action="store_true", help="only tell which analyses there are")
    analyse.add_argument("--pair", nargs=2, metavar=("A", "B"), help="agreement: these two rows, NAME or NAME@SEED")
    analyse.add_argument(
        "--head", metavar="SPEC", help="what depth and learning-curve fit; default: best head on inner"
    )
    analyse.add_argument("--shares", type=numbers, metavar="0.1,0.3,1", help="learning-curve: of the training data")
    analyse.add_argument(
        "--beside",
        nargs="+",
        default=[],
        metavar="RUN",
        help="learning-curve: runs on --limit data; --pair: where B is",
    )
    instead = analyse.add_mutually_exclusive_group()
    instead.add_argument("--depth", metavar="SPEC", help="only depth: the head to fit over states 0..k for every k")
    instead.add_argument("--ablation", action="store_true", help="only adapters: off for every span of layers")
    analyse.add_argument("--within", type=float, metavar="X", help="save a model cut where inner is this close to best")
    analyse.add_argument("--seeds", type=int_list, metavar="0,1,2", help="one fit each; default 0")
    add_set(analyse)

    report = commands.add_parser("report", help="write a run, or several, as one HTML file")
    report.add_argument("folders", nargs="+", metavar="RUN", help="folders that run or fit made")
    report.add_argument("--to", metavar="FILE", help="where to; default RUN/report.html, needed for several runs")


def analyse_command(options: argparse.Namespace) -> Result:
    if options.list:
        return _listed()
    check_options(options)
    options.seeds = options.seeds or (0,)
    if options.ablation or options.depth is not None:
        return _documented(options)
    from bertvision.workflows.analyse import run_analyses
    from bertvision.workflows.conclude import update_report

    work = _study(options)
    made, missing = run_analyses(work, options.what)
    if missing and not made:
        raise BadInput("; ".join(f"{name} {why}" for name, why in missing.items()))
    report = update_report(work.folder)
    document = {
        "run": str(work.folder),
        "findings": {finding.name: finding.document() for finding in made},
        "missing": missing,
        "report": str(report),
    }
    parts = []
    for finding in made:
        table = _table(finding.columns, finding.rows)
        parts.append("\n".join([finding.title, table, *_examples(finding.examples)]))
    parts += [f"{name}: {why}" for name, why in missing.items()]
    return document, "\n\n".join([*parts, f"{work.folder / 'analysis'}, {report}"])


def _study(options: argparse.Namespace) -> Any:
    from bertvision.core.config import override, read_run_recipe
    from bertvision.workflows.refit_analyses import SHARES, AnalysisRequest

    folder = Path(options.folder)
    return AnalysisRequest(
        folder=folder,
        head=options.depth if options.depth is not None else options.head or None,
        seeds=options.seeds,
        config=override(read_run_recipe(folder), options.set).fit,
        shares=options.shares or SHARES,
        beside=[Path(folder) for folder in options.beside],
        pair=options.pair,
        within=options.within,
    )


def _listed() -> Result:
    from bertvision.evaluation.analyses.catalogue import ANALYSES

    rows = [{"name": name, "needs": needs, "about": about} for name, (needs, about) in ANALYSES.items()]
    text = "\n".join(f"{row['name']:16} {row['needs']:8} {row['about']}" for row in rows)
    return {"analyses": rows}, text


def _examples(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first few of each sort, of the first pair that has any; the report shows more, with their contexts."""
    from bertvision.report.analyses import DISAGREEMENTS

    first = [case for case in cases if (case["a"], case["b"]) == (cases[0]["a"], cases[0]["b"])]
    shown = [(title, [case for case in first if case["sort"] == sort]) for sort, title in DISAGREEMENTS.items()]
    return [line for title, alike in shown for case in alike[:TOLD] for line in _example(title, case)]


def _example(title: str, case: Mapping[str, Any]) -> list[str]:
    from bertvision.evaluation.analyses.answers import told
    from bertvision.report.analyses import format_gold
    from bertvision.report.markup import cut, printable

    pair = [("    beside", case["pair"])] if case["pair"] and "spans" not in case else []
    said = [(case[side], told(case[f"{side}_said"])) for side in "ab"]
    lines = [(f"  {title}", case["text"]), *pair, ("    gold", format_gold(case)), *((f"    {a}", b) for a, b in said)]
    return [f"{name}: {cut(' '.join(printable(str(text)).split()), WIDEST)}" for name, text in lines]


def _table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    from bertvision.core.records import align_columns

    told = [[_cell(row.get(key)) for key in columns] for row in rows]
    return "\n".join(align_columns([list(columns.values()), *told]))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _documented(options: argparse.Namespace) -> Result:
    """``--depth SPEC`` or ``--ablation``: the document itself; of a run with a leaderboard also in its report."""
    from bertvision.workflows.conclude import update_report
    from bertvision.workflows.file_analyses import save_findings
    from bertvision.workflows.refit_analyses import NO_ADAPTERS, document_and_finding

    name, to_lines = ("ablation", _ablation_lines) if options.ablation else ("depth", _depth_lines)
    work = _study(options)
    document, finding = document_and_finding(work, name)
    if document is None:
        raise BadInput(NO_ADAPTERS.format(work.folder / "encoder"))
    files = [str(work.folder / name / f"{name}.svg")]
    if finding is not None:
        save_findings(work.folder, work.run, [finding])
        files.append(str(update_report(work.folder)))
    return document, "\n".join([*to_lines(document), ", ".join(files)])


def _ablation_lines(document: Mapping[str, Any]) -> list[str]:
    """Rows are the first layer without adapters, columns the last."""
    layers = range(1, document["layers"] + 1)
    lost = {(row["first"], row["last"]): row["decrease"] for row in document["rows"]}
    lines = ["first\\last" + "".join(f"{last:>8}" for last in layers)]
    for first in layers:
        cells = (f"{lost[first, last]:>8.1f}" if (first, last) in lost else " " * 8 for last in layers)
        lines.append(f"{first:>10}" + "".join(cells))
    lines.append(f"% of {document['metric']} {document['score']:.2f} lost without these layers' adapters")
    return lines


def _depth_lines(document: Mapping[str, Any]) -> list[str]:
    from bertvision.core.records import align_columns

    metric = document["metric"]
    cells = [[str(row["depth"]), f"{row['dev']:.2f}", f"{row['inner']:.2f}"] for row in document["rows"]]
    lines = align_columns([["layers", f"dev {metric}", f"inner {metric}"], *cells])
    if document["chosen"] is not None:
        cut = document["cut"]
        lines.append(
            f"{document['chosen']} of {cut['of']} layers are within {document['within']:g} of the best on inner: "
            f"{cut['model']} takes {cut['time_ratio']:.2f} of the time"
        )
    return lines


def report_command(options: argparse.Namespace) -> Result:
    from bertvision.workflows.analyse import add_missing_analyses
    from bertvision.workflows.conclude import update_report, write_joint_report

    folders = [Path(folder) for folder in options.folders]
    if len(folders) == 1 and options.to is None:
        add_missing_analyses(folders[0])
        path = update_report(folders[0])
    elif options.to is None:
        raise BadInput("several runs in one report need --to FILE.html")
    else:
        path = write_joint_report(folders, Path(options.to))
    return {"report": str(path)}, str(path)
