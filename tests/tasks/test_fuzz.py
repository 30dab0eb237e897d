"""Ten thousand broken files: each is loaded or rejected in one line, and every row is used or counted."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bertvision.core.errors import BadInput
from bertvision.tasks.task import load_task

Count = Callable[[str], int | None]

CONTEXT = "The bridge at Orsk was opened in 1931. Its architect, Anna Weiß, never saw it finished."


def squad() -> bytes:
    """Four articles with an answered and an unanswerable question each."""
    return json.dumps({"version": "v2.0", "data": [_article(i) for i in range(4)]}).encode()


def _article(i: int) -> dict[str, Any]:
    answer = {"text": "1931", "answer_start": CONTEXT.index("1931")}
    answered = {"id": f"a{i}", "question": "When was it opened?", "answers": [answer], "is_impossible": False}
    unanswered = {"id": f"b{i}", "question": "Who paid for it?", "answers": [], "is_impossible": True}
    return {"title": f"t{i}", "paragraphs": [{"context": CONTEXT + " " * i, "qas": [answered, unanswered]}]}


def count_questions(text: str) -> int | None:
    """Number of questions, and of parts that should contain questions but do not; None if it is not valid JSON."""
    try:
        articles = json.loads(text, object_pairs_hook=_reject_duplicate_keys)["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (
        sum(_count_nodes(article, ("paragraphs", "qas")) for article in articles)
        if isinstance(articles, list)
        else None
    )


def _count_nodes(node: Any, keys: tuple[str, ...]) -> int:
    if not keys:
        return 1
    children = node.get(keys[0]) if isinstance(node, dict) else None
    return sum(_count_nodes(item, keys[1:]) for item in children) if isinstance(children, list) else 1


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def lines_below(header: int) -> Count:
    def count(text: str) -> int:
        rows = text.removeprefix("\ufeff").split("\n")
        return len(rows) - (rows[-1] == "") - header

    return count


def count_csv_records(text: str) -> int | None:
    """Number of CSV records below the header; None if the quotes are broken."""
    text = text.removeprefix("\ufeff")
    header = text.partition("\n")[0]
    delimiter = ";" if ";" in header and "," not in header else ","
    try:
        return len(list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))) - 1
    except csv.Error:
        return None


CSV = "id,review,stars\n" + "".join(f'{i},"great, really ""{i}""",{"good" if i % 2 else "bad"}\n' for i in range(8))
JSON_LINES = "".join(json.dumps({"text": f"row {i}", "label": i % 2}) + "\n" for i in range(8))


def glue_files(glue: Any) -> Iterator[tuple[str, str, bytes, Count]]:
    for name, columns_and_row in glue.labelled.items():
        text = "".join(f"{line}\n" for line in glue.lines(columns_and_row, glue.rows(name, 8)))
        yield name, "train.tsv", text.encode(), lines_below(header=int(bool(columns_and_row[0])))


def files_by_format(glue: Any) -> dict[str, list[tuple[str, str, bytes, Count]]]:
    """(task, file name, content, function that counts its rows) by file format."""
    return {
        "squad": [
            ("squad2", "train.json", squad(), count_questions),
            ("answerability", "train.json", squad(), count_questions),
        ],
        "glue": list(glue_files(glue)),
        "text": [
            ("text", "train.csv", CSV.encode(), count_csv_records),
            ("text", "train.jsonl", JSON_LINES.encode(), lines_below(header=0)),
        ],
    }


INSERTIONS = (
    b"\0",
    b'"',
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\t",
    b"\n",
    b",",
    b";",
    b"{",
    b"]",
    b"\\ud83d",
    b"\xe2\x80\xa8",
)
"""Bytes to insert anywhere: separators, quotes, byte order marks, partial characters."""

ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1.5, 1e308, 10**400, "", " ", "\ud800", "\u2028", "x" * 300, "a\nb", [], {},
    [[]], [None], {"a": 1},
)  # fmt: skip
"""Values that replace others."""


def mutate(content: bytes, random: Random) -> bytes:
    """One to three random changes; JSON nodes are changed only if the content is JSON."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        content = random.choice((_mutate_bytes, _mutate_lines, _mutate_json, _mutate_json))(content, random)
    return content


def _mutate_bytes(content: bytes, random: Random) -> bytes:
    position, size = random.randint(0, len(content)), random.choice((1, 1, 2, 9))
    insert = random.choice(
        (b"", random.choice(INSERTIONS), bytes([random.randrange(256)]), content[position : position + size] * 2)
    )
    cut = random.choice((0, size, len(content)) if random.random() < 0.1 else (0, size))
    return content[:position] + insert + content[position + cut :]


def _mutate_lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    index = random.randrange(len(lines))
    change = random.choice(("drop", "double", "join", "blank", "cell"))
    if change == "drop":
        del lines[index]
    elif change == "double":
        lines.insert(index, lines[index])
    elif change == "join":
        lines[index : index + 2] = [b"".join(lines[index : index + 2])]
    elif change == "blank":
        lines.insert(index, random.choice((b"", b"  ", b"\t\t", b",,")))
    else:
        lines[index] = _with_odd_cell(lines[index], random)
    return b"\n".join(lines)


def _with_odd_cell(line: bytes, random: Random) -> bytes:
    separator = b"\t" if b"\t" in line else b","
    cells = line.split(separator)
    cells[random.randrange(len(cells))] = str(random.choice(ODD_VALUES)).encode("utf-8", "replace")
    return separator.join(cells)


def _mutate_json(content: bytes, random: Random) -> bytes:
    """Change one node of a JSON document, or of one line of JSON lines."""
    lines = [content] if content.lstrip().startswith(b'{"data"') else content.split(b"\n")
    index = random.randrange(len(lines))
    try:
        document = json.loads(lines[index])
    except ValueError:
        return _mutate_bytes(content, random)
    lines[index] = json.dumps(_mutate_node(document, random)).encode()
    return b"\n".join(lines)


def _mutate_node(node: Any, random: Random) -> Any:
    """Change the node at the end of a random walk down the tree."""
    if not isinstance(node, dict | list) or not node or random.random() < 0.12:
        return random.choice(ODD_VALUES)
    key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
    action = random.random()
    if action < 0.07:
        del node[key]
    elif action < 0.14 and isinstance(node, list):
        node.insert(key, node[key])
    elif action < 0.14:
        node[f"{key} "] = node.pop(key)
    else:
        node[key] = _mutate_node(node[key], random)
    return node


@pytest.mark.parametrize(("format_name", "inputs"), [("squad", 4000), ("glue", 3000), ("text", 3000)])
def test_broken_files_load_with_all_rows_counted_or_raise_bad_input(
    format_name: str, inputs: int, glue: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, outcomes = Random(format_name), Counter[str]()
    files = files_by_format(glue)[format_name]
    for number in range(inputs):
        task, name, content, count = files[number % len(files)]
        broken = mutate(content, random)
        (tmp_path / name).write_bytes(broken)
        outcomes[_outcome(task, tmp_path / name, broken, count, skip=random.random() < 0.5)] += 1
    capsys.readouterr()
    # A mutator that breaks nothing or everything would test little.
    assert min(outcomes["loaded"], outcomes["skipped"], outcomes["refused"]) > inputs / 50, outcomes


def _outcome(task: str, path: Path, content: bytes, count: Count, skip: bool) -> str:
    try:
        loaded = load_task(task, train=path, skip_bad=skip)
    except BadInput as error:
        assert "\n" not in str(error), content
        assert 10 < len(str(error)) < 1000, content
        return "refused"
    loaded_rows, skipped = sum(map(len, loaded.splits.values())), sum(loaded.skipped.values())
    assert skip or not skipped, content
    rows = _count_rows(content, count)
    assert rows in (None, loaded_rows + skipped), content
    return "skipped" if skipped else "loaded"


def _count_rows(content: bytes, count: Count) -> int | None:
    """Number of rows; None if the content is not UTF-8, where this count does not apply."""
    try:
        return count(content.decode("utf-8"))
    except UnicodeDecodeError:
        return None
