"""Read lines of text and detect the encoding of a file.

A given encoding must fit. Otherwise the byte order mark decides, then UTF-8 if the whole file is valid
UTF-8. In a file that is mostly UTF-8, only the rows with invalid bytes are bad. Any other file is read as
cp1252 (Windows, Western Europe) with a note, unless there are signs against it: reading a file in the wrong
encoding would corrupt it silently.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from bertvision.core.errors import BadInput, shorten
from bertvision.core.progress import log_line

CHUNK = 1 << 20
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16's, which is a prefix of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
FALLBACK = "cp1252"
STRICT, ESCAPE = "strict", "surrogateescape"

_HIGH = re.compile(rb"[\x80-\xff]")
_LONG_RUN = re.compile(rb"[\x80-\xff]{4,}")
"""Accented letters and curly quotes come in runs of up to three; letters of other scripts in whole words."""
_ESCAPED = re.compile("[\udc80-\udcff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BEYOND_ASCII = re.compile("[^\\x00-\\x7f\udc80-\udcff]")


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading bytes; raises BadInput if that fails."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; check the path (current folder: {Path.cwd()})") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: this is a folder, expected a file") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def read_lines(path: Path, encoding: str | None, newline: str) -> Iterator[str]:
    """Decoded lines without byte order mark; raises BadInput for an empty file, a NUL or a wrong encoding."""
    number = 0
    used, errors = detect_encoding(path) if encoding is None else (encoding, STRICT)
    open_file(path).close()
    try:
        file = path.open(encoding=used, errors=errors, newline=newline)
    except (LookupError, ValueError):
        raise BadInput(f"encoding: got {shorten(used)}, expected one that Python knows: utf-8, cp1252 ...") from None
    try:
        with file:
            for number, line in enumerate(file, start=1):
                if "\0" in line:
                    raise BadInput(f"{path}, line {number}: contains a NUL byte and may be UTF-16; try encoding=utf-16")
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError:
        problem = f"not {used} ({_describe_byte(_first_bad_byte(path, used) or (0, 0))})"
        raise BadInput(f"{path}: {problem}; give the encoding it was saved in") from None
    if number == 0:
        raise BadInput(f"{path}: the file is empty; expected rows")


def detect_encoding(path: Path) -> tuple[str, str]:
    """(encoding, error handler for decoding) of a file; logs a note for cp1252, raises BadInput if in doubt."""
    with open_file(path) as file:
        start = file.read(4)
    marked = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    bad = _first_bad_byte(path, "utf-8") if marked in (None, "utf-8") else None
    if bad is None:
        return marked or "utf-8", STRICT
    with open_file(path) as file:
        content = file.read()
    escaped = content.decode("utf-8", ESCAPE)
    mostly_utf8 = len(_BEYOND_ASCII.findall(escaped)) > len(_ESCAPED.findall(escaped))
    if marked or mostly_utf8:
        return "utf-8", ESCAPE
    problem = f"{path}: not UTF-8 ({_describe_byte(bad)})"
    objection = _objection_to_fallback(path, content)
    if objection:
        raise BadInput(f"{problem}, {objection}")
    log_line(f"note: {problem}; reading it as {FALLBACK}; if letters look wrong, give the encoding it was saved in")
    return FALLBACK, STRICT


def is_unicode(text: str) -> bool:
    """False for text with half a surrogate pair, as in ``"\\ud83d"``, which cannot be encoded."""
    return _SURROGATE.search(text) is None


def describe_bad_character(text: str) -> str:
    """What is wrong with text that is not Unicode: a byte that is not UTF-8, or half a surrogate pair."""
    first = _SURROGATE.findall(text)[0]
    if _ESCAPED.match(first):
        return f"byte 0x{ord(first) - 0xDC00:02x} is not UTF-8, unlike the rest of the file; fix it or give encoding"
    return "got half a surrogate pair, expected Unicode text"


def _objection_to_fallback(path: Path, content: bytes) -> str:
    """Why a file that is not UTF-8 is probably not cp1252 either, and what to do; "" if it may be."""
    if b"\0" in content:
        return "contains NUL bytes and may be UTF-16; try encoding=utf-16"
    advice = "give the encoding it was saved in, e.g. encoding="
    if 2 * sum(map(len, _LONG_RUN.findall(content))) > len(_HIGH.findall(content)):
        return f"and the text does not look Latin-script; {advice}cp1251, gb18030 or shift_jis"
    bad = _first_bad_byte(path, FALLBACK)
    if bad is not None:
        return f"nor {FALLBACK} ({_describe_byte(bad)}); {advice}cp1250 or mac_roman (latin-1 accepts any byte)"
    return ""


def _describe_byte(bad: tuple[int, int]) -> str:
    """An invalid byte, given as (offset, byte), for messages."""
    return f"byte 0x{bad[1]:02x} at offset {bad[0]}"


def _first_bad_byte(path: Path, encoding: str) -> tuple[int, int] | None:
    """(offset in the file, byte) of the first byte that cannot be decoded, None if all can."""
    decoder = codecs.getincrementaldecoder(encoding)()
    end = 0
    with open_file(path) as file:
        for chunk in chain(iter(lambda: file.read(CHUNK), b""), [b""]):
            end += len(chunk)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                # error.object starts with the bytes that the decoder kept from the previous chunk.
                return end - len(error.object) + error.start, error.object[error.start]
            except UnicodeError:
                return end - len(chunk), chunk[0] if chunk else 0
    return None
