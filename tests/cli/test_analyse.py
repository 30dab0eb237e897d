"""``analyse`` and ``report`` on real runs: every analysis by name, refusals, and the files that they write."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.records import Example
from bertvision.evaluation.analyses.catalogue import ANALYSES, FILES, STATES
from bertvision.evaluation.analyses.result import Finding
from bertvision.tasks.task import read_task
from bertvision.workflows.analyse import MAKERS, run_analyses
from bertvision.workflows.file_analyses import FROM_FILES
from bertvision.workflows.refit_analyses import AnalysisRequest

Call = Callable[..., Any]
TONES = ("bad", "plain", "good")
QUICK = ("--set", "fit.epochs=1", "--set", "fit.batch=8")
PAIR = ("agreement", "--pair", "encoder", "encoder")


def test_every_analysis_is_listed_and_can_be_made(call: Call) -> None:
    listed = call("analyse", "--list", "--json").document()["analyses"]
    assert {entry["name"] for entry in listed} == set(FROM_FILES) | set(MAKERS) == set(ANALYSES)
    assert "learning-curve" in call("analyse", "anywhere", "--list").out


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_analyses_without_training_run_by_default(request: pytest.FixtureRequest, call: Call, name: str) -> None:
    run = request.getfixturevalue(name)
    document = call("analyse", run, "--json").document()
    made, missing = document["findings"], document["missing"]
    wanted = {analysis for analysis, (needs, _) in ANALYSES.items() if needs in (FILES, STATES)}
    assert set(made) | set(missing) == wanted
    spans_only = {"answer-types", "question-word", "answer-length"}
    assert set(missing) == ({"labels"} if name == "squad_run" else spans_only)
    for analysis, finding in made.items():
        assert finding["rows"] or analysis == "labels", analysis
        kept = json.loads((run / "analysis" / f"{analysis}.json").read_text(encoding="utf-8"))
        assert kept.pop("made_from").startswith("board ")
        assert kept == finding
        Finding(**finding)
        assert (run / "analysis" / f"{analysis}.svg").exists() or analysis == "labels"
    assert all(row["inference_seconds"] > 0 for row in made["cost"]["rows"])
    trained = json.loads((run / "encoder" / "bertvision.json").read_text(encoding="utf-8"))["record"]["cost"]["trained"]
    assert [row["parameters"] for row in made["cost"]["rows"] if row["name"] == "encoder"] == [trained]
    assert "The second most likely answer" in (run / "report.html").read_text(encoding="utf-8")


def test_report_keeps_measured_costs(call: Call, text_run: Path) -> None:
    call("analyse", text_run, "--what", "cost")
    before = (text_run / "analysis" / "cost.json").read_bytes()
    assert call("report", text_run).code == 0
    assert (text_run / "analysis" / "cost.json").read_bytes() == before


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_layers_depth_and_learning_curve_are_fitted_once_and_reused(
    request: pytest.FixtureRequest, call: Call, name: str, tmp_path: Path
) -> None:
    run = request.getfixturevalue(name)
    limited = shutil.copytree(run, tmp_path / "limited")
    what = ("--what", "layers", "depth", "learning-curve", "--head", "compress:size=4", "--seeds", "0,1")
    command = ("analyse", run, *what, "--shares", "0.5,1", "--beside", limited, *QUICK)
    findings = call(*command, "--json").document()["findings"]
    assert [row["at"] for row in findings["layers"]["rows"]] == [0, 1, 2]
    assert [row["at"] for row in findings["depth"]["rows"]] == [0, 1, 2]
    *both, half, whole = findings["learning-curve"]["rows"]  # the limited run, and the run itself
    assert [(row["series"], row["at"]) for row in both] == [("encoder limited too", 100.0)] * 2
    assert [row["inner"] is None for row in (*both, half, whole)] == [True, True, False, False]
    assert [(row["at"], row["seeds"]) for row in (half, whole)] == [(50.0, 2), (100.0, 2)]
    assert half["examples"] < whole["examples"]
    again = call(*command)
    assert "fit: already done, skipping" in again.err
    assert "heads x" not in again.err
    page = (run / "report.html").read_text(encoding="utf-8")
    for title in ("Score by layer", "Score by depth", "Learning curve"):
        assert title in page


def test_analyses_fit_heads_with_the_settings_of_the_run(text_run: Path) -> None:
    from bertvision.cli.analyse import _analysis_request
    from bertvision.cli.main import build_parser
    from bertvision.core.config import read_recipe

    settings = read_recipe(text_run / "recipe.toml").fit
    assert _analysis_request(build_parser().parse_args(["analyse", str(text_run)])).config == settings


def with_dev(run: Path, to: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Path:
    """A copy of a run whose dev was changed."""
    path = shutil.copytree(run, to) / "store" / "task" / "dev.jsonl"
    examples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(f"{json.dumps(example)}\n" for example in change(examples)), encoding="utf-8")
    return to


@pytest.mark.parametrize("what", [("learning-curve", "--head", "compress:size=4", "--shares", "1", *QUICK), PAIR])
def test_runs_with_another_dev_are_refused(
    call: Call, squad_run: Path, text_run: Path, tmp_path: Path, what: tuple[str, ...]
) -> None:
    command = ("analyse", squad_run, "--what", *what, "--beside")
    assert "expected the same kind" in call(*command, text_run).refused()
    shorter = with_dev(squad_run, tmp_path / "shorter", lambda dev: dev[1:])
    assert "its dev has 5 examples, 5 of them among the 6 of this run" in call(*command, shorter).refused()
    other = with_dev(squad_run, tmp_path / "other", lambda dev: [{**dev[0], "text": "another question"}, *dev[1:]])
    assert "its dev has 6 examples, 5 of them among the 6 of this run" in call(*command, other).refused()


def test_pair_compares_any_two_rows(call: Call, squad_run: Path) -> None:
    command = ("analyse", squad_run, "--what", "agreement", "--json", "--pair")
    (finding,) = call(*command, "mean-pool@0", "encoder").document()["findings"].values()
    row = finding["rows"][0]
    assert (row["a"], row["b"]) == ("mean-pool@0", "encoder")
    assert row["both"] + row["only_a"] + row["only_b"] + row["neither"] == pytest.approx(100)
    assert "no row named 'mean-pol'" in call(*command, "mean-pol", "encoder").refused()
    assert "names mean-pool@0 twice" in call(*command, "mean-pool", "mean-pool@0").refused()


def with_answers(folder: Path, dev: Sequence[Example], labels: Sequence[str], right: int) -> Path:
    """Overwrite the answers of a run's encoder: right on the first so many examples."""
    indices = [
        int(example.label or 0) if number < right else (int(example.label or 0) + 1) % 3
        for number, example in enumerate(dev)
    ]
    answers = {example.id: labels[index] for example, index in zip(dev, indices, strict=True)}
    (folder / "predictions" / "encoder.json").write_text(json.dumps(answers), encoding="utf-8")
    return folder


def test_pair_compares_rows_of_two_runs(call: Call, text_run: Path, tmp_path: Path) -> None:
    task = read_task(text_run / "store" / "task")
    dev, labels = task["dev"], task.labels
    assert len(dev) == 4
    run = with_answers(shutil.copytree(text_run, tmp_path / "run"), dev, labels, 1)
    other = with_answers(with_dev(text_run, tmp_path / "other", lambda rows: rows[::-1]), dev, labels, 2)
    command = ("analyse", run, "--what", *PAIR, "--beside", other)
    (finding,) = call(*command, "--json").document()["findings"].values()
    (row,) = finding["rows"]
    assert (row["a"], row["b"]) == ("encoder", "encoder of other")
    assert [row[key] for key in ("both", "only_a", "only_b", "neither", "same")] == [25, 0, 25, 50, 75]
    assert [(case["id"], case["sort"], case["b_said"]) for case in finding["examples"]] == [
        (dev[1].id, "only_b", labels[int(dev[1].label or 0)])
    ]
    assert str(other) in finding["about"]
    assert "Agreement of encoder and encoder of other" in call(*command).out
    assert len(list((run / "analysis").glob("agreement-encoder-encoder-of-other-*.json"))) == 1
    assert "Agreement of encoder and encoder of other" in (run / "report.html").read_text(encoding="utf-8")
    assert f"no row of {other} named 'encode'" in call(*command[:-3], "encode", "--beside", other).refused()


def test_requested_pair_is_saved_with_the_default_ones(call: Call, text_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(text_run, tmp_path / "run")
    assert call("report", run).code == 0
    usual = (run / "analysis" / "agreement.json").read_bytes()
    # Answers on which the two differ, both ways.
    for name, label in (("encoder", 0), ("mean-pool@0", 1)):
        path = run / "predictions" / f"{name}.json"
        answers = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(dict.fromkeys(answers, TONES[label])), encoding="utf-8")
    shown = call("analyse", run, "--what", "agreement", "--pair", "mean-pool", "encoder").out
    assert "Agreement of mean-pool@0 and encoder" in shown
    assert "  only the first right: the plain old town" in shown
    assert shown.count("  only the second right: the bad old town") in (1, 2)
    assert "    gold: plain\n    mean-pool@0: plain\n    encoder: bad" in shown
    path = next((run / "analysis").glob("agreement-mean-pool-0-encoder-*.json"))
    assert path.with_suffix(".svg").exists()
    for again in (("report", run), ("analyse", run, "--what", "agreement")):
        assert call(*again).code == 0
        assert json.loads(path.read_text(encoding="utf-8"))["rows"][0]["a"] == "mean-pool@0"
        page = (run / "report.html").read_text(encoding="utf-8")
        assert page.index("Agreement and disagreement") < page.index("Agreement of mean-pool@0 and encoder")
    assert len(json.loads((run / "analysis" / "agreement.json").read_text())["rows"]) == len(json.loads(usual)["rows"])


def test_span_run_saves_the_positions_of_answers(squad_run: Path) -> None:
    contexts = {example.id: example.pair for example in read_task(squad_run / "store" / "task")["dev"]}
    names = sorted(path.name for path in (squad_run / "predictions").glob("*.json"))
    assert sorted(path.name for path in (squad_run / "predictions" / "places").glob("*.json")) == names
    for name in names:
        answers, positions = (
            json.loads((squad_run / folder / name).read_text()) for folder in ("predictions", "predictions/places")
        )
        assert {key for key, text in answers.items() if text} == set(positions)
        assert all(contexts[key][start:end] == answers[key] for key, (start, end) in positions.items())
    assert "no saved answer positions" not in (squad_run / "report.html").read_text(encoding="utf-8")


def test_invalid_arguments_are_refused(call: Call, squad_run: Path, tmp_path: Path) -> None:
    assert "Did you mean 'layers'?" in call("analyse", squad_run, "--what", "layer").refused()
    assert "--within needs --depth" in call("analyse", squad_run, "--within", 1).refused()
    assert "above 0 and at most 1" in call("analyse", squad_run, "--what", "learning-curve", "--shares", "2").refused()
    assert "is not a run" in call("analyse", tmp_path).refused()
    assert "analyse needs RUN" in call("analyse").refused()
    assert "needs --to FILE" in call("report", squad_run, squad_run).refused()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--what", "cost", "--pair", "a", "b"), "--pair applies to agreement; add --what agreement"),
        (("--head", "probe"), "--head applies to depth, learning-curve; add --what depth"),
        (("--what", "layers", "--shares", "0.5"), "--shares applies to learning-curve"),
        (("--what", "depth", "--beside", "x"), "--beside applies to learning-curve, agreement"),
        (("--what", "agreement", "--beside", "x"), "--beside goes with --pair A B"),
        (("--beside", "x"), "--beside goes with --pair A B"),
        (("--what", *PAIR, "--beside", "x", "y"), "takes row B from one run, --beside names 2"),
        (("--what", "learning-curve", *PAIR, "--beside", "x"), "ask for one at a time"),
        (("--what", "agreement", "--seeds", "0"), "--seeds applies to layers, depth, learning-curve"),
        (("--set", "fit.epochs=1"), "--set applies to layers, depth, learning-curve"),
        (("--depth", "probe", "--what", "cost"), "--what cannot be combined with --depth SPEC"),
        (("--depth", "probe", "--head", "probe"), "--head cannot be combined with --depth SPEC"),
        (("--ablation", "--what", "cost"), "--what cannot be combined with --ablation"),
        (("--ablation", "--seeds", "1"), "--seeds cannot be combined with --ablation"),
        (("--ablation", "--within", "1"), "--within needs --depth"),
    ],
)
def test_option_without_effect_is_refused(call: Call, text_run: Path, options: tuple[str, ...], message: str) -> None:
    assert message in call("analyse", text_run, *options).refused()


def test_pair_of_a_run_with_itself_is_refused(call: Call, text_run: Path) -> None:
    assert "is RUN itself" in call("analyse", text_run, "--what", *PAIR, "--beside", text_run).refused()


def test_second_best_does_not_apply_to_two_labels(text_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = AnalysisRequest(text_run)
    task = replace(analysis.run.task, labels=("no", "yes"))
    monkeypatch.setattr(analysis, "run", replace(analysis.run, task=task))
    made, missing = run_analyses(analysis, ["second-best"])
    assert made == []
    assert missing == {"second-best": "does not apply to text: of two labels the second best is always the other one"}


def test_analyses_that_do_not_apply_are_reported_with_the_reason(call: Call, text_run: Path) -> None:
    output = call("analyse", text_run, "--what", "ablation", "cost").out
    assert "ablation: does not apply to text: there is no encoder with adapters" in output
    assert "--method adapters" in output
    assert "ablation does not apply to text: there is no" in call("analyse", text_run, "--what", "ablation").refused()


def test_rows_without_answers_are_named(call: Call, text_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(text_run, tmp_path / "run")
    (run / "predictions" / "encoder.json").unlink()
    message = f"has no answers of encoder; write them with: bertvision evaluate {run}"
    result = call("analyse", run, "--what", "context-length")
    assert result.code == 0
    assert f"analyse: {run / 'predictions'} {message}" in result.err
    assert message in call("analyse", run, "--what", "agreement", "--pair", "encoder", "mean-pool").refused()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("leaderboard.json", "[]", "is not a leaderboard"),
        ("leaderboard.json", '{"rows": []}', "is not a leaderboard: 'task'"),
        ("leaderboard.json", '{"rows"', "leaderboard.json cannot be read"),
        ("predictions/encoder.json", "[]", "holds a list, expected a mapping from ids"),
        ("predictions/encoder.json", "{}", "has no answer to"),
        ("store/manifest.json", "{", "delete the store and extract again"),
        ("heads/ridge:layers=last1/seed0/head.json", "{", "fit that head again"),
        ("heads/ridge:layers=last1/seed0/head.safetensors", "{", "delete that folder and fit it again"),
        ("analysis/agreement.json", "{", "delete it and run: bertvision analyse"),
    ],
)
def test_damaged_file_error_names_it_and_says_what_to_do(
    call: Call, text_run: Path, tmp_path: Path, name: str, text: str, message: str
) -> None:
    run = shutil.copytree(text_run, tmp_path / "run")
    assert (run / name).exists() or name.startswith("analysis")
    (run / name).write_text(text, encoding="utf-8")
    error = call("analyse", run, "--what", "second-best", "cost").refused()
    assert message in error
    assert str(run) in error


def test_learning_curve_refuses_runs_on_more_data(call: Call, text_run: Path, tmp_path: Path) -> None:
    small = shutil.copytree(text_run, tmp_path / "small")
    path = small / "store" / "task" / "train.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:5]), encoding="utf-8")
    command = ("analyse", small, "--what", "learning-curve", "--beside", text_run)
    assert f"trained on {len(lines)} examples, this run on 5; expected fewer" in call(*command).refused()


def test_repeated_seed_is_refused(call: Call, text_run: Path) -> None:
    assert "got '0,0', expected each number once" in call("fit", text_run / "store", "--seeds", "0,0").refused()


def missing_analyses(page: Path) -> list[str]:
    """Arguments of the commands that a page lists for missing analyses."""
    lists = re.findall(r'<dl class="missing">(.*?)</dl>', page.read_text(encoding="utf-8"), re.DOTALL)
    return [
        " ".join(html.unescape(command).split()[2:])
        for part in lists
        for command in re.findall("<code>(.*?)</code>", part)
    ]


def fresh_copy(run: Path, to: Path) -> Path:
    """A copy of a run as it was when it finished, without later analyses."""
    shutil.copytree(run, to)
    for name in ("second-best", "cost", "layers", "depth", "learning-curve"):
        (to / "analysis" / f"{name}.json").unlink(missing_ok=True)
    return to


def test_report_makes_analyses_of_stored_states_and_lists_the_rest(call: Call, squad_run: Path, tmp_path: Path) -> None:
    run = fresh_copy(squad_run, tmp_path / "run")
    page = run / "report.html"
    result = call("report", run, "--json")
    assert result.document() == {"report": str(page)}
    assert "report: making second-best, cost from the stored states" in result.err
    content = page.read_text(encoding="utf-8")
    assert "The second most likely answer" in content
    assert "against inference seconds" in content
    assert f"bertvision report {run}" in content
    assert missing_analyses(page) == [f"{run} --what {name}" for name in ("layers", "depth", "learning-curve")]
    assert call(*first_missing_command(page), *QUICK).code == 0
    assert missing_analyses(page) == [f"{run} --what {name}" for name in ("depth", "learning-curve")]
    assert "making" not in call("report", run).err


def first_missing_command(page: Path) -> list[str]:
    """The first command that a page lists for missing analyses."""
    return ["analyse", *missing_analyses(page)[0].split()]


def test_report_is_written_if_states_are_damaged(call: Call, squad_run: Path, tmp_path: Path) -> None:
    run = fresh_copy(squad_run, tmp_path / "run")
    for shard in (run / "store" / "dev").glob("*.safetensors"):
        shard.write_bytes(b"torn")
    result = call("report", run)
    assert (result.code, result.out) == (0, f"{run / 'report.html'}\n")
    assert "report: cannot make all of second-best, cost: " in result.err
    assert [command.split()[-1] for command in missing_analyses(run / "report.html")[:2]] == ["second-best", "cost"]


def test_report_of_several_runs_changes_none_and_lists_missing_analyses(
    call: Call, squad_run: Path, tmp_path: Path
) -> None:
    first, second = (fresh_copy(squad_run, tmp_path / name) for name in ("one", "two"))
    shutil.rmtree(second / "analysis")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert call("report", first, second, "--to", tmp_path / "both.html").code == 0
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    after.pop(tmp_path / "both.html")
    assert after == before
    content = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert content.count("<h3>With and without an answer</h3>") == 2
    names = ("second-best", "cost", "layers", "depth", "learning-curve")
    assert missing_analyses(tmp_path / "both.html") == [
        f"{run} --what {name}" for run in (first, second) for name in names
    ]


def test_report_of_several_runs_has_a_leaderboard_for_each(
    call: Call, squad_run: Path, text_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "both.html"
    assert call("report", squad_run, text_run, "--to", path, "--json").document() == {"report": str(path)}
    content = path.read_text(encoding="utf-8")
    assert 'id="run1-leaderboard"' in content
    assert 'id="run2-leaderboard"' in content


def test_report_shows_every_command_as_it_was_typed(call: Call, text_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(text_run, tmp_path / "my run")
    command = ("analyse", run, "--what", "layers", "--seeds", "1", *QUICK)
    assert call(*command).code == 0
    call("analyse", run, "--what", "layer").refused()
    assert call("fit", run / "store", "--head", "tanh", "--set", "fit.epochs=1").code == 0
    assert call("evaluate", run, "--compare", "tanh", "encoder").code == 0
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    typed = [line["words"] for line in lines if line["step"] == "command"]
    assert typed[-2:] == [
        [str(word) for word in command],
        ["fit", f"{run}/store", "--head", "tanh", "--set", "fit.epochs=1"],
    ]
    assert all(line["versions"]["torch"] for line in lines)
    page = html.unescape((run / "report.html").read_text(encoding="utf-8"))
    assert f"bertvision analyse '{run}' --what layers --seeds 1 --set fit.epochs=1 --set fit.batch=8\n" in page
    assert f"bertvision fit '{run}/store' --head tanh --set fit.epochs=1" in page
    assert "bertvision run text --train" in page
    assert "--compare" not in page
