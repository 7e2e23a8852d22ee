"""How much RAM this process may still take: what the machine has free, or less where its control groups leave less.

A container's limit is not in ``/proc/meminfo``: a process that believes the machine's figure is killed at the group's.
"""

from __future__ import annotations

from pathlib import Path

_NO_LIMIT_BYTES = 1 << 60
"""Version 1 of control groups says "no limit" by a number near 2^63."""


def available_ram_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that can be taken now without swapping or being killed; None where the system does not say (no Linux).

    Args:
        root: folder that holds ``proc`` and ``sys``.
    """
    rooms = [_free_on_machine(root), *(_left_by(group) for group in _groups(root))]
    known = [room for room in rooms if room is not None]
    return min(known, default=None)


def _free_on_machine(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
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
    limit = _number(group / "memory.max", group / "memory.limit_in_bytes")
    used = _number(group / "memory.current", group / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _NO_LIMIT_BYTES:
        return None
    cached = [line.split() for line in _lines(group / "memory.stat")]
    files = {name: int(size) for name, size in cached if name in {"inactive_file", "total_inactive_file"}}
    return max(0, limit - used + max(files.values(), default=0))


def _number(*paths: Path) -> int | None:
    """From the first of these files that is there; None for "max"."""
    words = next((lines[0] for path in paths if (lines := _lines(path))), "")
    return int(words) if words.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except OSError:
        return []
