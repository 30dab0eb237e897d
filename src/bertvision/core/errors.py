"""The error for everything a user can fix: bad data, bad options, missing extras."""

from __future__ import annotations


class BadInput(ValueError):
    """Invalid input: bad data, bad options or a missing extra. A subclass of ``ValueError``.

    The message is one line: what is wrong, where, what was found, what was expected, what to do.
    The command line prints it and exits with code 2.

    Args:
        message: The message; line breaks and repeated spaces become single spaces.

    Example:
        >>> from bertvision import BadInput, load_task
        >>> try:
        ...     load_task("sqad2")
        ... except BadInput as error:
        ...     print(str(error).partition(" Known")[0])
        no task named 'sqad2'. Did you mean 'squad2'?
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def shorten(value: object, limit: int = 60) -> str:
    """``repr`` of a value, truncated to ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def as_option(parameter: str) -> str:
    """A parameter of a loader, and the flag of the command line that sets it, for messages."""
    name, equals, value = parameter.partition("=")
    flag = f"--{name.replace('_', '-')}"
    return f"{parameter} ({flag} {value})" if equals else f"{parameter} ({flag})"


def missing_extra(package: str, extra: str) -> BadInput:
    """The error for an optional dependency that is not installed."""
    return BadInput(f"{package} is not installed; this needs it: {install_line(extra)}")


def install_line(extra: str) -> str:
    """The command that installs an extra, run in a checkout of the repository."""
    return f"pip install -e '.[{extra}]' in the checkout of bertvision"
