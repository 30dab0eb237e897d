"""Lines of text out of files in whatever encoding they were saved in.

An encoding that is given must fit. Otherwise a byte order mark decides, then UTF-8 if every byte is
UTF-8. In a file that is mostly UTF-8 the bytes that are not spoil their rows only. Any other is taken
for cp1252, the code page of Western Windows, and that is said; but only where nothing speaks against
it, because reading a file in a wrong encoding spoils it in silence.
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
    codecs.BOM_UTF32_LE: "utf-32",  # begins like UTF-16's, so it is asked for first
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
ASSUMED = "cp1252"
STRICT, ESCAPE = "strict", "surrogateescape"

_HIGH = re.compile(rb"[\x80-\xff]")
_LONG_RUN = re.compile(rb"[\x80-\xff]{4,}")
"""Accents and curly quotes stand alone or in twos and threes; letters of other scripts make words."""
_ESCAPED = re.compile("[\udc80-\udcff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BEYOND_ASCII = re.compile("[^\\x00-\\x7f\udc80-\udcff]")


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading bytes; whatever prevents that is one line."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; check the path (now in {Path.cwd()})") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: this is a folder, expected a file") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def read_lines(path: Path, encoding: str | None, newline: str) -> Iterator[str]:
    """Decoded lines without byte order mark; an empty file, a NUL or a wrong encoding ends the reading."""
    number = 0
    used, errors = detect_encoding(path) if encoding is None else (encoding, STRICT)
    open_file(path).close()
    try:
        file = path.open(encoding=used, errors=errors, newline=newline)
    except (LookupError, ValueError):
        raise BadInput(f"--encoding: got {shorten(used)}, expected one Python knows: utf-8, cp1252 ...") from None
    try:
        with file:
            for number, line in enumerate(file, start=1):
                if "\0" in line:
                    raise BadInput(f"{path}, line {number}: holds a NUL; expected text (or give --encoding utf-16)")
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError:
        at, byte = _first_bad_byte(path, used) or (0, 0)
        raise BadInput(f"{_misfit(path, used, at, byte)}; give the --encoding it was saved in") from None
    if number == 0:
        raise BadInput(f"{path}: the file is empty; expected rows")


def _misfit(path: Path, encoding: str, at: int, byte: int) -> str:
    return f"{path}: not {encoding}: byte 0x{byte:02x} at position {at}"


def detect_encoding(path: Path) -> tuple[str, str]:
    """(encoding, what to do with bytes that do not fit) of a file that nobody named one for.

    That cp1252 is assumed is said; a doubtful case is refused.
    """
    with open_file(path) as file:
        start = file.read(4)
    marked = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    bad = _first_bad_byte(path, "utf-8") if marked in (None, "utf-8") else None
    if bad is None:
        return marked or "utf-8", STRICT
    with open_file(path) as file:
        content = file.read()
    escaped = content.decode("utf-8", ESCAPE)
    damaged = len(_BEYOND_ASCII.findall(escaped)) > len(_ESCAPED.findall(escaped))  # UTF-8 but for a few bytes
    if marked or damaged:
        return "utf-8", ESCAPE
    misfit, doubt = _misfit(path, "utf-8", *bad), _doubt(path, content)
    if doubt:
        raise BadInput(f"{misfit}; {doubt}")
    log_line(f"note: {misfit}; read as {ASSUMED}; if letters come out wrong, give the --encoding it was saved in")
    return ASSUMED, STRICT


def is_unicode(text: str) -> bool:
    """False for text that no encoder can take: half a surrogate pair, as in ``"\\ud83d"``."""
    return _SURROGATE.search(text) is None


def describe_bad_character(text: str) -> str:
    """What is wrong with text that is no Unicode: a byte that was no UTF-8, or half a surrogate pair."""
    first = _SURROGATE.findall(text)[0]
    if _ESCAPED.match(first):
        return f"byte 0x{ord(first) - 0xDC00:02x} is not utf-8, as the rest of the file is; mend it, or give --encoding"
    return "got half a surrogate pair, expected Unicode text"


def _doubt(path: Path, content: bytes) -> str:
    """Why a file that is not UTF-8 may not be cp1252 either, and what to do; nothing if it may."""
    if b"\0" in content:
        return "it holds NULs and may be utf-16: give --encoding utf-16"
    if 2 * sum(map(len, _LONG_RUN.findall(content))) > len(_HIGH.findall(content)):
        return "it looks like no Western script: give the --encoding it was saved in, e.g. cp1251, gb18030, shift_jis"
    bad = _first_bad_byte(path, ASSUMED)
    if bad is not None:
        return (
            f"nor {ASSUMED}: byte 0x{bad[1]:02x} at position {bad[0]}; give the --encoding it was saved in, "
            "e.g. cp1250, mac_roman (latin-1 takes any byte)"
        )
    return ""


def _first_bad_byte(path: Path, encoding: str) -> tuple[int, int] | None:
    """(position in the file, byte), None if all can be decoded.

    A decoder counts from the bytes it was handed, with what it held back from before in front.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    end = 0
    with open_file(path) as file:
        for chunk in chain(iter(lambda: file.read(CHUNK), b""), [b""]):
            end += len(chunk)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                return end - len(error.object) + error.start, error.object[error.start]
            except UnicodeError:
                return end - len(chunk), chunk[0] if chunk else 0
    return None
