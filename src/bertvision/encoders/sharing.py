"""Which adapters are one and the same: a map from every place of an adapter to its group, as data.

``none``: all differ. ``layer``: both of a layer are one. A number n: all of n consecutive layers are one.
``all``: there is only one. Any other map is written out, an entry a layer: ``0+0+1-2`` are three layers,
of which the first two have one adapter at all their places, and the third has two of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bertvision.core.errors import BadInput, shorten
from bertvision.core.registry import Value, write_value

SITES = ("attention", "output")
"""Places within a layer: after attention's projection, after the feed-forward's."""

Place = tuple[int, str]

_MAP = re.compile(r"\d+(-\d+)?(\+\d+(-\d+)?)*\Z")


def sharing(share: Value, layers: int) -> dict[Place, int]:
    """The group of every place; groups are numbered by first appearance, so that equal maps are equal."""
    found = {
        (layer, site): group
        for layer, pair in enumerate(_pairs(share, layers))
        for site, group in zip(SITES, pair, strict=True)
    }
    order = {group: number for number, group in enumerate(dict.fromkeys(found.values()))}
    return {place: order[group] for place, group in found.items()}


def _pairs(share: Value, layers: int) -> list[tuple[int, int]]:
    """Groups of attention and output, layer by layer."""
    if share == "none":
        return [(2 * layer, 2 * layer + 1) for layer in range(layers)]
    if share == "all":
        return [(0, 0)] * layers
    if share == "layer" or (type(share) is int and share >= 1):
        together = 1 if share == "layer" else int(share)
        return [(layer // together, layer // together) for layer in range(layers)]
    if isinstance(share, str) and re.search("[+-]", share) and _MAP.match(share):
        return _written(share, layers)
    raise BadInput(
        f"adapters:share={shorten(write_value(share))}: expected none, layer, all, a number of consecutive layers, "
        "or a group for every layer such as 0+0+1-2"
    )


def _written(share: str, layers: int) -> list[tuple[int, int]]:
    entries = [entry.split("-") for entry in share.split("+")]
    if len(entries) != layers:
        raise BadInput(
            f"adapters:share={shorten(share)} has groups for {len(entries)} layers, this encoder has {layers}; "
            f"give {layers} groups, or none, layer, all or a number of consecutive layers"
        )
    return [(int(entry[0]), int(entry[-1])) for entry in entries]


def cut_share(share: Value, depth: int) -> Value:
    """The same sharing for the lowest layers only."""
    if not (isinstance(share, str) and "+" in share):
        return share
    first, *rest = share.split("+")[:depth]
    return "+".join([first if rest or "-" in first else f"{first}-{first}", *rest])  # a number alone is something else


def written(groups: Mapping[Place, int]) -> str:
    """A map as text that :func:`sharing` reads."""
    layers = 1 + max(layer for layer, _ in groups)
    return "+".join("-".join(str(groups[layer, site]) for site in SITES) for layer in range(layers))
