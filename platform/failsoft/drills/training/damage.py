"""Damages a checkpoint that lies there while nobody runs."""

from __future__ import annotations

import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from failsoft.drills.fault import DrillFault, PlannedFault


def damage(path: Path, fault: PlannedFault) -> str:
    """Damage one file as the fault says; what was done, in words.

    Its time of change stays: the disk did it, nobody wrote. Other names of the same file (hard links, perhaps outside
    of the run) keep what they had.
    """
    return _DAMAGES[fault.kind](path, random.Random(fault.seed))


def _tear(path: Path, _chance: random.Random) -> str:
    size = path.stat().st_size
    _put(path, path.read_bytes()[: size // 2])
    return f"{path.name} was cut to {size // 2} of {size} bytes"


def _flip(path: Path, chance: random.Random) -> str:
    """In the exponent of a float32 where the numbers are: a header that can't be parsed would be too easy to notice."""
    content = bytearray(path.read_bytes())
    begin, end = _numbers(path, content)
    place = max(0, end - 1 - 4 * chance.randrange(max(1, (end - begin) // 4)))
    content[place] ^= 1 << 6
    _put(path, bytes(content))
    return f"one bit of {path.name} was flipped, at byte {place}"


def _numbers(path: Path, content: bytearray) -> tuple[int, int]:
    """Where the numbers lie: in the largest tensor of an archive, else in the second half of the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.infolist() if 0 <= one.header_offset <= len(content) - 30]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        members = []  # no archive, or one that is ill already
    if not members:
        return len(content) // 2, len(content)
    tensors = [member for member in members if "/data/" in member.filename] or members
    largest = max(tensors, key=lambda member: member.file_size)
    name_and_extra = sum(struct.unpack_from("<HH", content, largest.header_offset + 26))
    begin = largest.header_offset + 30 + name_and_extra  # of a local header: 30 bytes, then its name and extra field
    end = min(begin + largest.compress_size, len(content))
    return (begin, end) if begin < end else (len(content) // 2, len(content))


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
    place = path.resolve()  # a link in the run to another file of it stays one
    before = place.stat()
    aside = place.with_name(f".{place.name}.damaged")
    aside.write_bytes(content)
    aside.chmod(before.st_mode & 0o7777)
    os.utime(aside, ns=(before.st_atime_ns, before.st_mtime_ns))
    aside.replace(place)
