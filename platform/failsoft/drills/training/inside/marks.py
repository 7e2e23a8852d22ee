"""Word that drilled processes leave for the drill: what they met, how far they came. Survives a SIGKILL."""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any

from failsoft.health.json_object import json_object

_LINES = "marks.jsonl"
_BIRTH_FIELD = 19
"""Of ``/proc/PID/stat``, behind the name."""
_COUNT = struct.Struct("<Q")
BACKWARDS, LOOKS = "backwards", "looks"
"""What is counted: backward passes, and calls with gradients off."""


class Marks:
    """The marks of one trial. Every process of it writes here, each line by one ``write``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, what: str, **data: Any) -> None:
        """Add one line."""
        line = json.dumps({"what": what, "pid": os.getpid(), **data}) + "\n"
        handle = os.open(self.folder / _LINES, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def introduce(self, what: str) -> None:
        """Add a line by which this process is known from any later one that gets its number."""
        self.say(what, born=born(os.getpid()))

    def first(self, name: str) -> bool:
        """Whether nobody was here under this name before, in any process or attempt."""
        try:
            os.close(os.open(self.folder / f"first-{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        except FileExistsError:
            return False
        return True

    def read(self) -> list[dict[str, Any]]:
        """All lines so far, oldest first."""
        path = self.folder / _LINES
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [found for line in lines if (found := json_object(line)) is not None]

    def file(self, name: str) -> Path:
        """A file that belongs to these marks."""
        return self.folder / name

    def counts(self, what: str = BACKWARDS) -> dict[tuple[int, int], int]:
        """What each process has counted, by its attempt and its number."""
        found = {}
        for path in self.folder.glob(f"{what}-*"):
            content = path.read_bytes()
            if len(content) == _COUNT.size:
                attempt, pid = map(int, path.name.removeprefix(f"{what}-").split("-"))
                found[attempt, pid] = int(_COUNT.unpack(content)[0])
        return found

    def before(self, attempt: int, what: str) -> int:
        """What attempts before this one have counted together; of several ranks the one that counted most."""
        most: dict[int, int] = {}
        for (number, _pid), count in self.counts(what).items():
            most[number] = max(most.get(number, 0), count)
        return sum(count for number, count in most.items() if number < attempt)


def born(pid: int) -> str | None:
    """When a process began, as the system counts it: a number alone may be somebody else's by now. None: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[_BIRTH_FIELD]
    except (OSError, IndexError):
        return None


class Counter:
    """Counts in a file of shared memory, so that a process that is killed has still told how far it came."""

    def __init__(self, marks: Marks, what: str, attempt: int) -> None:
        path = marks.file(f"{what}-{attempt}-{os.getpid()}")
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), _COUNT.size)
        self.value = 0
        self.before = marks.before(attempt, what)
        """Of earlier attempts."""

    def add(self) -> None:
        """One more."""
        self.value += 1
        _COUNT.pack_into(self._memory, 0, self.value)
