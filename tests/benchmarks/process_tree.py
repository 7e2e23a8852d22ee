"""A process and all that came of it, from ``/proc``: how many, how much memory, how busy. Linux only."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> list[int]:
    """The living processes below ``root``, itself included."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) and fields[0] != "Z":
            children[int(fields[1])].append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children[pid]
    return [pid for pid in found if _stat(pid)]


def memory_mb(pids: list[int]) -> float:
    """Their memory, what they share counted once (proportional set size)."""
    total_kb = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
        except OSError:  # gone meanwhile
            continue
        total_kb += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total_kb / 1024.0


def cpu_s(pids: list[int]) -> float:
    """CPU time that they have used up to now."""
    return sum((int(fields[11]) + int(fields[12])) * _TICK_S for pid in pids if (fields := _stat(pid)))


def born(pid: int) -> int | None:
    """When a living process began, in the kernel's ticks: the same number later may be another process's."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def await_calm(root: int, *, busy_cores: float = 0.3, look_s: float = 0.5, at_most_s: float = 15.0) -> bool:
    """Wait until the processes below ``root`` use less than ``busy_cores``; False when they never do."""
    end_s = time.monotonic() + at_most_s
    while time.monotonic() < end_s:
        pids = descendants(root)
        used_s = cpu_s(pids)
        time.sleep(look_s)
        if set(descendants(root)) == set(pids) and cpu_s(pids) - used_s < busy_cores * look_s:
            return True
    return False


def end_all(root: int) -> None:
    """Ask ``root`` to end, then end what is left of its processes."""
    pids = descendants(root)
    for pid, how in [(root, signal.SIGTERM), *((pid, signal.SIGKILL) for pid in reversed(pids))]:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue
        if how is signal.SIGTERM:
            time.sleep(1.0)


def _stat(pid: int) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
