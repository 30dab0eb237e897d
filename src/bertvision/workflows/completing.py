"""What a report can add to a run by itself: analyses that one pass over the stored states of dev gives."""

from __future__ import annotations

from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.runtime import say
from bertvision.evaluation.analyses.catalogue import STATES
from bertvision.report.unmade import unmade
from bertvision.runs.reader import best_tuning
from bertvision.training.live_states import is_live
from bertvision.workflows.analyse import study
from bertvision.workflows.conclude import run_place
from bertvision.workflows.refit_analyses import Study


def complete(folder: Path) -> None:
    """Make those that this leaderboard lacks.

    A live run has no stored states, and those of another may be damaged or gone; a report comes out nevertheless, and
    lists what it lacks.
    """
    if best_tuning(folder) is not None:  # a search over tunings, which has no leaderboard to complete
        return
    work = Study(folder)
    names = [one.name for one in unmade(work.run) if one.needs == STATES]
    if not names:
        return
    told = ", ".join(names)
    try:
        if not is_live(run_place(folder)):
            say(f"report: making {told} from the stored states")
            study(work, names)
    except (BadInput, OSError) as error:
        say(f"report: not all of {told} could be made: {error}")
