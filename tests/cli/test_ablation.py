"""``analyse --ablation``: scores without the adapters of every span of layers; and a whole run on adapters."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.config import read_recipe
from bertvision.encoders.loading import load_encoder
from bertvision.evaluation.analyses.result import Plot
from bertvision.model import load_model
from bertvision.report.charts import draw, heat_colour
from bertvision.workflows.refit_analyses import spans

Call = Callable[..., Any]


@pytest.fixture(scope="module", params=["squad", "text"])
def adapted_run(
    request: pytest.FixtureRequest, samples: Any, tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("adapted")
    if request.param == "squad":
        samples.write_squad(folder / "train.json", samples.squad("t"))
        samples.write_squad(folder / "dev.json", samples.squad("d", 3))
        command = samples.squad_words(folder, tiny_encoder_folder)
    else:
        samples.write_csv(folder / "my.csv")
        command = samples.text_words(folder, tiny_encoder_folder)
    options = ["--method", "adapters:size=8", "--lr", "3e-2", "--epochs", "10"]
    run: Path = samples.made_run(folder, [*command, *options])
    return run


def test_adapter_run_has_all_rows_and_saves_delta_weights(adapted_run: Path, tiny_encoder_folder: Path) -> None:
    recipe = read_recipe(adapted_run / "recipe.toml")
    assert (recipe.tune.method, recipe.tune.lr, recipe.tune.epochs) == ("adapters:size=8", 3e-2, 10.0)
    board = json.loads((adapted_run / "leaderboard.json").read_text(encoding="utf-8"))
    assert {"encoder", "head", "ensemble"} <= {row["kind"] for row in board["rows"]}
    encoder = load_encoder(str(adapted_run / "encoder"))
    assert encoder.delta is not None
    assert encoder.delta.base.source == str(tiny_encoder_folder.resolve())
    assert load_model(adapted_run / "model").encoder.delta == encoder.delta
    assert not (adapted_run / "encoder" / "model.safetensors").exists()


def test_ablation_scores_every_span_of_layers_once(adapted_run: Path, call: Call) -> None:
    document = call("analyse", adapted_run, "--ablation", "--json").document()
    assert [(row["first"], row["last"]) for row in document["rows"]] == [(1, 1), (1, 2), (2, 2)]
    board = json.loads((adapted_run / "leaderboard.json").read_text(encoding="utf-8"))
    own = next(row for row in board["rows"] if row["kind"] == "encoder")
    assert document["score"] == pytest.approx(own["scores"][document["metric"]])
    for row in document["rows"]:
        assert row["decrease"] == pytest.approx(100 * (1 - row["score"] / document["score"]))
    out = adapted_run / "ablation"
    assert json.loads((out / "ablation.json").read_text(encoding="utf-8")) == document
    with (out / "ablation.csv").open(newline="", encoding="utf-8") as file:
        assert [float(row["score"]) for row in csv.DictReader(file)] == [row["score"] for row in document["rows"]]
    assert "first layer without adapters" in (out / "ablation.svg").read_text(encoding="utf-8")
    report = (adapted_run / "report.html").read_text(encoding="utf-8")
    assert "Adapters switched off" in report
    assert "first layer without adapters" in report
    lines = call("analyse", adapted_run, "--ablation").out.splitlines()
    assert len(lines) == 1 + 2 + 2
    assert lines[-1].endswith("report.html")


def test_ablation_without_adapters_is_refused(call: Call, text_run: Path, tmp_path: Path) -> None:
    assert "there is no encoder with adapters in" in call("analyse", text_run, "--ablation").refused()
    assert "is not a run" in call("analyse", tmp_path, "--ablation").refused()
    assert "not allowed with" in call("analyse", text_run, "--ablation", "--depth", "probe").refused()


def test_spans_lists_every_span_of_layers() -> None:
    assert list(spans(3)) == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)]
    assert len(list(spans(12))) == 78


def test_heat_map_shades_larger_losses_darker_and_gains_differently() -> None:
    def brightness(colour: str) -> int:
        return sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))

    shades = [brightness(heat_colour(value, 80.0)) for value in (0.0, 20.0, 40.0, 80.0)]
    assert shades == sorted(shades, reverse=True)
    assert len(set(shades)) == 4
    assert heat_colour(-80.0, 80.0) != heat_colour(80.0, 80.0)
    zeros = {"1": [(0, 0.0, ""), (1, 0.0, "")], "2": [(1, -0.0, "")]}
    picture = str(draw(Plot("heat", "x", "y", zeros, ("1", "2"), legend="lost")))
    assert picture.count("<title>") == 3
