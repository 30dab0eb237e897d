"""Fit the no-answer threshold so that it generalises to other questions.

The threshold that maximises F1 on a few hundred questions overfits them. A weighted logistic regression with
two parameters has much less variance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertvision.evaluation.metrics.calibration import LARGEST_NO_ANSWER_SCORE
from bertvision.evaluation.metrics.squad import best_threshold

Floats = NDArray[np.float64]

MAX_STEPS, MAX_STEP, RIDGE, TOLERANCE = 100, 2.0, 1e-3, 1e-9


def fit_no_answer_threshold(no_answer: Floats, answered: Floats, has: NDArray[np.bool_]) -> float:
    """The logistic threshold or, if there is none, the oracle threshold.

    Given per question: the no-answer score, F1 if it is answered, and whether it has an answer.
    """
    threshold = logistic_threshold(no_answer, answered - ~has)
    return oracle_threshold(no_answer, answered, has) if threshold is None else threshold


def oracle_threshold(no_answer: Floats, answered: Floats, has: NDArray[np.bool_]) -> float:
    """The threshold that maximises the score on these questions themselves."""
    ids = [str(number) for number in range(len(has))]
    by_id = [dict(zip(ids, values.tolist(), strict=True)) for values in (no_answer, answered, has)]
    return best_threshold(*by_id)[0]


def logistic_threshold(no_answer: Floats, gains: Floats) -> float | None:
    """t = -b / a, with a, b minimising sum_i |g_i| log(1 + exp(-sign(g_i) (a s_i + b))).

    s_i is a question's no-answer score, g_i the gain of answering it over predicting no answer (F1 if it has
    an answer, F1 - 1 if not); questions with s_i <= t are answered. None if there is no such t: all gains
    have the same sign, s is constant or rises with the gains, or answering all or none scores better.
    """
    valid = np.abs(no_answer) <= LARGEST_NO_ANSWER_SCORE
    s, g = no_answer[valid], gains[valid]
    if not (g > TOLERANCE).any() or not (g < -TOLERANCE).any():
        return None
    center, scale = s.mean(), s.std()
    if scale <= TOLERANCE * max(1.0, abs(center)):
        return None
    slope, intercept = _fit_logistic((s - center) / scale, g)
    if slope >= 0:
        return None
    threshold = float(center - scale * intercept / slope)
    total_gain = gains[no_answer <= threshold].sum()
    return threshold if total_gain >= max(0.0, gains.sum()) else None


def _fit_logistic(x: Floats, gains: Floats) -> tuple[float, float]:
    """(slope, intercept) of a weighted logistic regression by Newton's method; steps are at most MAX_STEP."""
    weight, target = np.abs(gains) / np.abs(gains).mean(), (gains > 0).astype(np.float64)
    features = np.stack([x, np.ones_like(x)], axis=1)  # (questions, 2)
    params = np.zeros(2)
    for _ in range(MAX_STEPS):
        probability = 1 / (1 + np.exp(-np.clip(features @ params, -500, 500)))
        # The ridge keeps the parameters finite if x separates the two signs.
        gradient = features.T @ (weight * (target - probability)) - RIDGE * params
        hessian = (features.T * (weight * probability * (1 - probability))) @ features + RIDGE * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        params = params + step * min(1.0, MAX_STEP / max(float(np.abs(step).max()), TOLERANCE))
        if np.abs(step).max() < TOLERANCE:
            break
    return float(params[0]), float(params[1])
