"""The report in a real browser: filters work, nothing is fetched, no errors, and no data are executed."""

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
    """Set a control of the explorer and return the number of matching examples."""
    event = "input" if name == "query" else "change"
    browser.ask(
        f"(() => {{ const control = document.querySelector('.explorer .{name}'); control.value = {value!r};"
        f" control.dispatchEvent(new Event('{event}')); }})()"
    )
    return int(browser.ask("document.querySelector('.explorer .count').textContent").split(" ")[0])


def assert_no_errors_or_requests(browser: Any) -> None:
    """The console is empty, only the page itself was requested, and no script in the data ran."""
    assert browser.event_params("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    urls = [request["request"]["url"] for request in browser.event_params("Network.requestWillBeSent")]
    assert [url for url in urls if not url.startswith(("file:", "about:"))] == []
    assert len([url for url in urls if url.startswith("file:")]) == 1
    assert browser.ask("window.ran === undefined")


@pytest.mark.parametrize("nasty", ["", NASTY])
def test_explorer_filters_examples(make_run: Any, browser: Any, nasty: str) -> None:
    folder, task = make_run("span", plain=lambda text: text + nasty, pool="pool " + "of-a-long-name " * 5)
    run = gather(folder, task)
    save_findings(folder, run, file_findings(run))
    browser.events.clear()
    browser.open(write_report(folder, task))
    assert browser.ask(CARDS) == 4
    assert choose(browser, "result", "wrong") == 2
    assert browser.ask("document.querySelectorAll('.explorer .card.right').length") == 0
    assert choose(browser, "result", "silent") == 2  # one of them correctly
    assert choose(browser, "secondresult", "wrong") == 1
    assert choose(browser, "secondresult", "") == 2
    assert choose(browser, "result", "right") == 2
    assert choose(browser, "query", "no such words") == 0
    assert choose(browser, "query", "CONTEXT-start") == 2
    assert choose(browser, "result", "") == 4
    golds = browser.ask("Array.from(document.querySelectorAll('.explorer mark.gold'), mark => mark.firstChild.data)")
    assert golds == ["answer" + nasty] * 2
    assert browser.ask("document.documentElement.scrollWidth") <= browser.width
    assert_no_errors_or_requests(browser)


def run_command(*arguments: object) -> None:
    assert main([str(word) for word in arguments]) == 0


@pytest.fixture(scope="module")
def full_run(samples: Any, tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with adapters and all analyses, and a search if Optuna is installed."""
    folder = tmp_path_factory.mktemp("whole")
    samples.write_squad(folder / "train.json", samples.squad("t"))
    samples.write_squad(folder / "dev.json", samples.squad("d", 3))
    arguments = [*samples.squad_words(folder, tiny_encoder_folder), "--method", "adapters:size=8", "--lr", "3e-2"]
    run: Path = samples.made_run(folder, [*arguments, "--epochs", "10"])
    quick = ("--set", "fit.epochs=1", "--set", "fit.batch=8")
    run_command("analyse", run, "--what", "all", "--seeds", "0,1", "--shares", "0.5,1", *quick)
    if importlib.util.find_spec("optuna") is not None:
        run_command("search", run, "--heads", "probe", "--trials", 2, "--seeds", "0", *quick)
    run_command("report", run)
    return run


def texts_outside_the_page(browser: Any, selector: str) -> list[str]:
    """Texts of matching elements that extend beyond the page, except inside boxes that scroll."""
    texts = browser.ask(
        f"Array.from(document.querySelectorAll('{selector}')).filter(node => {{"
        " const box = node.getBoundingClientRect(); return node.checkVisibility() && !node.closest('.scroll')"
        " && (box.right > innerWidth + 0.5 || box.left < -0.5);"
        " }).map(node => node.textContent)"
    )
    return list(texts)


def test_report_with_all_analyses_opens_from_disk(full_run: Path, browser: Any) -> None:
    browser.events.clear()
    browser.open(full_run / "report.html")
    analyses = {path.stem for path in (full_run / "analysis").glob("*.json") if path.stem in ANALYSES}
    assert analyses == set(ANALYSES) - {"labels"}, "labels of spans are not judged"
    assert browser.ask("document.querySelector('.missing') === null")
    counts = {value: choose(browser, "result", value) for value in ("right", "wrong", "silent", "")}
    assert counts["right"] + counts["wrong"] == counts[""] == browser.ask(CARDS) == 6
    data = json.loads(browser.ask("document.querySelector('script[type=\"application/json\"]').textContent"))
    best_rows = [entry["said"][0] for entry in data["examples"]]
    assert counts["right"] == sum(right for _, right, *_ in best_rows)
    assert counts["silent"] == sum(answer == "" for answer, *_ in best_rows)
    assert choose(browser, "query", "ben live") == 3
    assert browser.ask("document.documentElement.scrollWidth") <= browser.width
    assert texts_outside_the_page(browser, "svg text") == []
    assert_no_errors_or_requests(browser)


def test_heat_map_is_legible_at_any_width(full_run: Path, browser: Any) -> None:
    browser.events.clear()
    browser.open(full_run / "report.html")
    heat_map = "document.querySelector('svg.heat')"
    scale = browser.ask(f"{heat_map}.getBoundingClientRect().width / {heat_map}.viewBox.baseVal.width")
    assert 12 * scale > 10  # pixels of its text


def emulate_media(browser: Any, kind: str = "", scheme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", media=kind, features=features)


def report_with_disagreements(make_run: Any) -> Path:
    """A report with examples of disagreement."""
    folder, task = make_run("classify")
    run = gather(folder, task)
    none = dict.fromkeys((example.id for example in task["dev"]), task.labels[0])
    run = replace(run, answers={**run.answers, ("encoder", None): none})
    save_findings(folder, run, file_findings(run, ["agreement"]))
    return write_report(folder, task)


def test_print_hides_the_explorer_and_unfolds_details(make_run: Any, browser: Any) -> None:
    browser.events.clear()
    browser.open(report_with_disagreements(make_run))
    height = "document.querySelector('{}').getBoundingClientRect().height"
    card = "document.querySelector('details .card').checkVisibility()"
    assert browser.ask(height.format("#explorer")) > 0
    assert not browser.ask(card)
    emulate_media(browser, "print")
    assert browser.ask(height.format("#explorer")) == 0
    assert browser.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.ask("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.ask(card)
    browser.ask("window.dispatchEvent(new Event('afterprint'))")
    emulate_media(browser)
    assert not browser.ask(card)
    assert_no_errors_or_requests(browser)


def test_colours_follow_the_system_and_print_is_white(make_run: Any, browser: Any) -> None:
    browser.events.clear()
    browser.open(write_report(*make_run("span")))
    background = "getComputedStyle(document.body).backgroundColor"
    colours = []
    for kind, scheme in (("", "light"), ("", "dark"), ("print", "dark")):
        emulate_media(browser, kind, scheme)
        colours.append(browser.ask(background))
    emulate_media(browser)
    assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 27)", "rgb(255, 255, 255)"]
    assert_no_errors_or_requests(browser)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_reports_of_other_kinds_open_without_errors(make_run: Any, browser: Any, kind: str) -> None:
    browser.events.clear()
    browser.open(write_report(*make_run(kind, plain=lambda text: text + NASTY)))
    assert browser.ask(CARDS) == (0 if kind == "regress" else 4)
    assert browser.ask("document.documentElement.scrollWidth") <= browser.width
    assert_no_errors_or_requests(browser)


def test_every_run_on_a_page_has_its_own_filter(make_run: Any, browser: Any, tmp_path: Path) -> None:
    run = gather(*make_run("span"))
    browser.events.clear()
    browser.open(write_page([run, run], tmp_path / "both.html"))
    assert choose(browser, "result", "wrong") == 2
    assert browser.ask(CARDS) == 2 + 4
    assert_no_errors_or_requests(browser)
