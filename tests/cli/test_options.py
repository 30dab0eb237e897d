"""Flags, recipes and --set: the settings that they change, and their precedence."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path

import pytest

from bertvision.cli.main import build_parser
from bertvision.cli.options import recipe_from
from bertvision.core.config import (
    DataConfig,
    ExtractConfig,
    FitConfig,
    TuneConfig,
    read_recipe,
)
from bertvision.core.errors import BadInput
from bertvision.tasks.task import task_defaults


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def options(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["run", *arguments, "--out", "runs/x"])


def test_precedence_of_default_task_recipe_flag_and_set(tmp_path: Path) -> None:
    """default < task < recipe < flag < --set, for each setting alone."""
    task_lr, task_epochs = task_defaults("rte")["tune"]["bert_lr"], TuneConfig().epochs
    assert task_lr != TuneConfig().bert_lr
    path = str(write(tmp_path, 'task = "rte"\n[tune]\nbatch = 4'))
    bare = recipe_from(options(path))
    assert (bare.tune.bert_lr, bare.tune.epochs, bare.tune.batch, bare.tune.clip) == (task_lr, task_epochs, 4, 1.0)
    path = str(write(tmp_path, 'task = "rte"\n[tune]\nbert_lr = 0.75\nlr = 0.5\nbatch = 4\nclip = 2'))
    written = recipe_from(options(path)).tune
    assert (written.bert_lr, written.lr) == (0.75, 0.5)
    flagged = recipe_from(options(path, "--lr", "0.25"))
    assert (flagged.tune.lr, flagged.tune.batch, flagged.tune.clip) == (0.25, 4, 2.0)
    last = recipe_from(options(path, "--lr", "0.25", "--set", "tune.lr=0.125", "--set", "tune.clip=3"))
    assert (last.tune.lr, last.tune.batch, last.tune.clip, last.tune.epochs) == (0.125, 4, 3.0, task_epochs)


def test_flags_change_their_settings() -> None:
    files_and_columns = (
        "text --train a.csv b.csv --train c.csv --dev d.csv --text-column t --pair-column p --label-column l"
    )
    data_and_tuning = (
        "--encoding cp1252 --kind regress --limit 9 --skip-bad --max-length 64 --overlap 0 --encoder e --epochs 0.3"
    )
    tuning_and_heads = (
        "--lr 1e-3 --method full --tune-head probe --heads probe mean-pool --head learned-pool --seeds 4,5"
    )
    recipe = recipe_from(options(*files_and_columns.split(), *data_and_tuning.split(), *tuning_and_heads.split()))
    assert recipe.data == replace(
        DataConfig(),
        train=("a.csv", "b.csv", "c.csv"),
        dev=("d.csv",),
        text_column="t",
        pair_column="p",
        label_column=("l",),
        encoding="cp1252",
        kind="regress",
        limit=9,
        skip_bad=True,
        max_length=64,
        overlap=0,
    )
    assert (recipe.encoder, recipe.heads, recipe.seeds) == ("e", ("probe", "mean-pool", "learned-pool"), (4, 5))
    assert (recipe.tune.epochs, recipe.tune.lr, recipe.tune.method, recipe.tune.head) == (0.3, 1e-3, "full", "probe")


def test_flags_that_are_not_given_change_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, 'task = "text"\n[data]\ntrain = ["a.csv"]\nskip_bad = true\nlimit = 3')
    recipe = read_recipe(path)
    preset = replace(recipe.extract, tokens="auto", pairs="auto")  # of tasks with labels and values
    assert recipe_from(options(str(path))) == replace(recipe, extract=preset)


@pytest.mark.parametrize("config", [DataConfig, TuneConfig, ExtractConfig, FitConfig])
def test_every_setting_has_a_help_text(config: type) -> None:
    assert all(item.metadata["help"] for item in fields(config))
    if config is DataConfig:
        assert [item.metadata["flag"] for item in fields(config)] == [
            f"--{item.name.replace('_', '-')}" for item in fields(config)
        ]


def test_head_and_tune_head_set_the_head_for_tuning() -> None:
    for flag in ("--head", "--tune-head"):
        given = build_parser().parse_args(["tune", "text", "--out", "runs/x", flag, "context-conv:layers=last1"])
        assert recipe_from(given).tune.head == "context-conv:layers=last1"


def test_words_for_heads_stay_until_task_and_shape_are_known(tmp_path: Path) -> None:
    path = str(write(tmp_path, 'task = "text"\nheads = ["quick"]'))
    assert recipe_from(options(path)).heads == recipe_from(options("text")).heads == ("quick",)
    assert recipe_from(options("text", "--heads", "all")).heads == ("all",)
    assert recipe_from(options("text", "--heads", "control", "all")).heads == ("control", "all")
    assert recipe_from(options("text", "--set", "heads=all")).heads == ("all",)
    assert recipe_from(options("text", "--heads", "quick", "compress", "compress:size=64")).heads == (
        "quick",
        "compress:size=64",
    )
    with pytest.raises(BadInput, match="Did you mean 'probe'"):
        recipe_from(options("text", "--heads", "prob"))
