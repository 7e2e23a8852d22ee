"""What a family of processes holds at one moment: processes, memory, threads, open files, ports. Linux."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from failsoft.drills.serving.processes import Process

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
SERIES = ("processes", "own bytes", "threads", "open files", "ports")
IN_WAITING = frozenset({"IDLE", "setup_worker.py"})
"""Ray's own workers that wait for work: it keeps as many as it has CPUs, and they end with the job that had them."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """By one process."""

    role: str
    own_bytes: int
    """Resident, and shared with no file."""
    threads: int
    files: int
    ports: int
    """On which it listens."""


@dataclass(frozen=True, kw_only=True)
class Census:
    """All of a family at one moment."""

    at_s: float
    held: tuple[Held, ...]

    def total(self, series: str) -> float:
        """Of one of ``SERIES``, over all but those in waiting."""
        held = [one for one in self.held if one.role not in IN_WAITING]
        by_name = {
            "processes": len(held),
            "own bytes": sum(one.own_bytes for one in held),
            "threads": sum(one.threads for one in held),
            "open files": sum(one.files for one in held),
            "ports": sum(one.ports for one in held),
        }
        return float(by_name[series])

    @property
    def in_waiting(self) -> int:
        """Workers of Ray that have nothing to do."""
        return sum(one.role in IN_WAITING for one in self.held)

    def of_role(self, role: str) -> float:
        """Own bytes of the largest process of a role; NaN: there is none now."""
        return float(max((one.own_bytes for one in self.held if one.role == role), default=float("nan")))

    @property
    def roles(self) -> frozenset[str]:
        """That are there."""
        return frozenset(one.role for one in self.held)


def take(family: Iterable[Process], *, at_s: float) -> Census:
    """Look at each; one that ends meanwhile is left out."""
    listening = _listening()
    held = (_held(one, listening) for one in family)
    return Census(at_s=at_s, held=tuple(one for one in held if one is not None))


def role_of(title: str) -> str:
    """What a process is, without what tells it from its brothers: a replica's name, an address, a number."""
    first, *more = title.split(" ")
    if first.startswith("ray::"):
        parts = first.partition(".")[0].split(":")
        return ":".join(parts[:5]) if "ServeReplica" in first else parts[2]
    module = more[more.index("-m") + 1] if "-m" in more[:-1] else ""
    script = next((Path(part).name for part in more if part.endswith(".py")), "")
    return module or script or Path(first).name


def _held(one: Process, listening: frozenset[str]) -> Held | None:
    folder = Path(f"/proc/{one.pid}")
    try:
        resident, shared = (int(pages) for pages in (folder / "statm").read_text("ascii").split()[1:3])
        threads = len(os.listdir(folder / "task"))
        files = [_link(folder / "fd" / name) for name in os.listdir(folder / "fd")]
    except (OSError, ValueError):
        return None
    sockets = (_SOCKET.fullmatch(link) for link in files)
    return Held(
        role=role_of(one.title),
        own_bytes=(resident - shared) * _PAGE_BYTES,
        threads=threads,
        files=len(files),
        ports=sum(found is not None and found[1] in listening for found in sockets),
    )


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _listening() -> frozenset[str]:
    """Inodes of sockets that listen on TCP."""
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        fields = (line.split() for line in lines)
        found |= {field[9] for field in fields if field[3] == _LISTENS}
    return frozenset(found)
