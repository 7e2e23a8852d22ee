"""Which processes of a trial are alive: by the mark in their environment, or by the session that they began in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from failsoft.drills.training.inside.orders import TRIAL_VARIABLE

_SESSION_FIELD, _STATE_FIELD = 3, 0
"""Of ``/proc/PID/stat``, behind the name."""


def alive(trial: str, sessions: tuple[int, ...]) -> list[int]:
    """Process numbers, zombies left out. Linux only: reads ``/proc``.

    Args:
        trial: value of the trial's variable in the environment of its processes.
        sessions: those that the trial's processes began; a fork keeps the environment of the one before it.
    """
    needle = f"{TRIAL_VARIABLE}={trial}".encode()
    return sorted(pid for pid in _numbers() if _is_of(pid, needle, sessions))


def words_of(pid: int) -> str:
    """Its command line, shortened, for people."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid}: {words[:80]}"


def _numbers() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _is_of(pid: int, needle: bytes, sessions: tuple[int, ...]) -> bool:
    try:
        behind = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        if behind[_STATE_FIELD] in {"Z", "X"}:
            return False
        if int(behind[_SESSION_FIELD]) in sessions:
            return True
        return needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (OSError, IndexError):  # it has ended meanwhile, or is of another user
        return False
