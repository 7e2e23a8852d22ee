"""Zip archives that every reader reads the same way, so that what was judged is what is loaded.

Python finds an archive's list of files right before the end of the file; torch finds it where the end says that it is.
A file can hold two lists: a harmless one for whoever judges, and another for whoever loads. Torch also takes names that
differ in case for the same. So an archive is refused unless all that it says of itself agrees.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_END = struct.Struct("<4s4H2LH")
"""Of an archive: mark, four counts, size and place of the list of files, length of a comment."""
_END_64, _LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_FIRST, _LAST, _MARK_64, _MARK_LOCATOR = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_SHORT, _LONG = 0xFFFF, 0xFFFFFFFF
"""Stand where a number is in the longer form only."""
_MOST_UNPACKED = 256 * 1024 * 1024


@contextmanager
def plain_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive as torch writes it, opened for reading.

    Raises:
        zipfile.BadZipFile: it is no archive, or one that can be read in two ways, or unpacks to more than 256 MiB.
        OSError: the file can't be read.
    """
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        if file.seek(0) == 0 and file.read(4) != _FIRST:
            raise zipfile.BadZipFile("something stands before the archive")
        size = file.seek(0, 2)
        file.seek(max(0, size - _END.size - _LOCATOR.size - _END_64.size))
        count = _listed(file.read(), size)
        _judge_names(archive.infolist(), count)
        yield archive


def _listed(tail: bytes, size: int) -> int:
    """How many files the end of an archive says there are, where its list ends right before the end."""
    mark, *disks, begin_count, count, length, begin, comment = _END.unpack(tail[-_END.size :])
    if mark != _LAST or comment or any(disks) or begin_count != count:
        raise zipfile.BadZipFile("its end is not where the file ends")
    place, rest = size - _END.size, tail[: -_END.size]
    if rest[-_LOCATOR.size :].startswith(_MARK_LOCATOR):
        place -= _LOCATOR.size + _END_64.size
        short = (count, length, begin)
        count, length, begin = _longer(rest, place)
        limits = (_SHORT, _LONG, _LONG)
        if any(
            one not in (limit, wide) for one, limit, wide in zip(short, limits, (count, length, begin), strict=True)
        ):
            raise zipfile.BadZipFile("it says in two ways where its list of files is")
    if begin + length != place:
        raise zipfile.BadZipFile("its list of files is not where it says")
    return int(count)


def _longer(rest: bytes, place: int) -> tuple[int, int, int]:
    """Count, length and begin of the list of files in the form for large archives, which has to lie at ``place``."""
    _, disk, where, disks = _LOCATOR.unpack(rest[-_LOCATOR.size :])
    found = rest[-_LOCATOR.size - _END_64.size : -_LOCATOR.size]
    if where != place or disk or disks > 1 or len(found) != _END_64.size:
        raise zipfile.BadZipFile("the end of its longer form is not where it says")
    mark, length_of_this, _, _, disk, list_disk, begin_count, count, length, begin = _END_64.unpack(found)
    if mark != _MARK_64 or length_of_this != _END_64.size - 12 or disk or list_disk or begin_count != count:
        raise zipfile.BadZipFile("the end of its longer form is none")
    return count, length, begin


def _judge_names(files: list[zipfile.ZipInfo], count: int) -> None:
    names = {info.orig_filename.lower() for info in files}
    if not len(names) == len(files) == count:
        raise zipfile.BadZipFile("it has two files of one name, or not as many files as it says")
    odd = [
        info.orig_filename for info in files if not info.orig_filename.isascii() or not info.orig_filename.isprintable()
    ]
    if odd:
        raise zipfile.BadZipFile(f"{odd[0]!a} is no name of a file")
    if sum(info.file_size for info in files if info.compress_type != zipfile.ZIP_STORED) > _MOST_UNPACKED:
        raise zipfile.BadZipFile(f"its packed files are larger than {_MOST_UNPACKED} bytes")
