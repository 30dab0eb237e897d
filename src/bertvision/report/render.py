"""Rendering of the files under ``assets``: Jinja2 templates, the stylesheet and the script.

Templates escape every value unless it is :class:`Html` or comes from a macro, so data never become markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from bertvision.core.records import ALPHA
from bertvision.report.colours import rgb_channels
from bertvision.report.markup import (
    DASH,
    MISSING,
    Html,
    format_bytes,
    format_duration,
    format_number,
    format_percent,
    format_signed,
    truncate,
)

STYLE, SCRIPT = "report.css", "explorer.js"


@dataclass(frozen=True)
class Section:
    """A section of the page, with the anchor and title for the table of contents."""

    name: str
    title: str
    content: Html


def render_section(name: str, title: str, /, **values: object) -> Section:
    """A section rendered from the template of the same name."""
    return Section(name, title, render(name, **values))


def render(template: str, /, **values: object) -> Html:
    return Html(_environment().get_template(f"{template}.html").render(values))


def read_asset(name: str) -> str:
    return (files("bertvision.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    loader = PackageLoader("bertvision.report", "assets/templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "bytes": format_bytes,
        "channels": rgb_channels,
        "duration": format_duration,
        "number": format_number,
        "percent": format_percent,
        "signed": format_signed,
        "thousands": "{:,}".format,
        "truncate": truncate,
    }
    environment.globals |= {"MISSING": MISSING, "DASH": DASH, "ALPHA": ALPHA}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
