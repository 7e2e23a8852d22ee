"""What a process said last in a form of its own: Ray prints lines of its own between and after."""

from __future__ import annotations


def last_line(said: str, beginning: str) -> str:
    """The last line that begins so.

    Raises:
        AssertionError: there is none, with all that was said.
    """
    lines = [line for line in said.splitlines() if line.startswith(beginning)]
    assert lines, f"no line begins with {beginning!r}: {said}"
    return lines[-1]
