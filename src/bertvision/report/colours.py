"""The colours of series, which the colour-blind tell apart; the same in reports and in standalone SVG files.

``assets/templates/page.html`` turns them into CSS variables and the classes s0, s1, ...; the stylesheet uses the
variables, so no other file names these colours. The other colours of the page (text, lines, background) are in the
stylesheet.
"""

from __future__ import annotations

LIGHT = {
    "blue": "#0068a8",
    "orange": "#c04a00",
    "green": "#007a5a",
    "purple": "#a3468a",
    "violet": "#6b46c1",
    "grey": "#4a5568",
}
"""Colours on white, on screen and on paper, in the order of series."""

DARK = {
    "blue": "#62b4f0",
    "orange": "#ff9a57",
    "green": "#4cc9a0",
    "purple": "#e39bd0",
    "violet": "#a78bfa",
    "grey": "#a2acb8",
}
"""The same colours on a dark screen."""


def rgb_channels(colour: str) -> str:
    """``#0068a8`` as ``0 104 168``, to which CSS can add an opacity."""
    return " ".join(str(channel) for channel in bytes.fromhex(colour.removeprefix("#")))
