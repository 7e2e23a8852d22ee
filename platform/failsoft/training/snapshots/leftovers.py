"""Snapshots in memory of the host that no worker holds: of a run that waits to go on, or of one that nobody continues.

A run that goes on uses its own, and sweeps those of others after an hour. Where no run comes they stay, and memory is
what they take; so people may look at them, and sweep them.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from failsoft.training.checkpoints.driver_lock import LOCK_NAME
from failsoft.training.snapshots.host_memory import host_folder
from failsoft.training.snapshots.refuge_folder import remove_unless_held, touched_s
from failsoft.training.snapshots.refuge_opening import KEY_NAME

_ORPHAN_AFTER_S = 3600.0
"""Of a run of another home: its supervisor may be waiting out a back-off."""


@dataclass(frozen=True, kw_only=True)
class LeftOver:
    """All that one run has left on this host."""

    key: str
    run: str | None
    """Its name, where it is a run of this home; all names, where its folder was copied and the key with it."""
    folders: tuple[Path, ...]
    size_bytes: int
    idle_s: float
    driven: bool | None = None
    """Whether somebody drives the run, so that its next workers will go on from this; None: nobody here can say, as of
    a run of another home, one whose driver is on another host, or one whose workers somebody else starts again."""

    @property
    def may_go(self) -> bool:
        """Whether a sweep takes it: nobody drives the run, or nobody can say and it is old."""
        return self.idle_s > _ORPHAN_AFTER_S if self.driven is None else not self.driven


def left_over(runs: Path, now_s: float, *, root: Path | None = None) -> list[LeftOver]:
    """What lies in memory of this host for this user, largest first; nothing where snapshots don't lie there.

    Args:
        runs: the folder of this home's runs.
        now_s: wall time.
        root: the file system in memory; None: where snapshots go.
    """
    top = root or host_folder()
    keys = _names_by_key(runs)
    found = [] if top is None else sorted((top / f"failsoft-{os.getuid()}").glob("*"))
    left = [one for folder in found if (one := _looked_at(folder, runs, keys, now_s)) is not None]
    return sorted(left, key=lambda one: -one.size_bytes)


def sweep(left: Iterable[LeftOver]) -> int:
    """Remove those that may go; returns how many bytes that gave back. What a worker holds by now stays."""
    given_back = 0
    for one in left:
        if one.may_go:
            sizes = {folder: _size_bytes(folder) for folder in one.folders}
            given_back += sum(size for folder, size in sizes.items() if remove_unless_held(folder))
    return given_back


def in_words(one: LeftOver) -> str:
    """For people."""
    whose = f"of run {one.run}" if one.run is not None else f"of a run of another home ({one.key})"
    fate = "its next workers go on from them" if one.run is not None else "nobody here knows it"
    return f"{one.size_bytes / 1e6:.0f} MB of snapshots {whose} lie in memory, untouched for {one.idle_s:.0f} s; {fate}"


def _looked_at(folder: Path, runs: Path, keys: Mapping[str, Sequence[str]], now_s: float) -> LeftOver | None:
    ranks = tuple(sorted(folder.glob("rank-*")))
    if not ranks:
        return None
    names = keys.get(folder.name, ())
    return LeftOver(
        key=folder.name,
        run=" and ".join(names) or None,
        folders=ranks,
        size_bytes=sum(map(_size_bytes, ranks)),
        idle_s=max(0.0, now_s - max(map(touched_s, ranks))),
        driven=_any_driven(runs / name for name in names),
    )


def _names_by_key(runs: Path) -> dict[str, list[str]]:
    names: dict[str, list[str]] = defaultdict(list)
    for path in sorted(runs.glob(f"*/{KEY_NAME}")):
        with suppress(OSError):
            names[path.read_text("utf-8", "replace").strip()].append(path.parent.name)
    return names


def _size_bytes(folder: Path) -> int:
    size = 0
    for path in folder.glob("*"):
        with suppress(OSError):
            size += path.stat().st_size
    return size


def _any_driven(run_folders: Iterable[Path]) -> bool | None:
    said = {_driven(folder) for folder in run_folders}
    if True in said:
        return True
    return False if said == {False} else None


def _driven(run_folder: Path) -> bool | None:
    """By the note in the run's lock. To try the lock itself could turn away a driver that starts at that moment.

    No note says nothing: its file system has no locks, it can't be read, its driver has not written it yet, or its
    workers are started by somebody who takes no lock (torchrun).
    """
    try:
        words = (run_folder / LOCK_NAME).read_text("utf-8", "replace").split()
        process, host = int(words[1]), words[3]
    except (OSError, ValueError, IndexError):
        return None
    if host != socket.gethostname() or process < 1:
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:  # no process has such a number
        return None
    return True
