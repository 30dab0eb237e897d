"""The learning-rate schedule that tuning and fitting share."""

from __future__ import annotations


def lr_factor(step: int, steps: int, warmup: float, decay: str = "linear") -> float:
    """Learning rate as a fraction of its peak: linear warm-up, then linear decay to zero, or constant."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 1.0 if decay == "constant" else max(0.0, (steps - step) / max(1, steps - rise))
