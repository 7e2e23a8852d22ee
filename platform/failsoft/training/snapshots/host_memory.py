"""How much RAM this process may still take: what the machine has free, or less where its control groups leave less.

A container's limit is not in ``/proc/meminfo``: a process that believes the machine's figure is killed at the group's.
"""

from __future__ import annotations

import os
from pathlib import Path

HOST_MEMORY_VARIABLE = "FAILSOFT_HOST_MEMORY"
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 of control groups says "no limit" by a number near 2^63."""


def host_folder() -> Path | None:
    """Where files lie in memory of the host: ``$FAILSOFT_HOST_MEMORY``, else ``/dev/shm``; None when that says off."""
    said = os.environ.get(HOST_MEMORY_VARIABLE) or "/dev/shm"  # noqa: S108 -- looked at before it is trusted
    return None if said == "off" else Path(said)


def available_ram_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that can be taken now without swapping or being killed; None where the system does not say (no Linux).

    Args:
        root: folder that holds ``proc`` and ``sys``.
    """
    rooms = [_free_on_machine(root), *(_left_by(group) for group in _groups(root))]
    known = [room for room in rooms if room is not None]
    return min(known, default=None)


def used_ram_fraction(root: Path = Path("/")) -> float | None:
    """How full the fullest of this process's bounds is, 0..1: the machine's RAM, or the limit of a control group.

    As Ray's memory monitor counts: file cache that the kernel would give up first is free.

    Args:
        root: folder that holds ``proc`` and ``sys``.

    Returns:
        None where the system does not say.
    """
    free, size = _free_on_machine(root), _machine(root, "MemTotal:")
    bounds = [(free, size), *((_left_by(group), _limit(group)) for group in _groups(root))]
    used = [1.0 - left / limit for left, limit in bounds if left is not None and limit]
    return max(used, default=None)


def _free_on_machine(root: Path) -> int | None:
    return _machine(root, "MemAvailable:")


def _machine(root: Path, name: str) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def _groups(root: Path) -> list[Path]:
    """Folders of this process's memory groups and of all groups above: each may have a limit."""
    folders: list[Path] = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "memory"}:
            continue
        top = root / "sys/fs/cgroup" / controllers
        own = top / path.strip("/")
        folders += [folder for folder in (own, *own.parents) if folder == top or top in folder.parents]
    return folders


def _left_by(group: Path) -> int | None:
    """The group's limit less what it uses, without the file cache, which the kernel gives up first."""
    limit = _limit(group)
    used = _number(group / "memory.current", group / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _NO_LIMIT_BYTES:
        return None
    cached = [line.split() for line in _lines(group / "memory.stat")]
    files = {name: int(size) for name, size in cached if name in {"inactive_file", "total_inactive_file"}}
    return max(0, limit - used + max(files.values(), default=0))


def _limit(group: Path) -> int | None:
    return _number(group / "memory.max", group / "memory.limit_in_bytes")


def _number(*paths: Path) -> int | None:
    """From the first of these files that is there; None for "max"."""
    words = next((lines[0] for path in paths if (lines := _lines(path))), "")
    return int(words) if words.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except OSError:
        return []
