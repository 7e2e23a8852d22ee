"""The processes of one app: found below the one that started it, known by number and birth, struck by signal. Linux."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_STATE, _PARENT, _BIRTH = 0, 1, 19
"""Fields of ``/proc/PID/stat`` behind the name, which may hold blanks."""
_COUNTED = ("ray::ServeReplica", "ray::ServeController", "ray::ProxyActor", "ray::Controller")
"""Of these there are as many after a fault as before; idle workers come and go."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process, by what no other ever has."""

    pid: int
    birth: str

    @property
    def lives(self) -> bool:
        """Whether it is still there, and no zombie."""
        stat = _stat(self.pid)
        return stat is not None and stat[_BIRTH] == self.birth and stat[_STATE] != "Z"

    @property
    def title(self) -> str:
        """Its command line; Ray's workers say there what they are."""
        try:
            return (
                Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            )
        except OSError:
            return ""

    def send(self, what: signal.Signals) -> bool:
        """The signal; False when it is gone already."""
        if not self.lives:
            return False
        try:
            os.kill(self.pid, what)
        except ProcessLookupError:
            return False
        return True


class Family:
    """A process and all that ever came of it, as far as somebody looked: what outlives its parent is not forgotten.

    Several threads may look at a time: one that strikes, one that watches.
    """

    def __init__(self, root: int) -> None:
        self._lock = threading.Lock()
        self._known: set[Process] = set()
        self.adopt(root)

    def adopt(self, root: int) -> None:
        """One more to start from."""
        stat = _stat(root)
        if stat is not None:
            with self._lock:
                self._known.add(Process(pid=root, birth=stat[_BIRTH]))

    def look(self) -> list[Process]:
        """Those that live now, children found since included."""
        children = _children()
        found: set[Process] = set()
        with self._lock:
            todo = [one for one in self._known if one.lives]
            while todo:
                one = todo.pop()
                if one not in found:
                    found.add(one)
                    todo += children[one.pid]
            self._known |= found
        return [one for one in found if one.lives]

    def titled(self, *titles: str) -> list[Process]:
        """Living ones whose command line begins with one of these, oldest first."""
        return sorted(
            (one for one in self.look() if one.title.startswith(titles)), key=lambda one: (int(one.birth), one.pid)
        )

    def holding(self, *parts: str) -> list[Process]:
        """Living ones whose command line holds one of these."""
        return [one for one in self.look() if any(part in one.title for part in parts)]

    def census(self) -> Counter[str]:
        """How many of each title that counts."""
        titles = (one.title for one in self.look())
        return Counter(
            title.partition(".")[0] for title in titles if title.startswith(_COUNTED)
        )  # .method while it runs


def surplus(before: Counter[str], now: Counter[str]) -> tuple[str, ...]:
    """Titles of which there are more than before, once for each that is too many."""
    return tuple(title for title, count in sorted((now - before).items()) for _ in range(count))


def send_all(processes: Iterable[Process], what: signal.Signals) -> list[Process]:
    """The signal to each; those that it reached."""
    return [one for one in processes if one.send(what)]


def _children() -> defaultdict[int, list[Process]]:
    found: defaultdict[int, list[Process]] = defaultdict(list)
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            found[int(stat[_PARENT])].append(Process(pid=pid, birth=stat[_BIRTH]))
    return found


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> list[str] | None:
    """None: it is gone, or the system tells nothing of processes."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > _BIRTH else None
