"""The page's files under ``assets``: templates that Jinja2 fills in, the style and the script.

Every value that a template writes is escaped unless it is :class:`Html` or comes from a macro, so data can
never become markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from bertvision.core.records import ALPHA
from bertvision.report.markup import DASH, NOTHING, Html, cut, duration, number, percent, signed, size

STYLE, SCRIPT = "report.css", "explorer.js"


@dataclass(frozen=True)
class Section:
    """A part of the page, and what the list of contents needs to point to it."""

    name: str
    title: str
    content: Html


def section(name: str, title: str, /, **values: object) -> Section:
    """A section made from the template of its name."""
    return Section(name, title, render(name, **values))


def render(template: str, /, **values: object) -> Html:
    return Html(_environment().get_template(f"{template}.html").render(values))


def asset(name: str) -> str:
    return (files("bertvision.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    loader = PackageLoader("bertvision.report", "assets/templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters = (cut, duration, number, percent, signed, size)
    environment.filters |= {function.__name__: function for function in filters}
    environment.filters["thousands"] = "{:,}".format
    environment.globals |= {"NOTHING": NOTHING, "DASH": DASH, "ALPHA": ALPHA}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
