"""Templates: values are escaped, missing values are errors, and data are never templates."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, UndefinedError
from report_file import write_report

import bertvision.report
from bertvision.report.markup import Html, tag
from bertvision.report.render import SCRIPT, STYLE, _environment, read_asset, render

TEMPLATES = Path(bertvision.report.__file__).parent / "assets" / "templates"
SYNTAX = "{{ 7 * 7 }}{% raw %}{# gone #}"


@pytest.fixture
def environment() -> Environment:
    return _environment()


@given(st.text())
def test_values_are_escaped_in_content_and_attributes(text: str) -> None:
    written = _environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    inside = written.removeprefix('<p title="').removesuffix("</p>")
    assert not set(inside.replace('">', "", 1)) & set("<>\"'")
    assert html.unescape(inside) == f'{text}">{text}'


def test_html_values_are_not_escaped(environment: Environment) -> None:
    write = environment.from_string("{{ value }}").render
    assert write(value=tag("b", "<")) == "<b>&lt;</b>"
    assert write(value=Html("<i></i>") + "") == "&lt;i&gt;&lt;/i&gt;"


def test_macros_and_filters_escape_values(environment: Environment) -> None:
    markup = "</script><img src=x onerror=alert(1)>"
    source = '{% import "macros.html" as m %}{{ m.table([v], [[v, v]], v, v) }}{{ m.facts([(v, v)], v) }}{{ m.tag(v) }}'
    filters = '{{ [v, v]|join(", ") }}{{ v|truncate(30) }}{{ v ~ m.tag(v) }}{{ [v]|tojson }}{{ m.panel(v, v, v, v) }}'
    written = environment.from_string(source + filters).render(v=markup)
    assert "<img" not in written
    assert "</script" not in written


def test_missing_template_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'pairs' is undefined"):
        render("search", title="t", command="c")


def test_template_syntax_in_data_is_not_evaluated(make_run: Any) -> None:
    folder, task = make_run("classify", plain=lambda text: text + SYNTAX)
    content = html.unescape(write_report(folder, task).read_text(encoding="utf-8"))
    assert "label-no" + SYNTAX in content
    assert "advice" + SYNTAX in content
    assert "49" not in content.partition("<main>")[0]


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.stem)
def test_templates_parse_and_keep_autoescape_on(environment: Environment, path: Path) -> None:
    environment.get_template(path.name)
    source = path.read_text(encoding="utf-8")
    assert "|safe" not in source.replace(" ", "")
    assert "autoescape" not in source


def test_style_and_script_do_not_close_their_element() -> None:
    assert "</" not in read_asset(STYLE)
    assert "</" not in read_asset(SCRIPT)
