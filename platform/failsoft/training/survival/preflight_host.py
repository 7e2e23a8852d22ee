"""The run's folder as this node sees it, and the memory that is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from failsoft.artifacts.asides import aside_of
from failsoft.health.clock import Clock
from failsoft.training.snapshots.host_memory import available_ram_bytes
from failsoft.training.survival.preflight import Finding, NodeReport, failed, not_here, passed

DISK = "disk"
SPACE = "disk space"
RAM = "memory"
_TRIAL = bytes(range(256)) * 4096
"""1 MiB in which no two neighbours are alike."""

Write = Callable[[Path, bytes], None]
"""Puts bytes into a new file and has the disk confirm them; a planned fault puts another in its place."""


def write_through(path: Path, content: bytes) -> None:
    """Write, and return when the disk says that it has them.

    Raises:
        OSError: it refuses.
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def disk_answers(folder: Path, node: str, clock: Clock, write: Write = write_through) -> Finding:
    """Write aside, flush, rename and read back 1 MiB in the run's folder, as a checkpoint is written.

    Args:
        folder: the run's; made when it is not there.
        node: this node's id: two nodes must not take each other's file for their own.
        clock: for the time that the disk took.
        write: puts bytes on it.
    """
    began_s = clock.monotonic_s()
    trial = folder / f"preflight-{node[:16]}"
    aside, whole = aside_of(trial), aside_of(trial)  # a killed preflight's go with a later write to that folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(aside, _TRIAL)
        wrote_s = clock.monotonic_s() - began_s
        aside.rename(whole)
        same = _read_from_disk(whole) == _TRIAL
    except OSError as error:
        return failed(DISK, f"{folder}: {error.strerror or error}; mend the disk or mount it for writing")
    finally:
        for left in (aside, whole):
            with suppress(OSError):  # storage that is read-only refuses this, too; what it said first is told
                left.unlink(missing_ok=True)
    if not same:
        return failed(DISK, f"{folder} gives back other bytes than were written")
    return passed(DISK, f"1 MiB down in {wrote_s * 1000.0:.1f} ms")


def _read_from_disk(path: Path) -> bytes:
    """Not from the page cache, where the system can be asked for that."""
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def space_is_left(folder: Path, need_bytes: int) -> Finding:
    """Free disk for the next checkpoints."""
    free_bytes = shutil.disk_usage(_nearest(folder)).free
    if free_bytes < need_bytes:
        return failed(SPACE, f"{folder} has {_mib(free_bytes)} free and needs {_mib(need_bytes)}; make room there")
    return passed(SPACE, f"{_mib(free_bytes)} free")


def memory_is_left(need_bytes: int, free: Callable[[], int | None] = available_ram_bytes) -> Finding:
    """RAM that a worker could take now, limits of containers included."""
    free_bytes = free()
    if free_bytes is None:
        return not_here(RAM, "the system does not say what is free")
    if free_bytes < need_bytes:
        return failed(RAM, f"{_mib(free_bytes)} free, {_mib(need_bytes)} needed; end what holds the memory")
    return passed(RAM, f"{_mib(free_bytes)} free")


def storage_trouble(reports: Sequence[NodeReport]) -> dict[str, str]:
    """Probes of the run's folder that fail on each node, with the words of the first.

    That is the storage's fault and no node's: to keep away from all of them would mend nothing, and would hold up a run
    that can train on for a while with the checkpoint that it has.
    """
    failing = [{finding.probe: finding.why for finding in report.findings if finding.bad} for report in reports]
    return {probe: failing[0][probe] for probe in (DISK, SPACE) if failing and all(probe in bad for bad in failing)}


def bytes_needed(checkpoints: Path, sizes: float, at_least: int) -> int:
    """Disk that the next checkpoints need: ``sizes`` times the largest that is there, and never less than ``at_least``.

    Args:
        checkpoints: folder with one folder for each checkpoint; one that cannot be read counts as nothing.
        sizes: how many of the largest must fit.
        at_least: bytes.
    """
    try:
        folders = [entry for entry in checkpoints.iterdir() if entry.is_dir()] if checkpoints.is_dir() else []
        largest = max((_size(folder) for folder in folders), default=0)
    except OSError:  # away, or changing under our eyes; the probe of the disk says which
        largest = 0
    return max(int(sizes * largest), at_least)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _nearest(folder: Path) -> Path:
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
