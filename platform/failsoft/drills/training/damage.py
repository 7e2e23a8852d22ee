"""Damages a checkpoint that lies there while nobody runs."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from failsoft.drills.fault import DrillFault, PlannedFault


def damage(path: Path, fault: PlannedFault) -> str:
    """Damage one file as the fault says; what was done, in words.

    Its time of change stays: the disk did it, nobody wrote.
    """
    return _DAMAGES[fault.kind](path, random.Random(fault.seed))


def _tear(path: Path, _chance: random.Random) -> str:
    size = path.stat().st_size
    _put(path, path.read_bytes()[: size // 2])
    return f"{path.name} was cut to {size // 2} of {size} bytes"


def _flip(path: Path, chance: random.Random) -> str:
    """In the second half, where the numbers are: a header that can't be parsed would be too easy to notice."""
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content) // 2, max(len(content) // 2 + 1, len(content) * 9 // 10))
    content[place] ^= 1 << chance.randrange(8)
    _put(path, bytes(content))
    return f"one bit of {path.name} was flipped, at byte {place}"


def _remove(path: Path, _chance: random.Random) -> str:
    path.unlink()
    return f"{path.name} was removed"


_DAMAGES: dict[DrillFault, Callable[[Path, random.Random], str]] = {
    DrillFault.TORN_CHECKPOINT: _tear,
    DrillFault.FLIPPED_CHECKPOINT: _flip,
    DrillFault.MISSING_CHECKPOINT: _remove,
}
DAMAGING = frozenset(_DAMAGES)
"""Faults that damage a checkpoint between two attempts."""


def _put(path: Path, content: bytes) -> None:
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
