"""Ten thousand broken files: each is loaded or refused in one line, and no row is lost in silence."""

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
    """Four articles of two questions each, answered and not."""
    return json.dumps({"version": "v2.0", "data": [_article(i) for i in range(4)]}).encode()


def _article(i: int) -> dict[str, Any]:
    answer = {"text": "1931", "answer_start": CONTEXT.index("1931")}
    asked = {"id": f"a{i}", "question": "When was it opened?", "answers": [answer], "is_impossible": False}
    open_ = {"id": f"b{i}", "question": "Who paid for it?", "answers": [], "is_impossible": True}
    return {"title": f"t{i}", "paragraphs": [{"context": CONTEXT + " " * i, "qas": [asked, open_]}]}


def questions(text: str) -> int | None:
    """Questions in a file, and parts that should hold some and do not; None if it is not JSON throughout."""
    try:
        articles = json.loads(text, object_pairs_hook=_single)["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return sum(_rows(article, ("paragraphs", "qas")) for article in articles) if isinstance(articles, list) else None


def _rows(node: Any, keys: tuple[str, ...]) -> int:
    if not keys:
        return 1
    inside = node.get(keys[0]) if isinstance(node, dict) else None
    return sum(_rows(item, keys[1:]) for item in inside) if isinstance(inside, list) else 1


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def lines_below(header: int) -> Count:
    def count(text: str) -> int:
        rows = text.removeprefix("\ufeff").split("\n")
        return len(rows) - (rows[-1] == "") - header

    return count


def records(text: str) -> int | None:
    """Records of a CSV file below its header; None where its quotes are broken."""
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
    for name, form in glue.labelled.items():
        text = "".join(f"{line}\n" for line in glue.lines(form, glue.rows(name, 8)))
        yield name, "train.tsv", text.encode(), lines_below(header=int(bool(form[0])))


def sources(glue: Any) -> dict[str, list[tuple[str, str, bytes, Count]]]:
    """(task, file name, whole content, how to count its rows) by kind of file."""
    return {
        "squad": [("squad2", "train.json", squad(), questions), ("answerability", "train.json", squad(), questions)],
        "glue": list(glue_files(glue)),
        "text": [
            ("text", "train.csv", CSV.encode(), records),
            ("text", "train.jsonl", JSON_LINES.encode(), lines_below(header=0)),
        ],
    }


BITS = (b"\0", b'"', b"\xff", b"\xef\xbb\xbf", b"\r", b"\t", b"\n", b",", b";", b"{", b"]", b"\\ud83d", b"\xe2\x80\xa8")
"""What is put somewhere into a file: separators, quotes, marks, halves of characters."""

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1.5, 1e308, 10**400, "", " ", "\ud800", "\u2028", "x" * 300, "a\nb", [], {},
    [[]], [None], {"a": 1},
)  # fmt: skip
"""What stands where something else should."""


def mutated(content: bytes, random: Random) -> bytes:
    """One to three changes; those of JSON nodes only where it is JSON."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        content = random.choice((_bytes, _lines, _nodes, _nodes))(content, random)
    return content


def _bytes(content: bytes, random: Random) -> bytes:
    at, size = random.randint(0, len(content)), random.choice((1, 1, 2, 9))
    insert = random.choice((b"", random.choice(BITS), bytes([random.randrange(256)]), content[at : at + size] * 2))
    cut = random.choice((0, size, len(content)) if random.random() < 0.1 else (0, size))
    return content[:at] + insert + content[at + cut :]


def _lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    change = random.choice(("drop", "double", "join", "blank", "cell"))
    if change == "drop":
        del lines[at]
    elif change == "double":
        lines.insert(at, lines[at])
    elif change == "join":
        lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    elif change == "blank":
        lines.insert(at, random.choice((b"", b"  ", b"\t\t", b",,")))
    else:
        lines[at] = _with_odd_cell(lines[at], random)
    return b"\n".join(lines)


def _with_odd_cell(line: bytes, random: Random) -> bytes:
    separator = b"\t" if b"\t" in line else b","
    cells = line.split(separator)
    cells[random.randrange(len(cells))] = str(random.choice(ODD)).encode("utf-8", "replace")
    return separator.join(cells)


def _nodes(content: bytes, random: Random) -> bytes:
    """Change one node of a JSON document, or of one line of JSON lines."""
    lines = [content] if content.lstrip().startswith(b'{"data"') else content.split(b"\n")
    at = random.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except ValueError:
        return _bytes(content, random)
    lines[at] = json.dumps(_changed(document, random)).encode()
    return b"\n".join(lines)


def _changed(node: Any, random: Random) -> Any:
    """A random walk down the tree, and a change where it ends."""
    if not isinstance(node, dict | list) or not node or random.random() < 0.12:
        return random.choice(ODD)
    key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
    action = random.random()
    if action < 0.07:
        del node[key]
    elif action < 0.14 and isinstance(node, list):
        node.insert(key, node[key])
    elif action < 0.14:
        node[f"{key} "] = node.pop(key)
    else:
        node[key] = _changed(node[key], random)
    return node


@pytest.mark.parametrize(("kind", "inputs"), [("squad", 4000), ("glue", 3000), ("text", 3000)])
def test_broken_files_are_loaded_or_refused_and_every_row_is_counted(
    kind: str, inputs: int, glue: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, outcomes = Random(kind), Counter[str]()
    files = sources(glue)[kind]
    for number in range(inputs):
        task, name, whole, count = files[number % len(files)]
        content = mutated(whole, random)
        (tmp_path / name).write_bytes(content)
        outcomes[_outcome(task, tmp_path / name, content, count, skip=random.random() < 0.5)] += 1
    capsys.readouterr()
    # A mutator that breaks nothing, or everything, would test little.
    assert min(outcomes["loaded"], outcomes["skipped"], outcomes["refused"]) > inputs / 50, outcomes


def _outcome(task: str, path: Path, content: bytes, count: Count, skip: bool) -> str:
    try:
        loaded = load_task(task, train=path, skip_bad=skip)
    except BadInput as error:
        assert "\n" not in str(error), content
        assert 10 < len(str(error)) < 1000, content
        return "refused"
    used, skipped = sum(map(len, loaded.splits.values())), sum(loaded.skipped.values())
    assert skip or not skipped, content
    rows = _counted(content, count)
    assert rows in (None, used + skipped), content
    return "skipped" if skipped else "loaded"


def _counted(content: bytes, count: Count) -> int | None:
    """None where the encoding is not the usual one: then another reader than this one knows the rows."""
    try:
        return count(content.decode("utf-8"))
    except UnicodeDecodeError:
        return None
