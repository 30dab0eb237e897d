"""The report: complete, well-formed, safe for any data, and made from whatever files exist."""

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
    """A parsed page; tags that do not close in order are an error."""

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
    """The sections of a report; regression has no right and wrong, hence no explorer."""
    return [name for name in SECTIONS if name != "explorer" or kind != "regress"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_in_order_and_well_formed(make_run: Any, kind: str) -> None:
    page = report(make_run(kind))
    assert page.sections == sections(kind)
    assert [a["href"] for tag, a in page.tags if tag == "a"] == [f"#{name}" for name in sections(kind)]
    for fact in ("encoder-name", "tuned 0.3 epochs", "17 steps", "2031-05-06", "advice", "baseline", "control"):
        assert fact in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_have_their_own_sections(make_run: Any, kind: str) -> None:
    page = report(make_run(kind, trust=True))
    assert page.sections == [SECTIONS[0], *STATISTICS.get(kind, ["significance", "calibration"]), *sections(kind)[1:]]
    assert "95 % CI: 61.2 to 82.3" in page.text
    assert sum(a.get("class") == "band" for _, a in page.tags) == 4  # one a predictor
    assert "learned-pool 74.50 (61.20 to 82.30)" in page.alternatives()[0] or kind != "span"
    assert (
        "2,000 resamples of the 3 contexts of dev, drawn with replacement, keeping all questions on a context"
        in page.text
    )
    assert "Holm-corrected over all 5 tests" in page.text
    assert page.text.count("+4.50 ahead") == 2  # the best head minus the encoder and the control
    assert page.text.count("\N{MINUS SIGN}4.50 behind") == 3  # all others minus the best head
    assert page.text.count("p 0.500") == 2 + 1  # the encoder and the control are seen from both sides
    pictures = [told for told in page.alternatives() if told.startswith("Reliability of")]
    assert len(pictures) == 2 * len({"span": "12", "regress": ""}.get(kind, "1"))
    assert all(
        told.endswith("Observed frequency at predicted probability (examples): 0.50 at 0.25 (3).") for told in pictures
    )
    assert ("ECE 12.0 before, 3.4 after scaling" in page.text) == bool(pictures)
    assert ("78.00at 1.50" in page.text) == ("upper bound, not a result" in page.text) == (kind == "span")


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_the_data_becomes_markup(make_run: Any, kind: str, trust: bool) -> None:
    plain = report(make_run(kind, trust=trust))
    folder, task = make_run(kind, plain=lambda text: text + NASTY, pool="pool" + NASTY, trust=trust)
    shutil.rmtree(folder / "heads" / "learned-pool")
    page = report((folder, task))
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    asked = {"span": ["question", "answer", " context-end"], "classify": ["text", "pair", "label-no"]}
    places = ["task", "encoder-name", "method", "advice", "baseline", "ensemble", "member", "recipe", "dtype", "pool"]
    asked["multilabel"] = asked["classify"]
    for place in [*places, *asked.get(kind, ["text", "pair"])]:
        assert place + NASTY in page.text, place
    assert "id8" + NASTY in page.everything


@pytest.mark.parametrize("nasty", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_loaded_and_only_the_pages_own_script_runs(make_run: Any, kind: str, nasty: bool) -> None:
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
def test_the_explorer_knows_what_every_predictor_said(make_run: Any, kind: str) -> None:
    folder, task = make_run(kind, plain=lambda text: text + NASTY)
    data = json.loads(report((folder, task)).scripts[0])
    assert data["models"] == ["learned-pool, seed 0", "encoder", "probe:layers=last1, seed 0"]
    assert {one["id"] for one in data["examples"]} == {example.id for example in task["dev"]}
    right = {one["id"]: [said[1] for said in one["said"]] for one in data["examples"]}
    assert [right[example.id] for example in task["dev"]] == [[1] * 3, [1] * 3, [0] * 3, [0] * 3]
    if kind == "span":
        one = next(one for one in data["examples"] if one["id"] == task["dev"][1].id)
        start, end = one["spans"][0]
        context = data["contexts"][one["context"]]
        assert context[start:end] == one["gold"] == "answer" + NASTY
        assert one["said"][0] == ["answer" + NASTY, 1, start, end]


def test_the_explorer_holds_the_part_of_a_long_context_that_has_the_answers(make_run: Any) -> None:
    folder, task = make_run(
        "span", plain=lambda text: "word " * MAX_LENGTH + text if text == "context-start " else text
    )
    page = report((folder, task))
    assert "the part around the answers" in page.text
    data = json.loads(page.scripts[0])
    for one in data["examples"]:
        context = data["contexts"][one["context"]]
        assert len(context) == MAX_LENGTH
        places = [*one["spans"], *(said[2:] for said in one["said"] if len(said) > 2)]
        assert {context[start:end] for start, end in places} <= {"answer", "word w"}
    assert sum(len(one["spans"]) for one in data["examples"]) == 2


def test_a_place_that_was_kept_is_shown_and_a_guess_is_called_one(make_run: Any) -> None:
    folder, task = make_run("span")
    example = task["dev"][1]
    twice = replace(example, pair=f"{example.pair} answer")
    task = replace(task, splits={**task.splits, "dev": (task["dev"][0], twice, *task["dev"][2:])})
    page = report((folder, task))
    assert page.text.count("has no saved answer positions") == 2  # the explorer, the examples
    end = len(twice.pair or "")
    for path in (folder / "predictions").glob("*.json"):
        write_json(folder / "predictions" / "places" / path.name, {example.id: [end - 6, end]})
    page = report((folder, task))
    assert "has no saved answer positions" not in page.text
    one = next(one for one in json.loads(page.scripts[0])["examples"] if one["id"] == example.id)
    assert one["said"][0] == ["answer", 1, end - 6, end]
    assert one["spans"][0][0] < end - 6


@pytest.mark.parametrize("nasty", ["", NASTY])
@pytest.mark.parametrize("kind", ["span", "classify", "multilabel"])
def test_disagreements_show_gold_and_texts(make_run: Any, kind: str, nasty: str) -> None:
    folder, task = make_run(kind, plain=lambda text: text + nasty)
    run = gather(folder, task)
    silent = {"span": "", "classify": task.labels[:1], "multilabel": []}[kind]
    none = dict.fromkeys((e.id for e in task["dev"]), silent[0] if kind == "classify" else silent)
    run = replace(run, answers={**run.answers, ("encoder", None): none})
    save_findings(folder, run, file_findings(run, ["agreement"]))
    page = report((folder, task))
    cards = page.text[page.text.index("examples of disagreement") : page.text.rindex("Tuning and extraction")]
    golds = {"span": "answer", "classify": "label-yes", "multilabel": "label-no"}
    assert f"gold{golds[kind]}{nasty}" in cards
    assert ("goldno answer" in cards) == (kind == "span")
    assert ("encoderno label" in cards) == (kind == "multilabel")
    assert ("context-start" if kind == "span" else "pair") + nasty in cards.replace(" " + nasty, nasty)


@pytest.mark.parametrize("nasty", ["", NASTY])
def test_several_runs_in_one_page(make_run: Any, tmp_path: Path, nasty: str) -> None:
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


def test_findings_are_shown_unless_the_board_has_changed(make_run: Any) -> None:
    folder, task = make_run("span", plain=lambda text: text + NASTY)
    run = gather(folder, task)
    made = file_findings(run)
    assert [one.name for one in made] == [
        *("answer-types", "context-length", "answer-length", "question-word", "agreement", "layer-weights", "cost")
    ]
    save_findings(folder, run, made)
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


def missing_in(run: tuple[Path, Any]) -> list[str]:
    """Names of the missing analyses that a report lists, from their commands."""
    content = write_report(*run).read_text(encoding="utf-8")
    listed = content.partition('<dl class="missing">')[2].partition("</dl>")[0]
    return re.findall(r"<code>bertvision analyse [^<]* --what ([\w-]+)</code>", listed)


@pytest.mark.parametrize(
    ("kind", "first"),
    [("span", ["second-best"]), ("classify", []), ("multilabel", []), ("regress", [])],
)
def test_what_applies_and_was_not_made_is_listed(make_run: Any, kind: str, first: list[str]) -> None:
    assert missing_in(make_run(kind)) == [*first, "cost", "layers"]
    folder, task = make_run(kind, trust=True)
    assert missing_in((folder, task)) == [*first, "cost", "layers", "depth", "learning-curve"]
    path = folder / "encoder" / "bertvision.json"
    small = {"own": {"spec": "probe"}, "small": {"put_in": "adapters:size=8"}}
    write_json(path, {**json.loads(path.read_text()), **small})
    assert "ablation" in missing_in((folder, task))
    write_json(path, {**json.loads(path.read_text()), "small": {"put_in": "lora:r=8"}})
    assert "ablation" not in missing_in((folder, task))


def test_what_was_made_is_not_listed(make_run: Any) -> None:
    folder, task = make_run("span")
    run = gather(folder, task)
    layers = Finding("layers", "Score by layer", "", {"at": "layer"}, ({"at": 0},))
    save_findings(folder, run, [*file_findings(run), layers])
    assert missing_in((folder, task)) == ["second-best", "cost"]  # files do not tell what inference takes
    path = folder / "analysis" / "cost.json"
    document = json.loads(path.read_text())
    document["rows"] = [{**row, "inference_seconds": 1.0} for row in document["rows"]]
    write_json(path, document)
    assert missing_in((folder, task)) == ["second-best"]


def test_commands_of_what_is_lacking_name_the_run_as_a_shell_wants_it(make_run: Any, tmp_path: Path) -> None:
    folder, task = make_run("classify")
    place = folder.rename(tmp_path / "my <b>run")
    page = report((place, task))
    assert f"bertvision analyse '{place}' --what layers" in page.text
    assert "<b>run" not in (place / "report.html").read_text(encoding="utf-8")


def hostile(value: Any, key: str = "") -> Any:
    """Every text of a document, names of series and columns included, with markup behind it."""
    if isinstance(value, dict):
        return {name if key in ("", "plots") else name + NASTY: hostile(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one, key) for one in value]
    return value + NASTY if isinstance(value, str) and key not in ("kind", "name", "made_from") else value


def test_nothing_in_a_finding_becomes_markup(make_run: Any) -> None:
    folder, task = make_run("span")
    run = gather(folder, task)
    save_findings(folder, run, file_findings(run))
    plain = report((folder, task))
    for path in (folder / "analysis").glob("*.json"):
        write_json(path, hostile(json.loads(path.read_text(encoding="utf-8"))))
    page = report((folder, task))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.everything.count(NASTY) > 50


def test_what_is_no_finding_is_named(make_run: Any) -> None:
    folder, task = make_run("classify")
    run = gather(folder, task)
    save_findings(folder, run, file_findings(run, ["context-length"]))
    path = folder / "analysis" / "context-length.json"
    document = json.loads(path.read_text())
    del document["plots"]
    write_json(path, document)
    with pytest.raises(BadInput, match=r"context-length\.json is not a finding: .*delete it"):
        report((folder, task))


def test_text_that_a_page_cannot_hold_is_replaced(make_run: Any) -> None:
    page = report(make_run("classify", plain=lambda text: text.replace("pair", "p\ud800\x00\x1b\u202eair")))
    assert "p\ufffd\ufffd\ufffd\ufffdair" in page.text


@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_has_an_alternative_text(make_run: Any, kind: str) -> None:
    page = report(make_run(kind))
    pictures = [a for tag, a in page.tags if tag == "svg" and a.get("aria-hidden") != "true"]
    assert len(page.alternatives()) == len(pictures) == (5 if kind == "regress" else 4)
    assert all(len(text) > 20 for text in page.alternatives())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_bytes(make_run: Any, kind: str) -> None:
    run = make_run(kind)
    assert write_report(*run).read_bytes() == write_report(*run).read_bytes()


def test_a_run_made_by_fit_has_no_recipe_and_a_store_elsewhere(make_run: Any, tmp_path: Path) -> None:
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


def test_print_hides_the_explorer_with_its_heading_and_unfolds_the_rest() -> None:
    paper = read_asset(STYLE).partition("@media print")[2]
    assert 'section[id$="explorer"] { display: none; }' in paper
    assert "details::details-content { content-visibility: visible;" in paper
    assert 'addEventListener("beforeprint"' in read_asset(SCRIPT)


def log_line(folder: Path, **line: Any) -> None:
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def test_what_was_typed_is_shown_once_and_in_order_with_its_versions(make_run: Any) -> None:
    folder, task = make_run("span")
    run, fit = ["run", "squad2", "--out", "my runs/x"], ["fit", "my runs/x/store", "--head", "a" + NASTY]
    for words, torch in ((run, "2.1"), ([*run, "--json"], "2.1"), (fit, "2.2"), (run, "2.2")):
        log_line(folder, step="command", words=words, versions={"python": "3.12", "torch": torch})
    log_line(folder, step="fit", versions={"torch": "2.2" + NASTY})
    text = report((folder, task)).text
    typed = text[text.index("# python 3.12, torch 2.1") :]
    assert typed.startswith(
        "# python 3.12, torch 2.1\nbertvision run squad2 --out 'my runs/x'\n# python 3.12, torch 2.2"
    )
    assert typed.count("bertvision run squad2") == 1
    assert "--head 'a" in typed
    assert NASTY.split("'")[0] in typed
    assert f"Run with torch 2.2{NASTY}." in text
    assert "written with" not in text
    assert "bertvision run recipe.toml --out runs/again" in text


def test_the_folder_that_paths_begin_in_is_told_where_it_changes(make_run: Any) -> None:
    folder, task = make_run("span")
    for words, where in (("run", "/my work"), ("analyse", "/my work"), ("analyse", "/home" + NASTY)):
        log_line(folder, step="command", words=[words], where=where, versions={"torch": "2.1"})
    text = report((folder, task)).text
    first = "# torch 2.1\ncd '/my work'\nbertvision run\nbertvision analyse\ncd "
    assert first in text
    assert text.split(first)[1].startswith("'/home\"><img")


def test_heads_that_were_fitted_after_an_untyped_run_are_named(make_run: Any) -> None:
    folder, task = make_run("span")
    log_line(folder, step="run")
    assert "bertvision fit" not in report((folder, task)).text
    log_line(folder, step="fit", heads=["tanh", "a b"], seeds=[1, 0])
    text = report((folder, task)).text
    assert "bertvision fit runs/again/store --head tanh --head 'a b' --seeds 0,1" in text
    assert "Library versions were not recorded" in text


def test_heads_with_more_seeds_than_others_are_told(make_run: Any) -> None:
    folder, task = make_run("span")
    assert "2 seeds each" in write_report(folder, task).read_text(encoding="utf-8")
    path = folder / "leaderboard.json"
    board = json.loads(path.read_text(encoding="utf-8"))
    last = next(row for row in reversed(board["rows"]) if row["kind"] == "head")
    write_json(path, {**board, "rows": [row for row in board["rows"] if row is not last]})
    assert "1 to 2 seeds each" in write_report(folder, task).read_text(encoding="utf-8")


def test_the_leaderboard_alone_is_enough(make_run: Any) -> None:
    folder, task = make_run("span")
    for child in list(folder.iterdir()):
        if child.name != "leaderboard.json":
            shutil.rmtree(child) if child.is_dir() else child.unlink()
    assert report((folder, task)).sections == ["leaderboard", "cost", "reproducibility"]


def test_without_a_leaderboard_one_line_says_what_to_do(make_run: Any) -> None:
    folder, task = make_run("span")
    (folder / "leaderboard.json").unlink()
    with pytest.raises(BadInput, match=r"leaderboard\.json is missing; make it with: bertvision evaluate"):
        write_report(folder, task)


def test_scores_that_are_no_numbers_are_dashes(make_run: Any) -> None:
    folder, task = make_run("span")
    document = json.loads((folder / "leaderboard.json").read_text())
    for row in document["rows"]:
        row["scores"]["f1"], row["inner"] = float("nan"), {}
    write_json(folder / "leaderboard.json", document)
    page = report((folder, task))
    assert "nan" not in page.everything.lower().replace("unanswer", "")
    assert "\N{EM DASH}" in page.text


def test_numbers_that_cannot_be_drawn_are_left_out(make_run: Any) -> None:
    folder, task = make_run("span")
    for path in folder.glob("heads/*/seed0/head.json"):
        facts = json.loads(path.read_text())
        facts["history"][0]["inner"] = float("nan")
        facts["layer_weights"] = facts["layer_weights"] and [float("nan"), 0.5, float("inf")]
        write_json(path, facts)
    page = report((folder, task))
    places = [value for _, a in page.tags for name, value in a.items() if name in ("cx", "cy", "x", "y", "points")]
    assert len(places) > 50
    assert not re.search("nan|inf", "".join(places))


def rows_of(page: Page) -> list[str]:
    """Names in the leaderboard, top to bottom, from the text of the dot plot."""
    return [told.split(" ")[0] for told in page.alternatives()[0].split(": ", 1)[1].split("; ")]


def test_lines_are_sorted_by_inner_and_hold_all_seeds(make_run: Any) -> None:
    folder, task = make_run("span")
    page = report((folder, task))
    assert [name.split("=")[0] for name in rows_of(page)[:4]] == ["learned-pool", "ensemble", "encoder", "probe:layers"]
    assert "74.5074.00\N{EN DASH}75.00" in page.text  # mean, then lowest to highest
    assert "total" not in page.text
    assert "One example of dev corresponds to 25.00 points" in page.text


def test_one_seed_has_no_spread(make_run: Any) -> None:
    folder, task = make_run("span")
    document = json.loads((folder / "leaderboard.json").read_text())
    document["rows"] = [row for row in document["rows"] if row["seed"] in (None, 0)]
    write_json(folder / "leaderboard.json", document)
    page = report((folder, task))
    assert "\N{EN DASH}" not in page.text
    assert "Seed: 0." in page.text


def test_heads_that_left_the_leaderboard_are_not_shown(make_run: Any) -> None:
    folder, task = make_run("span")
    shutil.copytree(folder / "heads" / "learned-pool", folder / "heads" / "old")
    for path in (folder / "heads" / "old").glob("*/head.json"):
        write_json(path, {**json.loads(path.read_text()), "spec": "old-head"})
    assert "old-head" not in report((folder, task)).everything


def test_the_labels_of_train_are_counted_at_the_top(make_run: Any) -> None:
    folder, task = make_run("multilabel")
    assert "label-no 2, label-yes 2" in report((folder, task)).text
    assert "any number of 2 labels" in report((folder, task)).text
    weighed = replace(task, class_weights=(1.0, 2.0))
    assert "label-no 2, label-yes 2; class weights balance the loss" in report((folder, weighed)).text
    assert "labels in train" not in report(make_run("regress")).text


def test_layer_weights_name_the_stored_states(make_run: Any) -> None:
    page = report(make_run("classify"))
    told = next(text for text in page.alternatives() if "layer weights" in text)
    assert told == "Mean layer weights of learned-pool by state. 0: 0.200, 4: 0.300, 8: 0.500."
    assert "Largest: state 8 (0.500); smallest: state 0 (0.200); uniform weights: 0.333." in page.text


def test_curves_tell_which_epoch_was_kept(make_run: Any) -> None:
    page = report(make_run("regress"))
    told = next(text for text in page.alternatives() if "by epoch" in text)
    assert "seed 0: 51.00, 52.00, 53.00, epoch 2 selected; seed 1: " in told
    assert "Selected: epoch 2 (seed 0), epoch 2 (seed 1)." in page.text
    assert sum(a.get("class") == "kept" for _, a in page.tags) == 4 + 1  # two heads, two seeds, and the legend


def test_the_control_is_marked_and_explained_where_there_is_one(make_run: Any) -> None:
    folder, task = make_run("span")
    with_control = report((folder, task))
    assert sum("control" in a.get("class", "").split() for _, a in with_control.tags) == 1 + 2  # its line, its dots
    assert "comes from refitting, not from additional layers" in with_control.text
    document = json.loads((folder / "leaderboard.json").read_text())
    document["rows"] = [row for row in document["rows"] if not row["name"].startswith("probe")]
    write_json(folder / "leaderboard.json", document)
    assert "comes from refitting" not in report((folder, task)).text
