"""Where a run's checkpoints are copied to: the address, and a note of it beside the local ones."""

from __future__ import annotations

from pathlib import Path

from failsoft.artifacts.address import below
from failsoft.artifacts.store import write_durably

_NOTE = ".remote"


def remote_of_run(remote: str, run: str) -> str:
    """The place of one run's checkpoints below the address that many runs may share."""
    return below(remote, run, "checkpoints")


def note_remote(root: Path, url: str) -> None:
    """Write down where copies of the checkpoints in ``root`` go.

    Raises:
        OSError: the disk refused.
    """
    write_durably(root / _NOTE, url.encode())


def noted_remote(root: Path) -> str | None:
    """Where copies of the checkpoints in ``root`` go; None when nowhere, as far as is noted."""
    try:
        return (root / _NOTE).read_text("utf-8").strip() or None
    except (OSError, ValueError):
        return None
