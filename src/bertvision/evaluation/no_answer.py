"""No-answer, honestly: the score at 0, at the threshold fitted on inner, and at the oracle.

The oracle is the threshold that is best on the very questions that are scored, as the official
script defines ``best_exact`` and ``best_f1``: an upper bound, which nothing is chosen by. Shared
ground of the steps, not a step itself.
"""

from __future__ import annotations

import numpy as np

from bertvision.evaluation.example_scores import SPAN_SCORES, SpanEvidence, golds_of
from bertvision.evaluation.metrics.squad_no_answer import best_by_sweep
from bertvision.evaluation.scoring import Judged
from bertvision.tasks.task import Task


def thresholds(task: Task, judged: Judged) -> dict[str, dict[str, float]]:
    """``zero``, ``fitted`` (where there was an inner to fit it on) and ``oracle``; nothing for other tasks."""
    verdict = judged.verdict
    if verdict.threshold is None or verdict.evidence is None or verdict.evidence.spans is None:
        return {}
    spans = verdict.evidence.spans
    found = {"zero": _scores_at(spans, 0.0)}
    if judged.inner is not None:
        found["fitted"] = _scores_at(spans, verdict.threshold)
    return {**found, "oracle": _oracle(task, judged.predictions.split, spans)}


def _scores_at(spans: SpanEvidence, threshold: float) -> dict[str, float]:
    means = 100 * spans.at(threshold).mean(0)  # (2,)
    return {**dict(zip(SPAN_SCORES, means.tolist(), strict=True)), "threshold": threshold}


def _oracle(task: Task, split: str, spans: SpanEvidence) -> dict[str, float]:
    """The official names. A question that there is nothing to answer with counts as left empty.

    Where silence throughout is best, the official script names 0 as threshold, which is meant for
    probabilities; a threshold below all scores says the same of scores.
    """
    golds, names = golds_of(task[split]), [example.id for example in task[split]]
    silence = 100 * sum(not gold for gold in golds.values()) / len(golds)
    said = {name: "a span" if there else "" for name, there in zip(names, np.isfinite(spans.spans[:, 0]), strict=True)}
    scores = dict(zip(names, spans.no_answer.tolist(), strict=True))
    found: dict[str, float] = {}
    for column, name in enumerate(SPAN_SCORES):
        single = dict(zip(names, spans.answered[:, column].tolist(), strict=True))
        best, threshold = best_by_sweep(golds, said, single, scores)
        below = float(spans.no_answer.min()) - 1
        found |= {f"best_{name}": best, f"best_{name}_thresh": threshold if best > silence else below}
    return found
