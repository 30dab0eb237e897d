"""``bertvision run``: from text to a scored, saved and reported model; finished steps are skipped.

The run folder: recipe.toml log.jsonl encoder/ store/ heads/<spec>/seed0/ predictions/
leaderboard.json report.html model/.
"""

from __future__ import annotations

from pathlib import Path

from bertvision.core.config import Recipe
from bertvision.core.run_log import RunLog
from bertvision.runs.prepare import fit_into, prepare_run
from bertvision.workflows.conclude import RunResult, conclude


def run(recipe: Recipe, out: str | Path) -> RunResult:
    """Tune, extract, fit, predict, ensemble, evaluate, report and save, skipping finished steps."""
    folder = Path(out)
    prepared = prepare_run(recipe, folder, ["control", *recipe.heads])
    task, states = prepared.task, prepared.states
    fitted = fit_into(folder, states, prepared.heads, recipe.seeds, recipe.fit, task)
    result = conclude(folder, fitted, states, task, prefer=recipe.prefer, encoder=prepared.encoder)
    RunLog(folder).write("run", advice=result.advice)
    return result
