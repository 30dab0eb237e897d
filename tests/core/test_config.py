"""Settings: TOML round trips, errors that name the setting, and precedence."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.config import (
    DataConfig,
    ExtractConfig,
    FitConfig,
    Recipe,
    TuneConfig,
    built_in_recipe,
    from_mapping,
    merge_settings,
    override,
    read_recipe,
    to_mapping,
    with_settings,
    write_recipe,
)
from bertvision.core.errors import BadInput
from bertvision.tasks.task import TASKS

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
POSITIVE = st.floats(1e-9, 1e3)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    data = DataConfig(
        train=tuple(draw(st.lists(WORD, max_size=3))),
        text_column=draw(st.none() | WORD),
        limit=draw(st.none() | st.integers(0, 10**9)),
        skip_bad=draw(st.booleans()),
        overlap=draw(st.none() | st.integers(0, 500)),
    )
    tune = TuneConfig(epochs=draw(POSITIVE), lr=draw(POSITIVE), head=draw(st.none() | WORD), decay="constant")
    fit = FitConfig(epochs=draw(st.integers(1, 99)), clip=draw(POSITIVE))
    seeds = tuple(draw(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=4)))
    return Recipe(draw(WORD), draw(WORD), tuple(draw(st.lists(WORD, max_size=3))), seeds, data, tune, fit=fit)


@QUICK
@given(recipe=recipes())
def test_recipe_round_trips_through_its_file(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> None:
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    write_recipe(recipe, path)
    assert read_recipe(path) == recipe
    assert [child.name for child in path.parent.iterdir()] == ["recipe.toml"]


@pytest.mark.parametrize("task", ["squad1", "squad2", "text"])
def test_built_in_recipes_round_trip_through_files(task: str, tmp_path: Path) -> None:
    assert task in TASKS
    recipe = built_in_recipe(task, data={"train": ["a.json"]})
    write_recipe(recipe, tmp_path / "r.toml")
    assert read_recipe(tmp_path / "r.toml") == recipe


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def error_message(path: Path) -> str:
    with pytest.raises(BadInput) as error:
        read_recipe(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'task = "text"\n[fit]\nlrr = 1',
            "my.toml: fit: no setting named 'lrr'. Did you mean 'lr'? Known: batch, clip",
        ),
        ('task = "text"\ntunes = 1', "my.toml: no setting named 'tunes'. Did you mean 'tune'?"),
        ('task = "text"\n[tune]\nepochs = "one"', "my.toml: tune: epochs: got 'one', expected float"),
        ('task = "text"\n[tune]\nepochs = true', "tune: epochs: got True, expected float"),
        ('task = "text"\n[tune]\nbatch = 8.0', "tune: batch: got 8.0, expected int"),
        ('task = "text"\n[data]\nskip_bad = 1', "data: skip_bad: got 1, expected bool"),
        ('task = "text"\n[data]\nlimit = "5"', "data: limit: got '5', expected int"),
        ('task = "text"\ntune = 3', "tune: got 3, expected a table"),
        ('task = "text"\nheads = [1]', "heads: got 1, expected str"),
        ('task = "text"\nseeds = ["a"]', "seeds: got 'a', expected int"),
        ('task = "text"\nseeds = 1979-05-27', "seeds: got datetime.date(1979, 5, 27), expected int"),
        ('task = "text"\n[heads]\nprobe = 1', "heads: got {'probe': 1}, expected str"),
        ('task = "text"\nseeds = []', "seeds is empty"),
        ("task = 7", "task: got 7, expected str"),
        ('encoder = "minilm"', "my.toml: setting 'task' is missing"),
        ("task = ", "is not a TOML recipe"),
        ("", "setting 'task' is missing"),
        ('task = "text"\n[tune]\nepochs = nan', "tune.epochs is nan; expected at least 0"),
        ('task = "text"\n[tune]\nepochs = -0.5', "tune.epochs is -0.5; expected at least 0"),
        ('task = "text"\n[tune]\nlr = 0', "tune.lr is 0.0; expected more than 0"),
        ('task = "text"\n[tune]\nbatch = 0', "tune.batch is 0; expected at least 1"),
        ('task = "text"\n[tune]\ndecay = "cosine"', "tune.decay is 'cosine'; expected linear or constant"),
        ('task = "text"\n[fit]\nepochs = 0', "fit.epochs is 0; expected at least 1"),
        ('task = "text"\n[fit]\nlr = inf', "fit.lr is inf; expected more than 0"),
        ('task = "text"\n[extract]\nshard_mb = 0', "extract.shard_mb is 0; expected at least 1"),
    ],
)
def test_invalid_recipe_error_names_the_setting(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in error_message(write(tmp_path, text))


def test_unreadable_recipe_is_an_error(tmp_path: Path) -> None:
    assert "cannot read recipe" in error_message(tmp_path / "none.toml")
    assert "cannot read recipe" in error_message(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes('task = "é"'.encode("latin-1"))
    assert "is not a TOML recipe" in error_message(path)


def test_single_value_becomes_a_list_and_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, '\ufefftask = "text"\nheads = "probe"\nseeds = 3\n[data]\ntrain = "a.csv"'))
    assert (recipe.heads, recipe.seeds, recipe.data.train) == (("probe",), (3,), ("a.csv",))


def test_int_is_accepted_for_a_float_setting(tmp_path: Path) -> None:
    epochs = read_recipe(write(tmp_path, 'task = "text"\n[tune]\nepochs = 2')).tune.epochs
    assert (epochs, type(epochs)) == (2.0, float)


BASE = built_in_recipe("text", data={"train": ["a.csv"], "text_column": "t", "limit": 5})


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("fit.lr=1e-2", replace(BASE, fit=FitConfig(lr=0.01))),
        ("fit.epochs=7", replace(BASE, fit=FitConfig(epochs=7))),
        ("tune.epochs=2", replace(BASE, tune=replace(BASE.tune, epochs=2.0))),
        ("encoder=a/b=c", replace(BASE, encoder="a/b=c")),
        ("encoder=7", replace(BASE, encoder="7")),
        ("heads=probe compress:size=4,skip=true", replace(BASE, heads=("probe", "compress:size=4,skip=true"))),
        ("heads=probe", replace(BASE, heads=("probe",))),
        ("seeds=3,1,2", replace(BASE, seeds=(3, 1, 2))),
        ("seeds=-4", replace(BASE, seeds=(-4,))),
        ("data.train=b.csv c.csv", replace(BASE, data=replace(BASE.data, train=("b.csv", "c.csv")))),
        ("data.dev=1.csv", replace(BASE, data=replace(BASE.data, dev=("1.csv",)))),
        ("data.text_column=1", replace(BASE, data=replace(BASE.data, text_column="1"))),
        ("data.label_column=true", replace(BASE, data=replace(BASE.data, label_column=("true",)))),
        ("data.skip_bad=true", replace(BASE, data=replace(BASE.data, skip_bad=True))),
        ("data.limit=", replace(BASE, data=replace(BASE.data, limit=None))),
        ("data.overlap=0", replace(BASE, data=replace(BASE.data, overlap=0))),
        ("tune.head=probe:layers=last1", replace(BASE, tune=replace(BASE.tune, head="probe:layers=last1"))),
    ],
)
def test_set_parses_a_value_by_the_type_of_its_setting(setting: str, expected: Recipe) -> None:
    assert override(BASE, [setting]) == expected


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("fit.lr", "--set 'fit.lr': expected key=value"),
        ("=3", "--set '=3': expected key=value"),
        ("fit.lrr=1", "--set: fit: no setting named 'lrr'. Did you mean 'lr'?"),
        ("fot.lr=1", "--set 'fot.lr=1': no section named 'fot'. Did you mean 'fit'? Known: data, extract, fit, tune"),
        ("fit.lr.x=1", "no section named 'lr'"),
        ("fit=1", "--set: fit: got '1', expected a table"),
        ("fit.lr=fast", "--set: fit: lr: got 'fast', expected float"),
        ("fit.epochs=1.5", "--set: fit: epochs: got '1.5', expected int"),
        ("seeds=1,b", "--set: seeds: got 'b', expected int"),
        ("seeds=", "--set: seeds: got '', expected int"),
        ("data.skip_bad=yes", "--set: data: skip_bad: got 'yes', expected bool"),
        ("fit.lr=nan", "fit.lr is nan; expected more than 0"),
    ],
)
def test_invalid_set_error_names_the_setting(setting: str, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        override(BASE, [setting])
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_last_set_wins_and_nothing_else_changes() -> None:
    assert override(BASE, []) == BASE
    assert override(BASE, ["fit.lr=1", "fit.batch=3", "fit.lr=2"]) == replace(BASE, fit=FitConfig(lr=2.0, batch=3))


def test_sections_made_in_python_are_validated() -> None:
    """Settings given as keywords are checked like those in files."""
    with pytest.raises(BadInput, match=r"tune.batch is 0"):
        with_settings(TuneConfig(), batch=0)
    with pytest.raises(BadInput, match=r"extract.batch_tokens is -1"):
        ExtractConfig(batch_tokens=-1)
    assert with_settings(FitConfig(), lr=None, epochs=3) == FitConfig(epochs=3)


def test_merge_settings_merges_section_by_section() -> None:
    base: dict[str, Any] = {"a": 1, "s": {"x": 1, "y": 2}}
    assert merge_settings(base, {"s": {"y": 3}, "b": 2}) == {"a": 1, "s": {"x": 1, "y": 3}, "b": 2}
    assert merge_settings(base, {"s": 5}) == {"a": 1, "s": 5}
    assert base == {"a": 1, "s": {"x": 1, "y": 2}}


def test_recipe_round_trips_through_a_mapping() -> None:
    recipe = built_in_recipe("squad2", data={"train": ["t.json"], "max_length": 12})
    assert from_mapping(Recipe, to_mapping(recipe), "here") == recipe
    assert {item.name for item in fields(Recipe)} == set(to_mapping(recipe))
