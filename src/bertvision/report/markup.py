"""SVG out of plain values, and values as a person reads them. What is not made here is escaped.

:func:`tag` takes children that are :class:`Html` as they are and escapes everything else; templates
do the same. Joining ``Html`` with ``str`` methods gives a plain ``str``, which is escaped again: a
mistake shows on the page, but it never runs.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable

from bertvision.core.progress import CONTROL_CHARS

_UNPRINTABLE = re.compile(f"[{CONTROL_CHARS}\ufffe\uffff]")
# Ends of lines other than the one that the page knows; tables from Windows are full of them.
_ENDS = str.maketrans("\r\x0b\x0c\x85", "    ")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
DASH = "\N{EN DASH}"
NOTHING = "\N{EM DASH}"
MINUS = "\N{MINUS SIGN}"


class Html(str):
    """Markup that is ready to stand in a page."""

    __slots__ = ()

    def __html__(self) -> Html:
        """Tells a template that nothing is to be escaped."""
        return self


def escaped(value: object) -> Html:
    """Text as markup, fit for content and for attributes; what a page cannot hold is replaced."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(printable(str(value)), quote=True))


def printable(text: str) -> str:
    """A text whose characters a page can hold; what it cannot is replaced, one sign for one."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.translate(_ENDS))


def join(parts: Iterable[object], between: object = "") -> Html:
    """Parts one after the other, each escaped unless it is markup."""
    return Html(str.join(escaped(between), map(escaped, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. ``class_`` is class, ``aria_label`` is aria-label; attributes that are None or False are left out."""
    given = {key: value for key, value in attributes.items() if value is not None and value is not False}
    words = [f' {key.removesuffix("_").replace("_", "-")}="{_value(value)}"' for key, value in given.items()]
    return Html(f"<{name}{''.join(words)}>{join(children)}</{name}>")


def _value(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else escaped(value)


def cut(text: str, limit: int) -> str:
    """A text that is not longer than the limit."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + ELLIPSIS


def number(value: float | None, digits: int = 2) -> str:
    """With thousands marked; a dash for what is no number or not known."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def signed(value: float) -> str:
    """With its sign, a real minus."""
    return f"{'+' if value >= 0 else MINUS}{number(abs(value))}"


def percent(value: float) -> str:
    """Three digits after the point, more for the very small, so that no head seems to have no parameters."""
    return f"{value:.3f}" if value >= 0.001 or value <= 0 else f"{value:.1g}"


def size(count: float) -> str:
    """Bytes in a unit that one can read."""
    step = 0
    while count >= 1000 and step < len(_UNITS) - 1:
        count, step = count / 1000, step + 1
    return f"{count:.0f} {_UNITS[step]}" if step == 0 else f"{count:.3g} {_UNITS[step]}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if not math.isfinite(seconds):
        return NOTHING
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
