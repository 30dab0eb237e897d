"""The encoding of a file: given, detected, assumed with a note, or an error."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks.readers import encodings
from bertvision.tasks.readers.encodings import describe_bad_character, detect_encoding, is_unicode, read_lines

WESTERN = "Der Bär aß «déjà vu» — “naïve”…\nGarçon, un œuf à 3 €!\n"
RUSSIAN = "текст,оценка\nочень хорошо,да\n"


def write(folder: Path, content: bytes) -> Path:
    path = folder / "t.csv"
    path.write_bytes(content)
    return path


def decoded_lines(path: Path, encoding: str | None = None) -> list[str]:
    return list(read_lines(path, encoding, newline="\n"))


def read_error(path: Path, encoding: str | None = None) -> str:
    with pytest.raises(BadInput) as error:
        decoded_lines(path, encoding)
    return str(error.value)


@pytest.mark.parametrize("text", ["a,b\n", WESTERN, RUSSIAN, "日本\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_detectable_encodings_are_read_without_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, encoding: str
) -> None:
    assert "".join(decoded_lines(write(tmp_path, text.encode(encoding)))) == text
    assert capsys.readouterr().err == ""


def test_big_endian_utf_16_is_detected(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xfe\xff" + WESTERN.encode("utf-16-be"))
    assert "".join(decoded_lines(path)) == WESTERN


def test_western_text_is_read_as_cp1252_with_one_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WESTERN.encode("cp1252"))
    assert "".join(decoded_lines(path)) == WESTERN
    advice = "reading it as cp1252; if letters look wrong, give the encoding it was saved in"
    assert capsys.readouterr().err == f"note: {path}: not UTF-8 (byte 0xe4 at offset 5); {advice}\n"
    decoded_lines(path, "cp1252")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("content", "position", "parts"),
    [
        (RUSSIAN.encode("cp1251"), 0, ["the text does not look Latin-script; give the encoding", "encoding=cp1251"]),
        ("a,b\n日本語の文章,1\n".encode("shift_jis"), 4, ["does not look Latin-script"]),
        ("id,text\n1,中文评论内容很好\n2,english text\n".encode("gb18030"), 10, ["not look Latin-script", "gb18030"]),
        (b"a,b\n\x81\xe9,2\n", 4, ["nor cp1252 (byte 0x81 at offset 4)", "latin-1 accepts any byte"]),
        ("a,b\nné,1\n".encode("utf-16-le"), 10, ["contains NUL bytes and may be UTF-16; try encoding=utf-16"]),
    ],
)
def test_ambiguous_encoding_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, position: int, parts: list[str]
) -> None:
    path = write(tmp_path, content)
    message = read_error(path)
    assert message.startswith(f"{path}: not UTF-8 (byte 0x{content[position]:02x} at offset {position}), ")
    assert all(part in message for part in parts), message
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("start", ["日本,1\n".encode(), b"\xef\xbb\xbf1,2\n"])
def test_few_bytes_that_are_not_utf_8_spoil_their_rows_only(tmp_path: Path, start: bytes) -> None:
    good, bad = decoded_lines(write(tmp_path, start + b"caf\xe9,2\n"))
    assert good == start.decode("utf-8-sig")
    assert not is_unicode(bad)
    assert describe_bad_character(bad) == "byte 0xe9 is not UTF-8, unlike the rest of the file; fix it or give encoding"
    assert describe_bad_character("\ud83d") == "got half a surrogate pair, expected Unicode text"


def test_wrong_byte_order_mark_is_an_error(tmp_path: Path) -> None:
    assert "not utf-16 (byte 0x00" in read_error(write(tmp_path, b"\xff\xfea\0\0\xd8"))


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "byte", "position"),
    [
        ("a,b\nné,\u20ac5\n".encode("cp1252"), 0xE9, 5),
        ("a,b\n日本,1\n".encode() + b"caf\xe9,2\n", 0xE9, 16),
        (b"a,b\n1,\xe6\x97", 0xE6, 6),
    ],
)
def test_error_names_the_first_invalid_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, content: bytes, byte: int, position: int
) -> None:
    monkeypatch.setattr(encodings, "CHUNK", chunk)
    message = read_error(write(tmp_path, content), "utf-8")
    assert f"not utf-8 (byte 0x{byte:02x} at offset {position});" in message


def test_given_encoding_is_used(tmp_path: Path) -> None:
    assert decoded_lines(write(tmp_path, "é\n".encode("cp1252")), "cp1252") == ["é\n"]
    assert decoded_lines(write(tmp_path, "é\n".encode("utf-16")), "utf-16") == ["é\n"]
    assert decoded_lines(write(tmp_path, b"\xef\xbb\xbfa\n"), "utf-8") == ["a\n"]
    assert decoded_lines(write(tmp_path, "é\n".encode()), "latin-1") == ["Ã©\n"]


def test_wrong_given_encoding_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n\x81,1\n")
    assert "not cp1252 (byte 0x81 at offset 4); give the encoding it was saved in" in read_error(path, "cp1252")
    assert "not undefined (" in read_error(path, "undefined")
    for encoding in ("utf-9", "base64", "a\0b"):
        assert f"encoding: got {encoding!r}, expected" in read_error(path, encoding)


LETTERS = st.sampled_from("abc déèßñ,;“”’–€…\n")


@given(st.text(LETTERS, max_size=60), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
def test_western_text_survives_a_round_trip_or_is_an_error(text: str, encoding: str) -> None:
    """Ambiguous cp1252 may be an error, and cp1252 that happens to be valid UTF-8 is read as UTF-8."""
    content = text.encode(encoding)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), content)
        try:
            decoded = "".join(read_lines(path, None, newline="\n"))
        except BadInput as error:
            assert encoding == "cp1252" or "is empty" in str(error)
        else:
            assert decoded == text or (encoding == "cp1252" and detect_encoding(path)[0] == "utf-8")
            assert decoded == text or decoded.encode("utf-8", "surrogateescape") == content


def test_half_a_surrogate_pair_is_not_unicode() -> None:
    assert is_unicode("né \U0001f600")
    assert not is_unicode("\ud83d")
