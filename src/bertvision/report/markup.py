"""HTML and SVG out of plain values: what is not made here is escaped, so data can never become markup.

:func:`tag` takes children that are :class:`Html` as they are and escapes everything else. Joining
``Html`` with ``str`` methods gives a plain ``str``, which is escaped again: a mistake shows on the
page, but it never runs.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertvision.core.progress import CONTROLS

_UNPRINTABLE = re.compile(f"[{CONTROLS}\ufffe\uffff]")
# Ends of lines other than the one that the page knows; tables from Windows are full of them.
_ENDS = str.maketrans("\r\x0b\x0c\x85", "    ")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
DASH = "\N{EN DASH}"
NOTHING = "\N{EM DASH}"


class Html(str):
    """Markup that is ready to stand in a page."""

    __slots__ = ()


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


def opened(name: str, /, **attributes: object) -> Html:
    """A start tag. ``class_`` is class, ``aria_label`` is aria-label; None and False are left out."""
    given = {key: value for key, value in attributes.items() if value is not None and value is not False}
    told = [f' {_attribute(key)}="{_value(value)}"' for key, value in given.items()]
    return Html(f"<{name}{''.join(told)}>")


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element with its children."""
    return Html(f"{opened(name, **attributes)}{join(children)}</{name}>")


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def _value(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else escaped(value)


@dataclass(frozen=True)
class Section:
    """A part of the page, and what the list of contents needs to point to it."""

    name: str
    title: str
    content: Html

    def markup(self) -> Html:
        title = tag("h2", self.title) if self.title else ""
        return tag("section", title, self.content, id=self.name)


def section(name: str, title: str, *children: object) -> Section:
    return Section(name, title, join(children))


def table(head: Sequence[object], rows: Iterable[Sequence[object]], label: str, look: str | None = None) -> Html:
    """Numbers to the right of a first column of names, in a box that scrolls by itself."""
    first = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return scrolling(tag("table", tag("thead", first), tag("tbody", *body), class_=look), label)


def scrolling(content: Html, label: str) -> Html:
    """A box that scrolls sideways; it takes the focus, so that it scrolls with the keyboard too."""
    return tag("div", content, class_="scroll", role="region", aria_label=label, tabindex="0")


def facts(pairs: Iterable[tuple[object, object]], **attributes: object) -> Html:
    """Names with their values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), **attributes)


def cut(text: str, limit: int) -> str:
    """A text that is not longer than the limit."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + ELLIPSIS


def number(value: float, digits: int = 2) -> str:
    """With thousands marked; a dash for what is no number."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else NOTHING


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
