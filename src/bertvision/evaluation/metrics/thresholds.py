"""When to say nothing: a threshold that holds on questions it was not fitted on.

The threshold that is best on a few hundred questions follows their luck: it lies wherever the sum of
what answering gains happens to peak. A curve with two parameters through all of them follows it less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.metrics.calibration import LARGEST_NO_ANSWER_SCORE
from bertvision.evaluation.metrics.squad import best_threshold

Floats = NDArray[np.float64]

STEPS, LONGEST, RIDGE, STILL = 100, 2.0, 1e-3, 1e-9


def fit_no_answer_threshold(no_answer: Floats, answered: Floats, has: NDArray[np.bool_]) -> float:
    """Of questions with these no-answer scores, F1 if answered and answers: the steady threshold, else the luckiest."""
    steady = logistic_threshold(no_answer, answered - ~has)
    return oracle_threshold(no_answer, answered, has) if steady is None else steady


def oracle_threshold(no_answer: Floats, answered: Floats, has: NDArray[np.bool_]) -> float:
    """The one that is best on these very questions."""
    names = [str(number) for number in range(len(has))]
    by_name = [dict(zip(names, values.tolist(), strict=True)) for values in (no_answer, answered, has)]
    return best_threshold(*by_name)[0]


def logistic_threshold(no_answer: Floats, gains: Floats) -> float | None:
    """t = -b / a, with a, b minimising sum_i |g_i| log(1 + exp(-sign(g_i) (a s_i + b))).

    s_i is a question's no-answer score, g_i what answering it gains over saying nothing (F1 - 1 where
    there is no answer, F1 where there is one); answered are those with s_i <= t. None where no such t is
    to be had: all gains have one sign, s is the same throughout or gains grow with it, or to answer all or
    none is better.
    """
    graded = np.abs(no_answer) <= LARGEST_NO_ANSWER_SCORE
    s, g = no_answer[graded], gains[graded]
    if not (g > STILL).any() or not (g < -STILL).any():
        return None
    center, scale = s.mean(), s.std()
    if scale <= STILL * max(1.0, abs(center)):
        return None
    slope, lift = _logistic((s - center) / scale, g)
    if slope >= 0:
        return None
    threshold = float(center - scale * lift / slope)
    gained = gains[no_answer <= threshold].sum()
    return threshold if gained >= max(0.0, gains.sum()) else None


def _logistic(x: Floats, gains: Floats) -> tuple[float, float]:
    """(a, b) by Newton's steps, none longer than LONGEST; the ridge keeps them finite where x tells all."""
    weight, good = np.abs(gains) / np.abs(gains).mean(), (gains > 0).astype(np.float64)
    features = np.stack([x, np.ones_like(x)], axis=1)  # (questions, 2)
    found = np.zeros(2)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ found, -500, 500)))
        uphill = features.T @ (weight * (good - chance)) - RIDGE * found
        bend = (features.T * (weight * chance * (1 - chance))) @ features + RIDGE * np.eye(2)
        step = np.linalg.solve(bend, uphill)
        found = found + step * min(1.0, LONGEST / max(float(np.abs(step).max()), STILL))
        if np.abs(step).max() < STILL:
            break
    return float(found[0]), float(found[1])
