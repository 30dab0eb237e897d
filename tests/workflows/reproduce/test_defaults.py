"""Recipes of the papers hold all their settings: other defaults of the package do not change them."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertvision.core import records
from bertvision.core.config import DataConfig, ExtractConfig, FitConfig, Recipe, TuneConfig, setting_types, to_mapping
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json
from bertvision.core.records import Kind, Shape
from bertvision.heads import base, quick
from bertvision.heads.base import head_options
from bertvision.heads.compress import Compress
from bertvision.heads.info import fits
from bertvision.tasks import recipe_defaults
from bertvision.tasks.glue import GlueLoader
from bertvision.training.tune import resolve_config
from bertvision.workflows import reproduce
from bertvision.workflows.reproduce import defaults
from bertvision.workflows.reproduce.defaults import SPAN_TASKS, recipe_head, start_settings
from bertvision.workflows.reproduce.estimate import plan
from bertvision.workflows.reproduce.experiments import Experiments, scaled_method
from bertvision.workflows.reproduce.specs import SCALES, BoardRow, RowSpec, Shared, TunedRow, all_items, shared_at

GOLDEN = Path(__file__).with_name("resolved.json")
"""Hash of the resolved settings that the committed documents were made with, by scale and item."""


ADDED = (("fit", "validation", "inner"), ("", "prefer", "best"), ("extract", "pairs", "together"))
READING = ("read", "pooled")
IMPLICIT = {"CONTROL", "quick_heads", "FitConfig", "TuneConfig", "ExtractConfig", "recipe_defaults", "task_defaults"}
"""Names of the package's defaults."""


def full_head(spec: str, shape: str) -> list[Any]:
    """A head's name and all its options; spans read every token, so how a text is read means nothing there."""
    options = {key: value for key, value in head_options(spec).items() if shape != "span" or key not in READING}
    return [spec.partition(":")[0], sorted(options.items())]


def recipes_of(experiments: Experiments, row: RowSpec) -> Iterator[tuple[Recipe, str]]:
    """Recipes of a row's run, curve or tuning and of those below it, each with the name of its untuned encoder."""
    shared, source = experiments.shared, experiments.shared.source_of(row)
    if source is None or not source.available:
        return
    base, settings = shared.base_encoder(source), {}
    if isinstance(row, TunedRow):
        settings = {"method": scaled_method(row.method, *shared.shapes[base])}
        settings |= {"head": recipe_head(row.head, row.shape)} if row.head else {}
    for below in shared.source_chain(source):
        yield experiments.recipe(below, row.data if below is source or not below.data else None, **settings), base
        settings = {}


def resolved(item: str, shared: Shared, folder: Path) -> str:
    """Hash of every setting that an item's scores depend on."""
    experiments, facts = Experiments(shared, None, folder), []
    for row in shared.rows_of(all_items()[item]):
        heads = [full_head(spec, row.shape) for spec in row.required_heads] if isinstance(row, BoardRow) else []
        for recipe, _ in recipes_of(experiments, row):
            plain = to_mapping(recipe)
            for section, key, value in ADDED:  # settings that there were not, at what they mean for the documents
                assert plain[section].pop(key) == value if section else plain.pop(key) == value
            shape = "span" if recipe.task in SPAN_TASKS else "classify"
            plain["heads"] = [full_head(spec, shape) for spec in recipe.heads]
            if recipe.tune.head:
                plain["tune"]["head"] = full_head(recipe.tune.head, shape)
            facts.append([plain, heads])
    return hash_json(facts)


@pytest.fixture
def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes name their files and encoders, none of which exist here."""
    monkeypatch.setattr(Experiments, "encoder_of", lambda self, name, data: name)
    monkeypatch.setattr(Experiments, "paths", lambda self, data: dict(data.files))


def other(value: Any) -> Any:
    """Another value of the same type; what is not set by default stays so, since files of recipes leave it out."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return tuple(map(other, value)) or (0.5,)
    if value in ("auto", "best", "together"):  # one of a few words
        return {"auto": "folds", "best": "small", "together": "both"}[value]
    return value + 1 if isinstance(value, int | float) else f"other {value}" if isinstance(value, str) else value


def change_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, read in (("POINTWISE", "mean"), ("CLS_SEQUENCE", "mean"), ("MEAN_SEQUENCE", "cls")):
        monkeypatch.setitem(getattr(base, f"{options}_OPTIONS"), "read", read)


@pytest.fixture
def other_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (DataConfig, TuneConfig, ExtractConfig, FitConfig, Recipe):
        values = cls.__init__.__defaults__
        monkeypatch.setattr(cls.__init__, "__defaults__", tuple(map(other, values)))
    monkeypatch.setattr(records, "CONTROL", "mean-pool")
    monkeypatch.setattr(quick, "SPAN_HEADS", ("mean-pool",))
    presets = {"lr": 0.5, "bert_lr": 0.5, "epochs": 7.0, "batch": 7}
    monkeypatch.setattr(GlueLoader, "defaults", {"tune": presets, "fit": {"epochs": 7}})
    monkeypatch.setattr(recipe_defaults, "method_defaults", lambda name, method: presets)
    change_readings(monkeypatch)
    monkeypatch.setitem(base.POINTWISE_OPTIONS, "pooled", True)  # type: ignore[arg-type]
    monkeypatch.setitem(base.POINTWISE_OPTIONS, "layers", "last1")  # type: ignore[arg-type]
    monkeypatch.setattr(Compress.__init__, "__defaults__", (8, False, True))


def assert_as_before(scale: str, folder: Path) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[scale]
    assert {item: resolved(item, shared_at(scale), folder) for item in all_items()} == golden


@pytest.mark.usefixtures("without_files")
@pytest.mark.parametrize("scale", SCALES)
def test_settings_are_those_of_the_documents(scale: str, tmp_path: Path) -> None:
    assert_as_before(scale, tmp_path)


@pytest.mark.usefixtures("without_files", "other_defaults")
@pytest.mark.parametrize("scale", SCALES)
def test_other_defaults_do_not_change_the_settings(scale: str, tmp_path: Path) -> None:
    assert (FitConfig().lr, head_options("probe")["read"]) == (1.003, "mean"), "the defaults are others here"
    assert recipe_defaults.recipe_defaults("mrpc")["tune"]["batch"] == 7
    assert_as_before(scale, tmp_path)


@pytest.mark.parametrize("scale", SCALES)
def test_other_defaults_do_not_change_the_plan(scale: str, request: pytest.FixtureRequest) -> None:
    before = plan(list(all_items().values()), shared_at(scale))
    request.getfixturevalue("other_defaults")
    assert plan(list(all_items().values()), shared_at(scale)) == before


@pytest.mark.parametrize("scale", SCALES)
def test_heads_can_be_built_with_another_reading_by_default(scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for item in all_items().values() for row in shared_at(scale).rows_of(item) if isinstance(row, BoardRow)]
    kinds: dict[str, Kind] = {"span": "span", "classify": "classify", "regress": "regress"}
    change_readings(monkeypatch)
    for spec, shape, outputs in {(spec, row.shape, row.outputs) for row in rows for spec in row.required_heads}:
        assert fits(spec, Shape(7, 384, 384, outputs, kinds[shape])), spec
    assert recipe_head("compress:size=64", "classify") == "compress:size=64,read=cls"
    assert recipe_head("compress:size=64", "span") == "compress:size=64"


@pytest.mark.usefixtures("without_files")
@pytest.mark.parametrize("scale", SCALES)
def test_learning_rates_that_recipes_leave_to_the_width_of_the_encoder(scale: str, tmp_path: Path) -> None:
    """Recipes of finished runs do not name them: if they change, so do the documents."""
    by_width, shared = {384: 1.5e-4, 768: 4.9e-5, 1024: 3.1e-5}, shared_at(scale)
    experiments = Experiments(shared, None, tmp_path)
    for row in [row for item in all_items().values() for row in shared.rows_of(item)]:
        for recipe, base_encoder in recipes_of(experiments, row):
            width = shared.shapes[base_encoder][1]
            tune, encoder, task = recipe.tune, SimpleNamespace(width=width), SimpleNamespace(name=recipe.task)
            expected = tune.lr or (tune.bert_lr if width >= 768 else None) or by_width[width]
            assert resolve_config(tune, encoder, task).lr == expected  # type: ignore[arg-type]


def test_file_has_every_setting_and_every_option_of_its_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"task", "encoder", "heads", "seeds"}  # by every source
    assert {*start_settings("squad2"), *given} == set(setting_types(Recipe)), "add new ones to defaults.toml"
    file = defaults._defaults_file()
    assert {name: set(options) for name, options in file["head"].items()} == {
        name: set(head_options(name)) for name in file["head"]
    }
    fit = {key: value for key, value in file["recipe"]["fit"].items() if key != "lr"}
    monkeypatch.setattr(defaults, "_defaults_file", lambda: {**file, "recipe": {**file["recipe"], "fit": fit}})
    with pytest.raises(BadInput, match="fit: lr: got None"):
        Experiments(shared_at("laptop"), None, Path())


def test_reproduce_uses_no_defaults_of_the_package() -> None:
    for module in pkgutil.iter_modules(reproduce.__path__, f"{reproduce.__name__}."):
        assert not IMPLICIT & set(vars(importlib.import_module(module.name))), module.name


def test_run_has_the_same_scores_with_another_reading_by_default(
    experiments: Experiments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replace(experiments, out=tmp_path / "before").run("glue", "cola", ["mean-pool"])[1].board
    change_readings(monkeypatch)
    after = replace(experiments, out=tmp_path / "after").run("glue", "cola", [recipe_head("mean-pool", "classify")])[1]
    assert (before.control, after.board.control) == ("probe:layers=last1", "probe:layers=last1,read=cls")
    assert {head.spec for head in after.heads} == {"mean-pool:read=cls", after.board.control}
    for old, new in zip(before.rows, after.board.rows, strict=True):
        assert (new.scores, new.inner) == (old.scores, old.inner)
    tests = [[test.p_holm for test in board.comparisons] for board in (before, after.board)]
    assert tests[0] == tests[1]
