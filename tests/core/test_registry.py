"""Registries discover the entries of their package; specs, values and layers are parsed from text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput, missing_extra, shorten
from bertvision.core.registry import Registry, Spec, choose_layers, parse_spec, read_value, unknown_name, write_value
from bertvision.heads.base import HEADS
from bertvision.tasks.task import TASKS

QUICK = settings(max_examples=100, deadline=None, derandomize=True)
NAME = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
KEY = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
VALUE = st.one_of(
    st.integers(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.from_regex(r"[A-Za-z0-9_.+-]{1,8}", fullmatch=True),
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[str]]:
    """A registry whose package has two modules, each with an entry."""
    folder = tmp_path / "menagerie"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "birds.py").write_text("import menagerie\nmenagerie.REGISTRY.register('heron')('grey')\n")
    (folder / "fish.py").write_text("import menagerie\nmenagerie.REGISTRY.register('sword-fish')('long')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import menagerie  # type: ignore[import-not-found]

    menagerie.REGISTRY = Registry("animal", "menagerie")
    yield menagerie.REGISTRY
    for name in ("menagerie", "menagerie.birds", "menagerie.fish"):
        sys.modules.pop(name, None)


def test_first_access_imports_the_package(package: Registry[str]) -> None:
    assert "menagerie.birds" not in sys.modules
    assert list(package) == ["heron", "sword-fish"]
    assert package["heron"] == "grey"
    assert "sword-fish" in package
    assert "eel" not in package


def test_unknown_name_error_suggests_a_known_one(package: Registry[str]) -> None:
    with pytest.raises(BadInput) as error:
        package["hern"]
    assert str(error.value) == "no animal named 'hern'. Did you mean 'heron'? Known: heron, sword-fish"
    with pytest.raises(BadInput, match=r"^no animal named 'x'. Known: heron, sword-fish$"):
        package["x"]


def test_duplicate_and_malformed_names_are_refused(package: Registry[str]) -> None:
    package.register("eel")("slim")
    with pytest.raises(AssertionError, match="'eel' is registered twice"):
        package.register("eel")("other")
    for bad in ("Eel", "e el", "", "1eel", "eel\n"):
        with pytest.raises(AssertionError):
            package.register(bad)


def test_head_and_task_registries_are_filled() -> None:
    assert {"probe", "learned-pool", "mean-pool", "compress"} <= set(HEADS)
    assert {"squad1", "squad2", "text"} <= set(TASKS)
    assert list(HEADS) == sorted(HEADS)
    with pytest.raises(BadInput, match="Did you mean 'learned-pool'"):
        HEADS["learned_pool"]


def test_long_names_are_shortened_in_messages() -> None:
    text = unknown_name("head", "x" * 500, ["probe"])
    assert len(text) < 120
    assert "..." in text
    assert len(shorten("y" * 500)) == 60


def test_missing_extra_names_what_to_install() -> None:
    assert "pip install -e '.[serve]'" in str(missing_extra("fastapi", "serve"))


def test_bad_input_message_is_one_line() -> None:
    assert str(BadInput("two\nlines  and\tblanks ")) == "two lines and blanks"
    assert isinstance(BadInput(""), ValueError)


@QUICK
@given(NAME, st.dictionaries(KEY, VALUE, max_size=4))
def test_spec_round_trips_through_text(name: str, options: dict[str, int | float | bool | str]) -> None:
    spec = Spec(name, {key: read_value(write_value(value)) for key, value in options.items()})
    parsed = parse_spec(str(spec))
    assert parsed == spec
    assert [type(value) for value in parsed.options.values()] == [type(value) for value in spec.options.values()]
    assert parse_spec(f" {spec}\n") == spec


@QUICK
@given(VALUE)
def test_values_round_trip_through_text(value: int | float | bool | str) -> None:
    if isinstance(value, str):
        return
    parsed = read_value(write_value(value))
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("-3", -3), ("1e-3", 0.001), ("true", True), ("false", False), ("True", "True"), ("last4", "last4")],
)
def test_value_type_is_inferred_from_its_text(text: str, expected: object) -> None:
    assert read_value(text) == expected
    assert type(read_value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected name[:key=value[,key=value]...], e.g. compress:size=64,skip=true"),
        ("Compress", "expected name[:key=value"),
        ("compress:", "expected name[:key=value"),
        (":size=3", "expected name[:key=value"),
        ("compress size=3", "expected name[:key=value"),
        ("compress:size", "'size' is not key=value"),
        ("compress:size=", "'size=' is not key=value"),
        ("compress:size=3,", "'' is not key=value"),
        ("compress:size=3 4", "'size=3 4' is not key=value"),
        ("compress:size=3;skip=true", "'size=3;skip=true' is not key=value"),
        ("compress:Size=3", "'Size=3' is not key=value"),
        ("compress:size=3,size=4", "size is given twice"),
        ("compress:a=b:c=d", "is not key=value"),
    ],
)
def test_malformed_spec_error_quotes_the_wrong_part(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_spec(text)
    assert reason in str(error.value)
    assert str(error.value).startswith("spec ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", (0, 1, 2, 3, 4, 5, 6)),
        ("last1", (6,)),
        ("last4", (3, 4, 5, 6)),
        ("first2", (0, 1)),
        ("first7", (0, 1, 2, 3, 4, 5, 6)),
        ("every2", (0, 2, 4, 6)),
        ("every4", (2, 6)),
        ("every9", (6,)),
        ("6+0+3", (0, 3, 6)),
        ("5", (5,)),
    ],
)
def test_choose_layers_parses_every_form(text: str, expected: tuple[int, ...]) -> None:
    assert choose_layers(text, 7) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("last8", "first8", "last0", "first0", "every0", "last", "7", "0+7", "1+1", "0+", "-1", "+1", ""),
        *("some", "none", "ALL"),
    ],
)
def test_choose_layers_refuses_layers_out_of_range(text: str) -> None:
    with pytest.raises(BadInput, match="there are 7 states, 0 to 6; expected all, last4, first6, every2 or 0"):
        choose_layers(text, 7)
