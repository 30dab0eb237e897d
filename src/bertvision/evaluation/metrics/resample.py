"""Drawing examples with replacement, whole clusters at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertvision.core.errors import BadInput

Floats = NDArray[np.float64]
Clusters = Sequence[Hashable] | None

AT_ONCE = 1 << 21  # random numbers held in memory at a time


def draw_units(units: int, draws: int, seed: int) -> Iterator[NDArray[np.int32]]:
    """Portions (draws, units) of units drawn with replacement."""
    random = np.random.default_rng(seed)
    for count in portions(draws, units):
        yield random.integers(0, units, size=(count, units), dtype=np.int32)


def portions(draws: int, units: int) -> Iterator[int]:
    """Numbers of draws that add up to all and fit into memory together with their units."""
    if draws < 1:
        raise BadInput(f"draws: got {draws}, expected at least 1")
    step = max(1, AT_ONCE // max(1, units))
    return (min(step, draws - done) for done in range(0, draws, step))


def draw_rows(members: NDArray[np.int64], draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of each draw: those of every cluster drawn, as often as it is drawn."""
    order = np.argsort(members, kind="stable")  # rows, cluster by cluster
    rows = np.split(order, np.cumsum(np.bincount(members))[:-1])
    for portion in draw_units(len(rows), draws, seed):
        for chosen in portion:
            yield order[chosen] if len(rows) == len(order) else np.concatenate([rows[i] for i in chosen])


def number_clusters(clusters: Clusters, examples: int) -> NDArray[np.int64]:
    """Clusters as 0, 1, ... by first appearance (examples,)."""
    if clusters is None:
        return np.arange(examples)
    if len(clusters) != examples:
        raise BadInput(f"got {len(clusters)} clusters for {examples} examples; expected one each")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in clusters])


def cluster_sums(members: NDArray[np.int64], numbers: Floats) -> Floats:
    """Sum over each cluster (clusters,)."""
    return np.bincount(members, weights=numbers).astype(np.float64)


def as_columns(arrays: Sequence[ArrayLike]) -> list[NDArray[Any]]:
    columns = [np.asarray(array) for array in arrays]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput(
            f"got columns of {', '.join(str(len(c)) for c in columns)} rows; expected as many of each, and some"
        )
    return columns


def as_vector(what: str, values: ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise BadInput(f"{what}: got {numbers.shape} numbers, expected a list of finite ones, at least one")
    return numbers
