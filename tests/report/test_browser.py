"""The report in a real browser, from disk: filters work, nothing is fetched or complains, no data run."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, find_chromium
from report_file import write_report

from bertvision.cli.main import main
from bertvision.evaluation.analyses.catalogue import ANALYSES
from bertvision.report.page import write_page
from bertvision.runs.reader import gather
from bertvision.workflows.file_analyses import file_findings, save_findings

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here; set CHROMIUM to its path to run this")

NASTY = "</script><script>window.ran=1</script>\"'><img src=x onerror=window.ran=1>${window.ran=1}\u2028\U0001f600"
CARDS = "document.querySelectorAll('.explorer .card').length"


@pytest.fixture(scope="module", params=[1280, 390])
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    with Browser(PROGRAM, request.param) as opened:
        yield opened


def choose(browser: Any, name: str, value: str) -> int:
    """Set a control of the explorer, and how many examples are found then."""
    event = "input" if name == "query" else "change"
    browser.ask(
        f"(() => {{ const one = document.querySelector('.explorer .{name}'); one.value = {value!r};"
        f" one.dispatchEvent(new Event('{event}')); }})()"
    )
    return int(browser.ask("document.querySelector('.explorer .count').textContent").split(" ")[0])


def is_quiet(browser: Any) -> None:
    """No word on the console, no request but for the page itself, and nothing of the data ran."""
    assert browser.said("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    asked = [one["request"]["url"] for one in browser.said("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("file:", "about:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1
    assert browser.ask("window.ran === undefined")


@pytest.mark.parametrize("nasty", ["", NASTY])
def test_examples_are_filtered(make_run: Any, browser: Any, nasty: str) -> None:
    folder, task = make_run("span", plain=lambda text: text + nasty, pool="pool " + "of-a-long-name " * 5)
    run = gather(folder, task)
    save_findings(folder, run, file_findings(run))
    browser.events.clear()
    browser.open(write_report(folder, task))
    assert browser.ask(CARDS) == 4
    assert choose(browser, "result", "wrong") == 2
    assert browser.ask("document.querySelectorAll('.explorer .card.right').length") == 0
    assert choose(browser, "result", "silent") == 2  # once rightly, once not
    assert choose(browser, "secondresult", "wrong") == 1
    assert choose(browser, "secondresult", "") == 2
    assert choose(browser, "result", "right") == 2
    assert choose(browser, "query", "no such words") == 0
    assert choose(browser, "query", "CONTEXT-start") == 2
    assert choose(browser, "result", "") == 4
    golds = browser.ask("Array.from(document.querySelectorAll('.explorer mark.gold'), one => one.firstChild.data)")
    assert golds == ["answer" + nasty] * 2
    assert browser.ask("document.documentElement.scrollWidth") <= browser.width
    is_quiet(browser)


def called(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def whole_run(samples: Any, tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on adapters with every analysis that there is and, where Optuna is installed, a search."""
    folder = tmp_path_factory.mktemp("whole")
    samples.write_squad(folder / "train.json", samples.squad("t"))
    samples.write_squad(folder / "dev.json", samples.squad("d", 3))
    words = [*samples.squad_words(folder, tiny_encoder_folder), "--method", "adapters:size=8", "--lr", "3e-2"]
    run: Path = samples.made_run(folder, [*words, "--epochs", "10"])
    quick = ("--set", "fit.epochs=1", "--set", "fit.batch=8")
    called("analyse", run, "--what", "all", "--seeds", "0,1", "--shares", "0.5,1", *quick)
    if importlib.util.find_spec("optuna") is not None:
        called("search", run, "--heads", "probe", "--trials", 2, "--seeds", "0", *quick)
    called("report", run)
    return run


def outside(browser: Any, what: str) -> list[str]:
    """Texts of a sort that reach over an edge of the page; what lies in a box that scrolls may."""
    found = browser.ask(
        f"Array.from(document.querySelectorAll('{what}')).filter(one => {{ const box = one.getBoundingClientRect();"
        " return one.checkVisibility() && !one.closest('.scroll') && (box.right > innerWidth + 0.5 || box.left < -0.5);"
        " }).map(one => one.textContent)"
    )
    return list(found)


def test_a_real_run_with_everything_opens_from_disk(whole_run: Path, browser: Any) -> None:
    browser.events.clear()
    browser.open(whole_run / "report.html")
    assert sorted(path.stem for path in (whole_run / "analysis").glob("*.json") if path.stem in ANALYSES) == sorted(
        ANALYSES
    )
    assert browser.ask("document.querySelector('.missing') === null")
    counts = {value: choose(browser, "result", value) for value in ("right", "wrong", "silent", "")}
    assert counts["right"] + counts["wrong"] == counts[""] == browser.ask(CARDS) == 6
    data = json.loads(browser.ask("document.querySelector('script[type=\"application/json\"]').textContent"))
    said = [one["said"][0] for one in data["examples"]]
    assert counts["right"] == sum(right for _, right, *_ in said)
    assert counts["silent"] == sum(answer == "" for answer, *_ in said)
    assert choose(browser, "query", "ben live") == 3
    assert browser.ask("document.documentElement.scrollWidth") <= browser.width
    assert outside(browser, "svg text") == []
    is_quiet(browser)


def test_a_square_of_numbers_can_be_read_on_any_width(whole_run: Path, browser: Any) -> None:
    browser.events.clear()
    browser.open(whole_run / "report.html")
    square = "document.querySelector('svg.heat')"
    scale = browser.ask(f"{square}.getBoundingClientRect().width / {square}.viewBox.baseVal.width")
    assert 12 * scale > 10  # pixels of its text


def media(browser: Any, kind: str = "", scheme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", media=kind, features=features)


def disagreeing(make_run: Any) -> Path:
    """A report with examples of disagreement."""
    folder, task = make_run("classify")
    run = gather(folder, task)
    none = dict.fromkeys((example.id for example in task["dev"]), task.labels[0])
    run = replace(run, answers={**run.answers, ("encoder", None): none})
    save_findings(folder, run, file_findings(run, ["agreement"]))
    return write_report(folder, task)


def test_on_paper_nothing_is_empty_or_folded(make_run: Any, browser: Any) -> None:
    browser.events.clear()
    browser.open(disagreeing(make_run))
    height = "document.querySelector('{}').getBoundingClientRect().height"
    card = "document.querySelector('details .card').checkVisibility()"
    assert browser.ask(height.format("#explorer")) > 0
    assert not browser.ask(card)
    media(browser, "print")
    assert browser.ask(height.format("#explorer")) == 0
    assert browser.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.ask("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.ask(card)
    browser.ask("window.dispatchEvent(new Event('afterprint'))")
    media(browser)
    assert not browser.ask(card)
    is_quiet(browser)


def test_the_page_follows_the_systems_colours_and_paper_is_white(make_run: Any, browser: Any) -> None:
    browser.events.clear()
    browser.open(write_report(*make_run("span")))
    colour = "getComputedStyle(document.body).backgroundColor"
    found = []
    for kind, scheme in (("", "light"), ("", "dark"), ("print", "dark")):
        media(browser, kind, scheme)
        found.append(browser.ask(colour))
    media(browser)
    assert found == ["rgb(255, 255, 255)", "rgb(20, 23, 27)", "rgb(255, 255, 255)"]
    is_quiet(browser)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_other_kinds_open_without_complaint(make_run: Any, browser: Any, kind: str) -> None:
    browser.events.clear()
    browser.open(write_report(*make_run(kind, plain=lambda text: text + NASTY)))
    assert browser.ask(CARDS) == (0 if kind == "regress" else 4)
    assert browser.ask("document.documentElement.scrollWidth") <= browser.width
    is_quiet(browser)


def test_every_run_of_a_page_has_its_own_filter(make_run: Any, browser: Any, tmp_path: Path) -> None:
    run = gather(*make_run("span"))
    browser.events.clear()
    browser.open(write_page([run, run], tmp_path / "both.html"))
    assert choose(browser, "result", "wrong") == 2
    assert browser.ask(CARDS) == 2 + 4
    is_quiet(browser)
