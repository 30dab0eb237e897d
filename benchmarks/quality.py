"""Is what ``bertvision run`` recommends better than what a user would have written without it?

python benchmarks/quality.py --data FOLDER [--stage NAME ...] [--quick] [--again recommended]

FOLDER has glue/ and crowdflower/. Every method gets the same training rows, chosen by hash, and predicts the same dev.
Each result is kept in --work at once, and what is there is not measured again. Every stage takes less than an hour on
two cores and --quick, with fewer tasks and one draw, less than half an hour in all. At the end of each call all results
so far are written to results/quality.csv, results/quality_comparisons.csv, results/quality.svg and
docs/results/quality.md; with --quick, or with --to FOLDER, all into one folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quality_methods import (
    CONTROL_METHOD,
    EMBEDDINGS,
    LAST_LAYER,
    RECOMMENDED,
    SETFIT,
    LinearMethods,
    MethodFailed,
    Outcome,
    SetFitMethod,
    run_recommended,
)
from quality_page import write_report
from quality_results import Result, Results, package_hash
from quality_statistics import Labels, gold_of, score_of
from quality_tasks import REGIMES, TASKS, LabelledText, QualityTask, Regime

Fit = Callable[[QualityTask, Sequence[LabelledText], Sequence[LabelledText], Path], Mapping[str, Outcome]]

STEPS = {"run": (CONTROL_METHOD, RECOMMENDED), "linear": (EMBEDDINGS, LAST_LAYER), "setfit": (SETFIT,)}
"""What is computed together, and the methods that it gives."""

RIVALS = (EMBEDDINGS, LAST_LAYER, SETFIT)
"""Methods without this package: their predictions are kept in the project, so that they are measured once."""

QUICK_TASKS = ("sst2", "mrpc", "bias", "mnli")


@dataclass(frozen=True)
class Stage:
    """A part of the work that takes less than an hour on two cores."""

    steps: tuple[str, ...]
    regime: Regime
    tasks: tuple[str, ...]
    draws: tuple[int, ...]

    def work(self) -> Iterator[tuple[str, QualityTask, int]]:
        """(step, task, draw) in order."""
        for name in self.tasks:
            for draw in self.draws:
                for step in self.steps:
                    yield step, TASKS[name], draw


def stages() -> dict[str, Stage]:
    """All stages by name, in the order they are done."""
    plain = ("run", "linear")
    groups = {
        group: tuple(task.name for task in TASKS.values() if task.group == group) for group in ("fitted", "held-out")
    }
    single = tuple(task.name for task in TASKS.values() if task.pair is None)
    few, some, many = REGIMES["8"], REGIMES["64"], REGIMES["2000"]
    parts = {"8": Stage(plain, few, tuple(TASKS), _draws(few)), "64": Stage(plain, some, tuple(TASKS), _draws(some))}
    parts |= {f"2000-{group}": Stage(plain, many, tasks, _draws(many)) for group, tasks in groups.items()}
    parts["setfit-8"] = Stage(("setfit",), few, single, _draws(few))
    # Training the encoder takes long, so every draw is a stage.
    return parts | {f"setfit-64-{draw}": Stage(("setfit",), some, single, (draw,)) for draw in _draws(some)}


def quick_stages() -> dict[str, Stage]:
    """One draw of a few tasks; SetFit with the fewest rows only."""
    parts = {name: Stage(("run", "linear"), regime, QUICK_TASKS, (0,)) for name, regime in REGIMES.items()}
    single = tuple(name for name in QUICK_TASKS if TASKS[name].pair is None)
    return parts | {"setfit-8": Stage(("setfit",), REGIMES["8"], single, (0,))}


def _draws(regime: Regime) -> tuple[int, ...]:
    return tuple(range(regime.draws))


class Bench:
    """Measures what is missing in the results."""

    def __init__(self, data: Path, work: Path, fits: Mapping[str, Fit], kept: Path | None = None) -> None:
        self.data, self.work, self.fits = data, work, fits
        self.results = Results(work / "results", kept, self._gold)
        self.package = package_hash()
        self.rows: dict[str, tuple[list[LabelledText], list[LabelledText]]] = {}
        self.failures = 0

    def _read(self, task: QualityTask) -> tuple[list[LabelledText], list[LabelledText]]:
        """The rows to draw from, and dev."""
        if task.name not in self.rows:
            self.rows[task.name] = task.read(self.data)
        return self.rows[task.name]

    def _gold(self, task: str) -> Labels:
        """The labels of the dev of a task."""
        return gold_of(TASKS[task], self._read(TASKS[task])[1])

    def measure(self, stage: Stage) -> None:
        """Do what is missing of a stage; a method that fails is reported and does not stop the others."""
        for step, task, draw in stage.work():
            missing = [
                method for method in STEPS[step] if not self.results.has(task.name, stage.regime.name, draw, method)
            ]
            if step not in self.fits or not missing:
                continue
            where = f"{task.title}, {stage.regime.title}, draw {draw}, {step}"
            self.work.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="scratch-", dir=self.work) as scratch:
                try:
                    scores = self._measure(step, task, stage.regime, draw, Path(scratch))
                except MethodFailed as error:
                    self.failures += 1
                    print(f"{where}: failed: {error}", file=sys.stderr, flush=True)
                    for log in Path(scratch).glob("*.log"):
                        shutil.copy(log, self.work / f"failed.{task.name}.{stage.regime.name}.{draw}.{log.name}")
                else:
                    print(f"{where}: {', '.join(f'{name} {score:.2f}' for name, score in scores.items())}", flush=True)

    def _measure(self, step: str, task: QualityTask, regime: Regime, draw: int, scratch: Path) -> dict[str, float]:
        train, dev = self._read(task)
        drawn = regime.draw(task, train, draw)
        outcomes = self.fits[step](task, drawn, dev, scratch)
        gold, scores = gold_of(task, dev), {}
        for method, outcome in outcomes.items():
            scores[method] = score_of(task, gold, outcome.predicted)
            facts = {
                "score": scores[method],
                "seconds": outcome.seconds,
                "cpu_seconds": outcome.cpu_seconds,
                "rows": len(drawn),
                "model": outcome.model,
                "package": self.package,
            }
            self.results.add(Result(task.name, regime.name, draw, method, gold, outcome.predicted, facts))
        return scores


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    setfit = SetFitMethod(options.setfit_python)
    fits: dict[str, Fit] = {"run": run_recommended, "linear": LinearMethods().fit, "setfit": setfit.fit}
    chosen = quick_stages() if options.quick else stages()
    unknown = sorted(set(options.stage) - set(chosen))
    if unknown:
        print(f"--stage: got {unknown[0]}, expected {', '.join(chosen)}", file=sys.stderr)
        return 2
    chosen = {name: stage for name, stage in chosen.items() if not options.stage or name in options.stage}
    reason = setfit.why_not() if any("setfit" in stage.steps for stage in chosen.values()) else ""
    if reason:
        print(f"SetFit is left out: {reason}", file=sys.stderr)
        del fits["setfit"]
    bench = Bench(options.data, options.work, fits, options.kept)
    for step in options.again:
        for method in STEPS[step]:
            bench.results.drop(method)
    for name, stage in chosen.items():
        print(f"== stage {name}", flush=True)
        tasks = tuple(task for task in stage.tasks if not options.task or task in options.task)
        bench.measure(Stage(stage.steps, stage.regime, tasks, stage.draws))
    to = options.to or (options.work if options.quick else None)
    if options.keep:
        bench.results.keep(RIVALS)
    results = bench.results.read()
    if results:
        write_report(results, to or Path("results"), to or Path("docs/results"))
    return 1 if bench.failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--stage", nargs="+", default=[], help="default: all in order")
    parser.add_argument("--task", nargs="+", default=[], choices=list(TASKS), help="default: all of the stage")
    parser.add_argument("--quick", action="store_true", help="fewer tasks, one draw")
    parser.add_argument("--again", nargs="+", default=[], choices=list(STEPS), help="forget these results first")
    parser.add_argument("--work", type=Path, default=Path("runs/quality"))
    parser.add_argument(
        "--kept", type=Path, default=Path("results/quality"), help="folder with the rivals' predictions"
    )
    parser.add_argument("--keep", action="store_true", help="copy the rivals' predictions there")
    parser.add_argument("--to", type=Path, help="folder for tables, picture and page")
    parser.add_argument("--setfit-python", type=Path, default=Path(".venv/setfit/bin/python"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
