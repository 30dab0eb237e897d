"""One kind of error for everything a user can put right: bad data, bad options, missing extras."""

from __future__ import annotations


class BadInput(ValueError):
    """Input that cannot be used as it is.

    The message is one line: what is wrong, where, what was found, what was expected, what to do.
    The command line prints it as it is and exits with 2; a library user catches a ``ValueError``.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def shorten(value: object, limit: int = 60) -> str:
    """``repr`` of a value, cut so that a message stays one readable line."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def missing_extra(package: str, extra: str) -> BadInput:
    """What to say when an optional dependency is not installed."""
    return BadInput(f"{package} is not installed; this needs it: {install_line(extra)}")


def install_line(extra: str) -> str:
    """How an extra comes in: the package is used from a checkout, as README says."""
    return f"pip install -e '.[{extra}]' in the checkout of bertvision"
