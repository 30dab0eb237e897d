"""Identifiers and prose use the words of the field; retired words stay retired."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertvision

ROOT = Path(__file__).parents[1]
SOURCE = Path(bertvision.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = ROOT / "tests"
TEST_FOLDERS = ("cli", "core", "encoders", "evaluation", "golden", "heads")
TEST_MODULES = sorted([*TESTS.glob("*.py"), *(path for name in TEST_FOLDERS for path in (TESTS / name).rglob("*.py"))])
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((SOURCE / "report" / "assets" / "templates").glob("*.html")),
]

RETIRED = {
    *("anew", "beside", "court", "crew", "desk", "evidence", "finals", "hear", "lacking", "luck", "luckiest", "lucky"),
    *(
        "parcel",
        "portion",
        "said",
        "settle",
        "settled",
        "told",
        "trying",
        "witness",
        "witnesses",
        "workshop",
    ),
}
"""Parts of identifiers, as separated by underscores or capital letters."""

BARE = {"found", "known", "one", "place", "places", "some", "there", "here", "looks", "site", "team"}
"""Names of variables, functions or parameters that say nothing; as parts of longer names they may be clear."""

ALLOWED = {
    "beside",  # --beside is an option, and so the name of its setting
    "places",  # a column of the files of answers
}

PHRASES = (
    r"\banew\b",
    r"\bis told\b",
    r"\bare told\b",
    r"\bluck\b",
    r"\blucky\b",
    r"\bthe court\b",
    r"\bwitness",
    r"\bis lacking\b",
    r"\bwhat is lacking\b",
    r"\bin company\b",
    r"\bwhoever\b",
    r"\bgoes on from here\b",
    r"\bdone before\b",
    r"\bsays nothing of\b",
    r"\bsays nothing about itself\b",
    r"\bis no (?:number|field|run|text|value)\b",
    r"\b(?:two|one|three) (?:vectors?|rates?|numbers?|rows?|seeds?|lines?) a (?:text|task|seed|row|token)\b",
)


def words_of(name: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase identifier."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that a module binds: definitions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def retired_names(source: str) -> list[str]:
    return [
        f"line {line}: {name}"
        for line, name in identifiers(ast.parse(source))
        if name not in ALLOWED and (words_of(name) & RETIRED or name.lstrip("_") in BARE)
    ]


def retired_phrases(text: str) -> list[str]:
    prose = re.sub(r"\s+", " ", text)
    return [match[0] for phrase in PHRASES for match in re.finditer(phrase, prose)]


def prose_of(source: str) -> str:
    """Docstrings, messages and comments of a module."""
    strings = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    comments = re.findall(r"#\s(.*)$", source, flags=re.MULTILINE)
    return "\n".join([*strings, *comments])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_identifiers_are_words_of_the_field(path: Path) -> None:
    assert retired_names(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_docstrings_messages_and_comments_are_plain_english(path: Path) -> None:
    assert retired_phrases(prose_of(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", TEST_MODULES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_tests_are_written_in_words_of_the_field(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert retired_names(source) == []
    if path != Path(__file__):  # the phrases stand here themselves
        assert retired_phrases(prose_of(source)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_plain_english(path: Path) -> None:
    assert retired_phrases(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source", ["class Court: ...", "def f(told): ...", "place = 1", "def what_is_said(): ...", "self.witnesses = []"]
)
def test_planted_retired_name_is_found(source: str) -> None:
    assert len(retired_names(source)) == 1


def test_planted_retired_phrase_is_found() -> None:
    assert retired_phrases('"""What\n    is told of luck."""') == ["is told", "luck"]
