"""What the options of every loader may be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertvision.core.errors import BadInput, shorten

PathsLike = str | Path | Sequence[str | Path]


def as_paths(option: str, value: PathsLike) -> tuple[Path, ...]:
    """One path or several, as a tuple."""
    several = [value] if isinstance(value, str | Path) else value
    if not isinstance(several, Sequence) or not several or not all(isinstance(p, str | Path) and p for p in several):
        raise BadInput(f"--{option}: got {shorten(value)}, expected a file or several")
    return tuple(Path(path) for path in several)


def check_whole(option: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"option {option}: got {shorten(value)}, expected a whole number of at least {least}")
