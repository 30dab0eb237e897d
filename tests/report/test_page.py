"""The report page: complete, well-formed, safe for any data, and tolerant of missing files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_file import write_report

from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.evaluation.analyses.result import Finding
from bertvision.report.explorer import MAX_LENGTH
from bertvision.report.page import write_page
from bertvision.report.render import SCRIPT, STYLE, read_asset
from bertvision.runs.reader import gather
from bertvision.workflows.file_analyses import file_findings, save_findings

KINDS = ("span", "classify", "multilabel", "regress")
VOID = {"meta", "wbr", "input"}
SECTIONS = ["leaderboard", "analyses", "cost", "layers", "curves", "explorer", "examples", "reproducibility"]
STATISTICS = {"span": ["significance", "no-answer", "calibration"], "regress": ["significance"]}
LOADING = ("src", "srcset", "xlink:href", "action", "data", "poster", "background")
NASTY = "\"><img src=x onerror=alert(1)><svg onload='alert(2)'>&lt;"


class Page(HTMLParser):
    """A parsed page; tags must close in order."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def sections(self) -> list[str]:
        return [attributes["id"] for tag, attributes in self.tags if tag == "section"]

    @property
    def everything(self) -> str:
        return self.text + "".join(value for _, attributes in self.tags for value in attributes.values())

    def alternatives(self) -> list[str]:
        return [attributes.get("aria-label", "") for tag, attributes in self.tags if attributes.get("role") == "img"]


def report(run: tuple[Path, Any]) -> Page:
    return Page(write_report(*run))


def sections(kind: str) -> list[str]:
    """The sections of a report; regression has no correct and wrong answers, hence no explorer."""
    return [name for name in SECTIONS if name != "explorer" or kind != "regress"]


@pytest.mark.parametrize("kind", KINDS)
def test_page_is_well_formed_with_sections_in_order(make_run: Any, kind: str) -> None:
    page = report(make_run(kind))
    assert page.sections == sections(kind)
    assert [a["href"] for tag, a in page.tags if tag == "a"] == [f"#{name}" for name in sections(kind)]
    for fact in ("encoder-name", "tuned 0.3 epochs", "17 steps", "2031-05-06", "advice", "baseline", "control"):
        assert fact in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_page_with_statistics_has_their_sections(make_run: Any, kind: str) -> None:
    page = report(make_run(kind, trust=True))
    assert page.sections == [SECTIONS[0], *STATISTICS.get(kind, ["significance", "calibration"]), *sections(kind)[1:]]
    assert "95 % CI: 61.2 to 82.3" in page.text
    assert sum(a.get("class") == "band" for _, a in page.tags) == 4  # one per predictor
    assert "learned-pool 74.50 (61.20 to 82.30)" in page.alternatives()[0] or kind != "span"
    assert (
        "2,000 resamples of the 3 contexts of dev, drawn with replacement, keeping all questions on a context"
        in page.text
    )
    assert "Holm-corrected over all 5 tests" in page.text
    assert page.text.count("+4.50 ahead") == 2  # the best head minus the encoder and the control
    assert page.text.count("\N{MINUS SIGN}4.50 behind") == 3  # all others minus the best head
    assert page.text.count("p 0.500") == 2 + 1  # the encoder and the control appear on both sides
    reliability = [alternative for alternative in page.alternatives() if alternative.startswith("Reliability of")]
    assert len(reliability) == 2 * len({"span": "12", "regress": ""}.get(kind, "1"))
    assert all(
        alternative.endswith("Observed frequency at predicted probability (examples): 0.50 at 0.25 (3).")
        for alternative in reliability
    )
    assert ("ECE 12.0 before, 3.4 after scaling" in page.text) == bool(reliability)
    assert ("78.00at 1.50" in page.text) == ("upper bound, not a result" in page.text) == (kind == "span")


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_data_never_become_markup(make_run: Any, kind: str, trust: bool) -> None:
    plain = report(make_run(kind, trust=trust))
    folder, task = make_run(kind, plain=lambda text: text + NASTY, pool="pool" + NASTY, trust=trust)
    shutil.rmtree(folder / "heads" / "learned-pool")
    page = report((folder, task))
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    texts_by_kind = {"span": ["question", "answer", " context-end"], "classify": ["text", "pair", "label-no"]}
    always_shown = [
        "task",
        "encoder-name",
        "method",
        "advice",
        "baseline",
        "ensemble",
        "member",
        "recipe",
        "dtype",
        "pool",
    ]
    texts_by_kind["multilabel"] = texts_by_kind["classify"]
    for text in [*always_shown, *texts_by_kind.get(kind, ["text", "pair"])]:
        assert text + NASTY in page.text, text
    assert "id8" + NASTY in page.everything


@pytest.mark.parametrize("nasty", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_page_loads_nothing_and_allows_only_its_own_script(make_run: Any, kind: str, nasty: bool) -> None:
    path = write_report(*make_run(kind, plain=lambda text: text + NASTY * nasty))
    page = Page(path)
    for tag, attributes in page.tags:
        assert not set(attributes) & set(LOADING)
        assert attributes.get("href", "#").startswith("#")
        assert tag != "link"
    content = path.read_text(encoding="utf-8")
    assert "http:" not in content
    assert "https:" not in content
    assert "url(" not in content
    assert "@import" not in content
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    scripts = [a.get("type", "") for tag, a in page.tags if tag == "script"]
    assert scripts == ([] if kind == "regress" else ["application/json", ""])
    assert ("script-src" in policy) == bool(scripts)
    if scripts:
        digest = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
        assert policy.endswith(f"script-src 'sha256-{digest}'")
        assert page.scripts[-1] == read_asset(SCRIPT)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "regress"])
def test_explorer_has_the_answers_of_every_predictor(make_run: Any, kind: str) -> None:
    folder, task = make_run(kind, plain=lambda text: text + NASTY)
    data = json.loads(report((folder, task)).scripts[0])
    assert data["models"] == ["learned-pool, seed 0", "encoder", "probe:layers=last1, seed 0"]
    assert {entry["id"] for entry in data["examples"]} == {example.id for example in task["dev"]}
    correct = {entry["id"]: [answer[1] for answer in entry["said"]] for entry in data["examples"]}
    assert [correct[example.id] for example in task["dev"]] == [[1] * 3, [1] * 3, [0] * 3, [0] * 3]
    if kind == "span":
        entry = next(entry for entry in data["examples"] if entry["id"] == task["dev"][1].id)
        start, end = entry["spans"][0]
        context = data["contexts"][entry["context"]]
        assert context[start:end] == entry["gold"] == "answer" + NASTY
        assert entry["said"][0] == ["answer" + NASTY, 1, start, end]


def test_explorer_shortens_long_contexts_around_the_answers(make_run: Any) -> None:
    folder, task = make_run(
        "span", plain=lambda text: "word " * MAX_LENGTH + text if text == "context-start " else text
    )
    page = report((folder, task))
    assert "the part around the answers" in page.text
    data = json.loads(page.scripts[0])
    for entry in data["examples"]:
        context = data["contexts"][entry["context"]]
        assert len(context) == MAX_LENGTH
        spans = [*entry["spans"], *(answer[2:] for answer in entry["said"] if len(answer) > 2)]
        assert {context[start:end] for start, end in spans} <= {"answer", "word w"}
    assert sum(len(entry["spans"]) for entry in data["examples"]) == 2


def test_saved_answer_positions_are_used_and_guesses_are_marked(make_run: Any) -> None:
    folder, task = make_run("span")
    example = task["dev"][1]
    ambiguous = replace(example, pair=f"{example.pair} answer")
    task = replace(task, splits={**task.splits, "dev": (task["dev"][0], ambiguous, *task["dev"][2:])})
    page = report((folder, task))
    assert page.text.count("has no saved answer positions") == 2  # the explorer, the examples
    end = len(ambiguous.pair or "")
    for path in (folder / "predictions").glob("*.json"):
        write_json(folder / "predictions" / "places" / path.name, {example.id: [end - 6, end]})
    page = report((folder, task))
    assert "has no saved answer positions" not in page.text
    entry = next(entry for entry in json.loads(page.scripts[0])["examples"] if entry["id"] == example.id)
    assert entry["said"][0] == ["answer", 1, end - 6, end]
    assert entry["spans"][0][0] < end - 6


@pytest.mark.parametrize("nasty", ["", NASTY])
@pytest.mark.parametrize("kind", ["span", "classify", "multilabel"])
def test_disagreements_show_gold_and_texts(make_run: Any, kind: str, nasty: str) -> None:
    folder, task = make_run(kind, plain=lambda text: text + nasty)
    run = gather(folder, task)
    no_answer = {"span": "", "classify": task.labels[:1], "multilabel": []}[kind]
    constant_answers = dict.fromkeys((e.id for e in task["dev"]), no_answer[0] if kind == "classify" else no_answer)
    run = replace(run, answers={**run.answers, ("encoder", None): constant_answers})
    save_findings(folder, run, file_findings(run, ["agreement"]))
    page = report((folder, task))
    cards = page.text[page.text.index("examples of disagreement") : page.text.rindex("Tuning and extraction")]
    golds = {"span": "answer", "classify": "label-yes", "multilabel": "label-no"}
    assert f"gold{golds[kind]}{nasty}" in cards
    assert ("goldno answer" in cards) == (kind == "span")
    assert ("encoderno label" in cards) == (kind == "multilabel")
    assert ("context-start" if kind == "span" else "pair") + nasty in cards.replace(" " + nasty, nasty)


@pytest.mark.parametrize("nasty", ["", NASTY])
def test_several_runs_on_one_page_have_distinct_ids(make_run: Any, tmp_path: Path, nasty: str) -> None:
    folder, task = make_run("span", plain=lambda text: text + nasty)
    shutil.copytree(folder, tmp_path / "two")
    runs = [gather(folder, task), gather(tmp_path / "two", task)]
    page = Page(write_page(runs, tmp_path / "both.html"))
    first = ["run1", *(f"run1-{name}" for name in SECTIONS)]
    assert page.sections == [*first, *(name.replace("run1", "run2") for name in first)]
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(names)) == len(names)
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert links == {f"#{name}" for name in names}
    assert "2 runs" in page.text
    assert page.text.count("encoder-name" + nasty) >= 4  # the overview, and both heads
    assert [a.get("type") for tag, a in page.tags if tag == "script"] == ["application/json"] * 2 + [None]


def test_findings_are_shown_unless_the_leaderboard_changed(make_run: Any) -> None:
    folder, task = make_run("span", plain=lambda text: text + NASTY)
    run = gather(folder, task)
    findings = file_findings(run)
    assert [finding.name for finding in findings] == [
        *("answer-types", "context-length", "answer-length", "question-word", "agreement", "layer-weights", "cost")
    ]
    save_findings(folder, run, findings)
    page = report((folder, task))
    assert "analyses" in page.sections
    assert "With and without an answer" in page.text
    assert "bertvision analyse runs/again" in page.text
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    pictures = [a for tag, a in page.tags if tag == "svg" and a.get("aria-hidden") != "true"]
    assert len(page.alternatives()) == len(pictures)
    document = json.loads((folder / "leaderboard.json").read_text())
    document["rows"][0]["scores"]["f1"] += 1
    write_json(folder / "leaderboard.json", document)
    assert "With and without an answer" not in report((folder, task)).text


def missing_analyses(run: tuple[Path, Any]) -> list[str]:
    """Names of the missing analyses that a report lists, from their commands."""
    content = write_report(*run).read_text(encoding="utf-8")
    listed = content.partition('<dl class="missing">')[2].partition("</dl>")[0]
    return re.findall(r"<code>bertvision analyse [^<]* --what ([\w-]+)</code>", listed)


@pytest.mark.parametrize(
    ("kind", "first"),
    [("span", ["second-best"]), ("classify", ["labels"]), ("multilabel", ["labels"]), ("regress", ["labels"])],
)
def test_missing_analyses_are_listed(make_run: Any, kind: str, first: list[str]) -> None:
    assert missing_analyses(make_run(kind)) == [*first, "cost", "layers"]
    folder, task = make_run(kind, trust=True)
    assert missing_analyses((folder, task)) == [*first, "cost", "layers", "depth", "learning-curve"]
    path = folder / "encoder" / "bertvision.json"
    delta_encoder = {"own": {"spec": "probe"}, "small": {"put_in": "adapters:size=8"}}
    write_json(path, {**json.loads(path.read_text()), **delta_encoder})
    assert "ablation" in missing_analyses((folder, task))
    write_json(path, {**json.loads(path.read_text()), "small": {"put_in": "lora:r=8"}})
    assert "ablation" not in missing_analyses((folder, task))


def test_existing_analyses_are_not_listed_as_missing(make_run: Any) -> None:
    folder, task = make_run("span")
    run = gather(folder, task)
    layers = Finding("layers", "Score by layer", "", {"at": "layer"}, ({"at": 0},))
    save_findings(folder, run, [*file_findings(run), layers])
    assert missing_analyses((folder, task)) == ["second-best", "cost"]  # files have no seconds of inference
    path = folder / "analysis" / "cost.json"
    document = json.loads(path.read_text())
    document["rows"] = [{**row, "inference_seconds": 1.0} for row in document["rows"]]
    write_json(path, document)
    assert missing_analyses((folder, task)) == ["second-best"]


def test_commands_of_missing_analyses_quote_the_run_folder(make_run: Any, tmp_path: Path) -> None:
    folder, task = make_run("classify")
    moved = folder.rename(tmp_path / "my <b>run")
    page = report((moved, task))
    assert f"bertvision analyse '{moved}' --what layers" in page.text
    assert "<b>run" not in (moved / "report.html").read_text(encoding="utf-8")


def with_markup(value: Any, key: str = "") -> Any:
    """A document with markup appended to every text, including names of series and columns."""
    if isinstance(value, dict):
        return {name if key in ("", "plots") else name + NASTY: with_markup(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [with_markup(item, key) for item in value]
    return value + NASTY if isinstance(value, str) and key not in ("kind", "name", "made_from") else value


def test_findings_never_become_markup(make_run: Any) -> None:
    folder, task = make_run("span")
    run = gather(folder, task)
    save_findings(folder, run, file_findings(run))
    plain = report((folder, task))
    for path in (folder / "analysis").glob("*.json"):
        write_json(path, with_markup(json.loads(path.read_text(encoding="utf-8"))))
    page = report((folder, task))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.everything.count(NASTY) > 50


@pytest.mark.parametrize("count", [0, 3, 60])
def test_likely_label_errors_have_a_section_with_the_first_rows(make_run: Any, count: int) -> None:
    folder, task = make_run("classify")
    row = {"text": "x" * 500 + NASTY, "pair": NASTY, "given": "bad", "suggested": NASTY, "doubt": 0.5, "agree": 2}
    rows = tuple({"id": f"train.csv:{number}", **row} for number in range(count))
    finding = Finding("labels", f"{count} label errors", "about", {key: key for key in ("id", *row)}, rows)
    save_findings(folder, gather(folder, task), [finding])
    page = report((folder, task))
    assert page.sections.index("label-errors") == page.sections.index("examples") + 1
    assert f"{count} label errors. about" in page.text
    assert page.text.count("train.csv:") == min(count, 50)
    assert ("10 more rows in analysis/labels.json" in page.text) == (count == 60)
    assert "x" * 201 not in page.text
    assert page.text.count(NASTY) == 2 * min(count, 50)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert (folder / "analysis" / "labels.csv").read_text(encoding="utf-8").count("train.csv:") == count


def test_broken_finding_is_an_error(make_run: Any) -> None:
    folder, task = make_run("classify")
    run = gather(folder, task)
    save_findings(folder, run, file_findings(run, ["context-length"]))
    path = folder / "analysis" / "context-length.json"
    document = json.loads(path.read_text())
    del document["plots"]
    write_json(path, document)
    with pytest.raises(BadInput, match=r"context-length\.json is not a finding: .*delete it"):
        report((folder, task))


def test_control_characters_are_replaced(make_run: Any) -> None:
    page = report(make_run("classify", plain=lambda text: text.replace("pair", "p\ud800\x00\x1b\u202eair")))
    assert "p\ufffd\ufffd\ufffd\ufffdair" in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_has_an_alternative_text(make_run: Any, kind: str) -> None:
    page = report(make_run(kind))
    pictures = [a for tag, a in page.tags if tag == "svg" and a.get("aria-hidden") != "true"]
    assert len(page.alternatives()) == len(pictures) == (5 if kind == "regress" else 4)
    assert all(len(text) > 20 for text in page.alternatives())


@pytest.mark.parametrize("kind", KINDS)
def test_report_is_deterministic(make_run: Any, kind: str) -> None:
    run = make_run(kind)
    assert write_report(*run).read_bytes() == write_report(*run).read_bytes()


def test_report_of_fit_without_recipe_and_with_an_external_store(make_run: Any, tmp_path: Path) -> None:
    folder, task = make_run("span")
    shutil.rmtree(folder / "encoder")
    (folder / "recipe.toml").unlink()
    (folder / "log.jsonl").unlink()
    (folder / "store").rename(tmp_path / "elsewhere")
    write_json(folder / "source.json", {"store": str(tmp_path / "elsewhere")})
    page = report((folder, task))
    assert page.sections == SECTIONS
    assert "encoder-name" in page.text
    assert "bertvision run recipe.toml" not in page.text
    assert "bertvision fit STORE --head learned-pool --head probe:layers=last1 --seeds 0,1 --out" in page.text


def test_print_style_hides_the_explorer_and_unfolds_details() -> None:
    paper = read_asset(STYLE).partition("@media print")[2]
    assert 'section[id$="explorer"] { display: none; }' in paper
    assert "details::details-content { content-visibility: visible;" in paper
    assert 'addEventListener("beforeprint"' in read_asset(SCRIPT)


def log_line(folder: Path, **line: Any) -> None:
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def test_commands_are_listed_once_in_order_with_versions(make_run: Any) -> None:
    folder, task = make_run("span")
    run, fit = ["run", "squad2", "--out", "my runs/x"], ["fit", "my runs/x/store", "--head", "a" + NASTY]
    for words, torch in ((run, "2.1"), ([*run, "--json"], "2.1"), (fit, "2.2"), (run, "2.2")):
        log_line(folder, step="command", words=words, versions={"python": "3.12", "torch": torch})
    log_line(folder, step="fit", versions={"torch": "2.2" + NASTY})
    text = report((folder, task)).text
    commands = text[text.index("# python 3.12, torch 2.1") :]
    assert commands.startswith(
        "# python 3.12, torch 2.1\nbertvision run squad2 --out 'my runs/x'\n# python 3.12, torch 2.2"
    )
    assert commands.count("bertvision run squad2") == 1
    assert "--head 'a" in commands
    assert NASTY.split("'")[0] in commands
    assert f"Run with torch 2.2{NASTY}." in text
    assert "written with" not in text
    assert "bertvision run recipe.toml --out runs/again" in text


def test_commands_show_changes_of_the_working_directory(make_run: Any) -> None:
    folder, task = make_run("span")
    for words, where in (("run", "/my work"), ("analyse", "/my work"), ("analyse", "/home" + NASTY)):
        log_line(folder, step="command", words=[words], where=where, versions={"torch": "2.1"})
    text = report((folder, task)).text
    first = "# torch 2.1\ncd '/my work'\nbertvision run\nbertvision analyse\ncd "
    assert first in text
    assert text.split(first)[1].startswith("'/home\"><img")


def test_fit_commands_are_reconstructed_without_recorded_commands(make_run: Any) -> None:
    folder, task = make_run("span")
    log_line(folder, step="run")
    assert "bertvision fit" not in report((folder, task)).text
    log_line(folder, step="fit", heads=["tanh", "a b"], seeds=[1, 0])
    text = report((folder, task)).text
    assert "bertvision fit runs/again/store --head tanh --head 'a b' --seeds 0,1" in text
    assert "Library versions were not recorded" in text


def test_unequal_numbers_of_seeds_are_shown_as_a_range(make_run: Any) -> None:
    folder, task = make_run("span")
    assert "2 seeds each" in write_report(folder, task).read_text(encoding="utf-8")
    path = folder / "leaderboard.json"
    leaderboard = json.loads(path.read_text(encoding="utf-8"))
    last = next(row for row in reversed(leaderboard["rows"]) if row["kind"] == "head")
    write_json(path, {**leaderboard, "rows": [row for row in leaderboard["rows"] if row is not last]})
    assert "1 to 2 seeds each" in write_report(folder, task).read_text(encoding="utf-8")


def test_report_needs_only_the_leaderboard(make_run: Any) -> None:
    folder, task = make_run("span")
    for child in list(folder.iterdir()):
        if child.name != "leaderboard.json":
            shutil.rmtree(child) if child.is_dir() else child.unlink()
    assert report((folder, task)).sections == ["leaderboard", "cost", "reproducibility"]


def test_missing_leaderboard_is_an_error(make_run: Any) -> None:
    folder, task = make_run("span")
    (folder / "leaderboard.json").unlink()
    with pytest.raises(BadInput, match=r"leaderboard\.json is missing; make it with: bertvision evaluate"):
        write_report(folder, task)


def test_invalid_scores_are_shown_as_dashes(make_run: Any) -> None:
    folder, task = make_run("span")
    document = json.loads((folder / "leaderboard.json").read_text())
    for row in document["rows"]:
        row["scores"]["f1"], row["inner"] = float("nan"), {}
    write_json(folder / "leaderboard.json", document)
    page = report((folder, task))
    assert "nan" not in page.everything.lower().replace("unanswer", "")
    assert "\N{EM DASH}" in page.text


def test_nan_and_infinity_are_left_out_of_charts(make_run: Any) -> None:
    folder, task = make_run("span")
    for path in folder.glob("heads/*/seed0/head.json"):
        facts = json.loads(path.read_text())
        facts["history"][0]["inner"] = float("nan")
        facts["layer_weights"] = facts["layer_weights"] and [float("nan"), 0.5, float("inf")]
        write_json(path, facts)
    page = report((folder, task))
    coordinates = [value for _, a in page.tags for name, value in a.items() if name in ("cx", "cy", "x", "y", "points")]
    assert len(coordinates) > 50
    assert not re.search("nan|inf", "".join(coordinates))


def leaderboard_names(page: Page) -> list[str]:
    """Names in the leaderboard, top to bottom, from the text of the dot plot."""
    return [entry.split(" ")[0] for entry in page.alternatives()[0].split(": ", 1)[1].split("; ")]


def test_leaderboard_is_sorted_by_inner_and_spans_all_seeds(make_run: Any) -> None:
    folder, task = make_run("span")
    page = report((folder, task))
    assert [name.split("=")[0] for name in leaderboard_names(page)[:4]] == [
        "learned-pool",
        "ensemble",
        "encoder",
        "probe:layers",
    ]
    assert "74.5074.00\N{EN DASH}75.00" in page.text  # mean, then lowest to highest
    assert "total" not in page.text
    assert "One example of dev corresponds to 25.00 points" in page.text


def test_single_seed_has_no_range(make_run: Any) -> None:
    folder, task = make_run("span")
    document = json.loads((folder / "leaderboard.json").read_text())
    document["rows"] = [row for row in document["rows"] if row["seed"] in (None, 0)]
    write_json(folder / "leaderboard.json", document)
    page = report((folder, task))
    assert "\N{EN DASH}" not in page.text
    assert "Seed: 0." in page.text


def test_heads_missing_from_the_leaderboard_are_not_shown(make_run: Any) -> None:
    folder, task = make_run("span")
    shutil.copytree(folder / "heads" / "learned-pool", folder / "heads" / "old")
    for path in (folder / "heads" / "old").glob("*/head.json"):
        write_json(path, {**json.loads(path.read_text()), "spec": "old-head"})
    assert "old-head" not in report((folder, task)).everything


def test_label_counts_of_train_are_shown(make_run: Any) -> None:
    folder, task = make_run("multilabel")
    assert "label-no 2, label-yes 2" in report((folder, task)).text
    assert "any number of 2 labels" in report((folder, task)).text
    weighed = replace(task, class_weights=(1.0, 2.0))
    assert "label-no 2, label-yes 2; class weights balance the loss" in report((folder, weighed)).text
    assert "labels in train" not in report(make_run("regress")).text


def test_layer_weights_are_labelled_by_state(make_run: Any) -> None:
    page = report(make_run("classify"))
    alternative = next(text for text in page.alternatives() if "layer weights" in text)
    assert alternative == "Mean layer weights of learned-pool by state. 0: 0.200, 4: 0.300, 8: 0.500."
    assert "Largest: state 8 (0.500); smallest: state 0 (0.200); uniform weights: 0.333." in page.text


def test_training_curves_mark_the_selected_epoch(make_run: Any) -> None:
    page = report(make_run("regress"))
    alternative = next(text for text in page.alternatives() if "by epoch" in text)
    assert "seed 0: 51.00, 52.00, 53.00, epoch 2 selected; seed 1: " in alternative
    assert "Selected: epoch 2 (seed 0), epoch 2 (seed 1)." in page.text
    assert sum(a.get("class") == "kept" for _, a in page.tags) == 4 + 1  # two heads, two seeds, and the legend


def test_control_is_marked_and_explained_if_present(make_run: Any) -> None:
    folder, task = make_run("span")
    with_control = report((folder, task))
    assert sum("control" in a.get("class", "").split() for _, a in with_control.tags) == 1 + 2  # its row, its dots
    assert "comes from refitting, not from additional layers" in with_control.text
    document = json.loads((folder / "leaderboard.json").read_text())
    document["rows"] = [row for row in document["rows"] if not row["name"].startswith("probe")]
    write_json(folder / "leaderboard.json", document)
    assert "comes from refitting" not in report((folder, task)).text
