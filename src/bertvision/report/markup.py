"""Building escaped markup, and formatting values for display.

:func:`tag` inserts :class:`Html` children unchanged and escapes everything else; templates do the same.
``str`` methods on ``Html`` return a plain ``str``, which is escaped again, so that a mistake is visible
on the page but never executed.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable

from bertvision.core.progress import CONTROL_CHARS

_UNPRINTABLE = re.compile(f"[{CONTROL_CHARS}\ufffe\uffff]")
# Line breaks other than \n, as in tables written on Windows, become spaces.
_LINE_BREAKS = str.maketrans("\r\x0b\x0c\x85", "    ")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
DASH = "\N{EN DASH}"
MISSING = "\N{EM DASH}"
"""Shown for a missing value."""
MINUS = "\N{MINUS SIGN}"


class Html(str):
    """Markup that is inserted into a page without escaping."""

    __slots__ = ()

    def __html__(self) -> Html:
        """Protocol of Jinja2 for markup that must not be escaped."""
        return self


def escape_html(value: object) -> Html:
    """Text escaped for content and attributes; unprintable characters are replaced."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(printable(str(value)), quote=True))


def printable(text: str) -> str:
    """The text with each unprintable character replaced by U+FFFD; its length does not change."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.translate(_LINE_BREAKS))


def join(parts: Iterable[object], between: object = "") -> Html:
    """Concatenate parts, escaping those that are not markup."""
    return Html(str.join(escape_html(between), map(escape_html, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; ``class_`` becomes class, ``aria_label`` aria-label; None and False are omitted."""
    written = []
    for key, value in attributes.items():
        if value is not None and value is not False:
            text = f"{round(value, 2):g}" if isinstance(value, float) else escape_html(value)
            written.append(f' {key.removesuffix("_").replace("_", "-")}="{text}"')
    return Html(f"<{name}{''.join(written)}>{join(children)}</{name}>")


def truncate(text: str, limit: int) -> str:
    """The text, cut to the limit with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + ELLIPSIS


def format_number(value: float | None, digits: int = 2) -> str:
    """A number with thousands separators; a dash for None, NaN and infinity."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def format_signed(value: float) -> str:
    """A number with its sign (U+2212 for minus)."""
    return f"{'+' if value >= 0 else MINUS}{format_number(abs(value))}"


def format_percent(value: float) -> str:
    """Three decimals, or one significant digit below 0.001, so that small heads do not show as 0."""
    return f"{value:.3f}" if value >= 0.001 or value <= 0 else f"{value:.1g}"


def format_bytes(count: float) -> str:
    """Bytes in a decimal unit."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.3g} {_UNITS[unit]}"


def format_duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
