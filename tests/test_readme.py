"""README shows what the package really prints: its commands parse, and its leaderboard is today's code on kept rows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from bertvision.cli.main import build_parser
from bertvision.core.leaderboard_text import board_text
from bertvision.runs.reader import read_board

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = ROOT / "results" / "demo_leaderboard.json"
"""``RUN/leaderboard.json`` of ``make demo``."""

BLOCKS = re.findall(r"```\w*\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.startswith("bertvision ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_readme_parses(command: str) -> None:
    words = shlex.split(command, comments=True)
    assert build_parser().parse_args(words[1:]).command == words[1]


def test_readme_has_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"run", "predict"}


def test_leaderboard_in_the_readme_is_what_the_demo_prints() -> None:
    match = re.search(r"<!-- demo -->\n```\n(.*?)```\n<!-- /demo -->", README, flags=re.DOTALL)
    assert match is not None
    shown = [line for line in match[1].splitlines() if line.strip() not in ("", "...")]
    document = json.loads(DEMO.read_text(encoding="utf-8"))
    text = board_text(read_board(DEMO, document))
    floor = document["baseline"]
    printed = [*text.splitlines(), f"baseline ({floor['name']}): f1 {floor['scores']['f1']:.2f}", document["advice"]]
    positions = [[line.split() for line in printed].index(line.split()) for line in shown]  # spaces align columns
    assert positions == sorted(positions)
    assert len(shown) >= 6


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 92
