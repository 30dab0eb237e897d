"""The parameter counts in docs/reference/heads.md are right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bertvision.core.records import Shape
from bertvision.heads.info import compatible_heads, fits, head_info

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "heads.md"
LARGE = Shape(layers=25, width=1024, tokens=386, outputs=2, kind="span")


def documented_counts() -> dict[str, int]:
    """Parameters by spec, as in the table of the page."""
    rows = re.findall(r"^\| `([^`]+)` \|.*?\| ([\d,]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {spec: int(count.replace(",", "")) for spec, count in rows}


def test_documented_parameter_counts_are_those_of_the_heads() -> None:
    labels = replace(LARGE, kind="classify")
    table = documented_counts()
    assert len(table) > 40
    assert set(table) <= set(compatible_heads(labels))
    for spec, parameters in table.items():
        assert head_info(spec, LARGE if fits(spec, LARGE) else labels)["parameters"] == parameters, spec
