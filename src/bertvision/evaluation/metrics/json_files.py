"""A JSON document from a file, or one line on why there is none."""

from __future__ import annotations

import json
from pathlib import Path

from bertvision.core.convert import distinct_keys
from bertvision.core.errors import BadInput, shorten


def read_json(path: Path, expected: str, unique: bool = False) -> object:
    """The document of a file; ``expected`` is what the messages say it should be.

    With ``unique``, no object may name a key twice: of two values JSON would silently keep the last.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); expected {expected}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    if not text.strip():
        raise BadInput(f"{path}: the file is empty; expected {expected}")
    try:
        return json.loads(text, object_pairs_hook=distinct_keys if unique else None)
    except RecursionError as error:
        raise BadInput(f"{path}: nested too deeply; expected {expected}") from error
    except ValueError as error:
        raise BadInput(f"{path}: not valid JSON: {error}") from error


def read_by_id(path: Path, expected: str) -> dict[str, object]:
    """The entries of one object, at least one; ``expected`` shows such an object."""
    document = read_json(path, f"one object {expected}", unique=True)
    if not isinstance(document, dict):
        raise BadInput(f"{path}: $: got {shorten(document)}, expected one object {expected}")
    if not document:
        raise BadInput(f"{path}: $: got no predictions, expected {expected}")
    return document
