"""The error for everything a user can fix: bad data, bad options, missing extras."""

from __future__ import annotations


class BadInput(ValueError):
    """Input that cannot be used.

    The message is one line: what is wrong, where, what was found, what was expected, what to do.
    The command line prints it and exits with 2; library users catch a ``ValueError``.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def shorten(value: object, limit: int = 60) -> str:
    """``repr`` of a value, truncated so that a message stays one readable line."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def missing_extra(package: str, extra: str) -> BadInput:
    """The error for an optional dependency that is not installed."""
    return BadInput(f"{package} is not installed; this needs it: {install_line(extra)}")


def install_line(extra: str) -> str:
    """The command that installs an extra, from a checkout as in the README."""
    return f"pip install -e '.[{extra}]' in the checkout of bertvision"
