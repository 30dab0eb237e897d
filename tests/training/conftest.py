"""What the tests of the steps share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from bertvision.training.fitted_head import FittedHead


def _told(one: FittedHead) -> tuple[object, ...]:
    """All of a fitted head but its weights, its outputs and the time it took."""
    fitted = one.best_epoch, one.threshold, one.temperatures
    return one.spec, one.seed, *fitted, one.history, one.states, one.head.shape


@pytest.fixture(scope="session")
def same() -> Callable[[FittedHead, FittedHead], None]:
    """Asserts that two fitted heads are equal to the last bit."""

    def check(one: FittedHead, other: FittedHead) -> None:
        assert _told(one) == _told(other)
        states, others = one.head.state_dict(), other.head.state_dict()
        assert list(states) == list(others)
        assert all(torch.equal(states[key], others[key]) for key in states)
        assert len(one.inner) == len(other.inner)
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one.inner, other.inner, strict=True))

    return check
