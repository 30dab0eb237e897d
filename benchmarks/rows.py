"""Results as data: rows appended to a CSV, each once, so an experiment can be resumed."""

from __future__ import annotations

import csv
import io
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path


class Rows:
    """A CSV of results; ``fresh`` starts with an empty file."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path = path
        if fresh:
            path.unlink(missing_ok=True)

    def read(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def has(self, **settings: object) -> bool:
        return any(_matches(row, settings) for row in self.read())

    def drop(self, **settings: object) -> None:
        """Remove the rows with these values before they are measured again."""
        rows = self.read()
        kept = [row for row in rows if not _matches(row, settings)]
        if len(kept) < len(rows):
            with self.path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(kept)

    def add(self, *rows: Mapping[str, object]) -> None:
        """Append rows that belong together in one write, with the machine's architecture and Python version."""
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        self._append([{**machine, **row} for row in rows], [*rows[0], *machine])

    def copy(self, other: Rows, **settings: object) -> None:
        """Append the rows of another file that have these values."""
        matching = [row for row in other.read() if _matches(row, settings)]
        if matching:
            self._append(matching, list(matching[0]))

    def _append(self, rows: Sequence[Mapping[str, object]], names: list[str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, names)
        if not self.path.exists():
            writer.writeheader()
        writer.writerows(rows)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            file.write(text.getvalue())


def _matches(row: Mapping[str, str], settings: Mapping[str, object]) -> bool:
    return all(row[key] == str(value) for key, value in settings.items())
