"""Commands that explain the scores of a run: analyse, report."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.cli.options import Result, add_command, add_set, float_list, int_list
from bertvision.core.errors import BadInput

REFIT_ANALYSES = ("layers", "depth", "learning-curve")

OPTION_USERS = {
    "pair": ("agreement",),
    "head": ("depth", "learning-curve"),
    "shares": ("learning-curve",),
    "beside": ("learning-curve", "agreement"),
    "seeds": REFIT_ANALYSES,
    "set": REFIT_ANALYSES,
}
"""The analyses that use each option."""

DEPTH_OPTIONS = ("seeds", "set")
"""Options that may be combined with --depth SPEC."""

MAX_EXAMPLES, MAX_CHARACTERS = 2, 160
"""Examples printed per category, and characters printed of each text."""

MAX_DOUBTS = 20
"""Likely label errors printed."""


def check_options(options: argparse.Namespace) -> None:
    """Reject missing options, and options that have no effect on the selected analyses."""
    if options.folder is None:
        raise BadInput("analyse needs RUN, a folder created by run or fit; only --list works without it")
    if options.depth is None and options.within is not None:
        raise BadInput("--within needs --depth SPEC")
    given = [name for name in OPTION_USERS if getattr(options, name)]
    if options.ablation or options.depth is not None:
        flag, allowed = ("--ablation", ()) if options.ablation else ("--depth SPEC", DEPTH_OPTIONS)
        for name in (*(["what"] if options.what else []), *given):
            if name not in allowed:
                raise BadInput(
                    f"--{name} cannot be combined with {flag}, which runs one analysis; leave one of them out"
                )
    else:
        _check_options_are_used(given, options.what)


def _check_options_are_used(given: Iterable[str], what: Iterable[str] | None) -> None:
    from bertvision.evaluation.analyses.catalogue import ANALYSES
    from bertvision.workflows.analyse import selected_analyses

    selected = selected_analyses(what)
    if any(name not in ANALYSES for name in selected):
        return  # a misspelt name, which is reported later with the closest match
    for name in given:
        users = OPTION_USERS[name]
        if not set(users) & set(selected):
            raise BadInput(f"--{name} applies to {', '.join(users)}; add --what {users[0]}, or leave it out")


def add_commands(subparsers: Any) -> None:
    analyse = add_command(
        subparsers,
        "analyse",
        "explain a run's scores with tables and charts, which are added to its report",
        "--list",
        "runs/reviews",
        "runs/reviews --what learning-curve --shares 0.1,0.3,1 --seeds 0,1,2",
        "runs/reviews --pair compress:size=64 encoder",
    )
    analyse.add_argument("folder", nargs="?", metavar="RUN", help="run folder created by `bertvision run` or `fit`")
    analyse.add_argument(
        "--what",
        action="extend",
        nargs="+",
        metavar="NAME",
        help="analyses to run, or all (default: those that need no training)",
    )
    analyse.add_argument("--list", action="store_true", help="list all analyses and exit")
    analyse.add_argument(
        "--pair", nargs=2, metavar=("A", "B"), help="agreement: two leaderboard rows to compare, NAME or NAME@SEED"
    )
    analyse.add_argument(
        "--head", metavar="SPEC", help="depth and learning-curve: head to train (default: best head on inner)"
    )
    analyse.add_argument(
        "--shares",
        type=float_list,
        metavar="0.1,0.3,1",
        help="learning-curve: fractions of the training data to train on (default: 0.1,0.3,1)",
    )
    analyse.add_argument(
        "--beside",
        nargs="+",
        default=[],
        metavar="RUN",
        help="other runs to compare with this one; with --pair A B: the run that contains row B; with --what "
        "learning-curve: runs made with --limit, whose encoders were tuned on less data",
    )
    instead = analyse.add_mutually_exclusive_group()
    instead.add_argument(
        "--depth", metavar="SPEC", help="run this analysis alone: train the head on layers 0 to k, for each k"
    )
    instead.add_argument(
        "--ablation",
        action="store_true",
        help="run this analysis alone: remove the adapters of each contiguous span of layers in turn and score the "
        "encoder",
    )
    analyse.add_argument(
        "--within",
        type=float,
        metavar="X",
        help="with --depth: save a model truncated to the fewest layers that score within X points of the best on "
        "inner",
    )
    analyse.add_argument(
        "--seeds",
        type=int_list,
        metavar="0,1,2",
        help="random seeds for the heads that these analyses train (default: 0)",
    )
    add_set(analyse)

    report = add_command(
        subparsers,
        "report",
        "write an HTML report on one or more runs",
        "runs/reviews",
        "runs/reviews runs/longer --to both.html",
    )
    report.add_argument("folders", nargs="+", metavar="RUN", help="run folders created by `bertvision run` or `fit`")
    report.add_argument(
        "--to", metavar="FILE", help="output file (default: RUN/report.html; required for several runs)"
    )


def analyse_command(options: argparse.Namespace) -> Result:
    if options.list:
        return _list_analyses()
    check_options(options)
    options.seeds = options.seeds or (0,)
    if options.ablation or options.depth is not None:
        return _single_analysis(options)
    from bertvision.workflows.analyse import run_analyses
    from bertvision.workflows.conclude import update_report

    request = _analysis_request(options)
    made, missing = run_analyses(request, options.what)
    if missing and not made:
        raise BadInput("; ".join(f"{name} {why}" for name, why in missing.items()))
    report = update_report(request.folder)
    document = {
        "run": str(request.folder),
        "findings": {finding.name: finding.document() for finding in made},
        "missing": missing,
        "report": str(report),
    }
    parts = []
    for finding in made:
        parts.append("\n".join([finding.title, *_format_rows(finding), *_format_examples(finding.examples)]))
    parts += [f"{name}: {why}" for name, why in missing.items()]
    return document, "\n\n".join([*parts, f"{request.folder / 'analysis'}, {report}"])


def _analysis_request(options: argparse.Namespace) -> Any:
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


def _list_analyses() -> Result:
    from bertvision.evaluation.analyses.catalogue import ANALYSES

    rows = [{"name": name, "needs": needs, "about": about} for name, (needs, about) in ANALYSES.items()]
    text = "\n".join(f"{row['name']:16} {row['needs']:8} {row['about']}" for row in rows)
    return {"analyses": rows}, text


def _format_rows(finding: Any) -> list[str]:
    """The table of a finding; of likely label errors, which may be a thousand, the first ones."""
    from bertvision.core.text_table import align_columns
    from bertvision.evaluation.analyses import label_errors

    rows = finding.rows[:MAX_DOUBTS] if finding.name == label_errors.NAME else finding.rows
    cells = [[_format_cell(row.get(key)) for key in finding.columns] for row in rows]
    lines = align_columns([list(finding.columns.values()), *cells])
    left = len(finding.rows) - len(rows)
    return [*lines, f"{left:,} more in analysis/{finding.name}.json"] if left else lines


def _format_examples(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first examples of each category, for the first pair of rows; the report shows more, with contexts."""
    from bertvision.report.analyses import DISAGREEMENTS

    first = [case for case in cases if (case["a"], case["b"]) == (cases[0]["a"], cases[0]["b"])]
    lines: list[str] = []
    for sort, title in DISAGREEMENTS.items():
        for case in [case for case in first if case["sort"] == sort][:MAX_EXAMPLES]:
            lines += _format_example(title, case)
    return lines


def _format_example(title: str, case: Mapping[str, Any]) -> list[str]:
    from bertvision.evaluation.analyses.answers import format_answer
    from bertvision.report.analyses import format_gold

    lines = [(f"  {title}", case["text"])]
    if case["pair"] and "spans" not in case:
        lines.append(("    pair", case["pair"]))
    lines.append(("    gold", format_gold(case)))
    lines += [(f"    {case[side]}", format_answer(case[f"{side}_said"])) for side in "ab"]
    return [f"{name}: {_one_line(str(text))}" for name, text in lines]


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else _one_line(str(value))


def _one_line(text: str) -> str:
    from bertvision.report.markup import printable, truncate

    return truncate(" ".join(printable(text).split()), MAX_CHARACTERS)


def _single_analysis(options: argparse.Namespace) -> Result:
    """``--depth SPEC`` or ``--ablation``; the result also goes into the report if the run has a leaderboard."""
    from bertvision.workflows.conclude import update_report
    from bertvision.workflows.file_analyses import save_findings
    from bertvision.workflows.refit_analyses import NO_ADAPTERS, document_and_finding

    name, format_lines = ("ablation", _format_ablation) if options.ablation else ("depth", _format_depth)
    request = _analysis_request(options)
    document, finding = document_and_finding(request, name)
    if document is None:
        raise BadInput(NO_ADAPTERS.format(request.folder / "encoder"))
    files = [str(request.folder / name / f"{name}.svg")]
    if finding is not None:
        save_findings(request.folder, request.run, [finding])
        files.append(str(update_report(request.folder)))
    return document, "\n".join([*format_lines(document), ", ".join(files)])


def _format_ablation(document: Mapping[str, Any]) -> list[str]:
    """A matrix of the score lost; rows are the first layer whose adapters are removed, columns the last."""
    layers = range(1, document["layers"] + 1)
    lost = {(row["first"], row["last"]): row["decrease"] for row in document["rows"]}
    lines = ["first\\last" + "".join(f"{last:>8}" for last in layers)]
    for first in layers:
        cells = (f"{lost[first, last]:>8.1f}" if (first, last) in lost else " " * 8 for last in layers)
        lines.append(f"{first:>10}" + "".join(cells))
    lines.append(f"% of {document['metric']} {document['score']:.2f} lost without the adapters of these layers")
    return lines


def _format_depth(document: Mapping[str, Any]) -> list[str]:
    from bertvision.core.text_table import align_columns

    metric = document["metric"]
    cells = [[str(row["depth"]), f"{row['dev']:.2f}", f"{row['inner']:.2f}"] for row in document["rows"]]
    lines = align_columns([["layers", f"dev {metric}", f"inner {metric}"], *cells])
    if document["chosen"] is not None:
        truncated = document["cut"]
        lines.append(
            f"{document['chosen']} of {truncated['of']} layers score within {document['within']:g} of the best on "
            f"inner: {truncated['model']} takes {truncated['time_ratio']:.2f} of the time"
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
        raise BadInput("a report of several runs needs --to FILE.html")
    else:
        path = write_joint_report(folders, Path(options.to))
    return {"report": str(path)}, str(path)
