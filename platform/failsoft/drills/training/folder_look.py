"""What a run's folder shows to whoever reads it: files that are torn, and the newest large one."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from failsoft.artifacts.manifest import read_manifest, verify_files
from failsoft.drills.training.inside.course import without_numbers
from failsoft.errors import ArtifactError
from failsoft.health.json_object import json_value

_ASIDE = (".tmp", ".temp", ".part", ".partial", ".aside", ".lock", ".writing", ".incomplete")
"""Endings by which writers say that a file is not meant to be read yet."""
_ZIPPED = {".pt", ".pth", ".ckpt", ".bin", ".npz", ".zip"}
_HOLDS_TENSORS = _ZIPPED | {".safetensors", ".npy", ".distcp", ".pkl"}
UNREADABLE = (
    *(ValueError, OSError, LookupError, TypeError, AttributeError, OverflowError, MemoryError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, struct.error),
)
"""What reading somebody's file of unknown content ends in; of zip files also an encrypted or an unknown method."""
_MANIFEST = "manifest.json"
_PLENTY_BYTES = 1 << 26
"""A larger zip is looked at for its end only."""


def torn_files(run: Path, *, known: Collection[Path] = ()) -> list[str]:
    """Visible files below ``run`` that can't be read whole, by their path in it, and why.

    A file is visible unless a part of its path is hidden, or its name says that it is not ready. Known are archives of
    torch and numpy, safetensors, JSON, and folders with a manifest of failsoft's. Others are taken for whole.

    Args:
        run: the run's folder.
        known: files that the drill itself has damaged.
    """
    found = []
    for path in visible(run):
        why = None if path in known else _wrong_with(path)
        if why is not None:
            found.append(f"{path.relative_to(run)}: {why}")
    return found


def visible(run: Path) -> Iterator[Path]:
    """Files that a reader would open."""
    for path in sorted(run.rglob("*")):
        names = path.relative_to(run).parts
        hidden = any(name.startswith(".") or name == "quarantine" for name in names)
        if not hidden and not any(ending in path.name for ending in _ASIDE) and path.is_file():
            yield path


def newest_large(run: Path, pattern: str | None = None, *, below: str = "") -> Path | None:
    """The file that a restart would read: of those at least half as large as the largest, the newest; None: no file.

    Args:
        run: the run's folder.
        pattern: only files that fit it, as in ``checkpoints/*.pt``.
        below: where the largest saves were seen, without their numbers; what lies there goes first.
    """
    files = [path for path in _own(run) if pattern is None or path.relative_to(run).match(pattern)]
    likely = [path for path in files if below and without_numbers(path, run).startswith(below)]
    files = likely if likely and pattern is None else files
    tensors = [path for path in files if path.suffix in _HOLDS_TENSORS]
    files = tensors if tensors and pattern is None else files
    largest = max((path.stat().st_size for path in files), default=0)
    large = [path for path in files if path.stat().st_size >= max(1, largest // 2)]
    return max(large, key=lambda path: path.stat().st_mtime_ns, default=None)


def _own(run: Path) -> Iterator[Path]:
    """Not what a link points to outside of the run: a dataset or pretrained weights of the user's are none of ours."""
    home = run.resolve()
    return (path for path in visible(run) if path.resolve().is_relative_to(home))


def _wrong_with(path: Path) -> str | None:
    try:
        if path.name == _MANIFEST:
            return _against_manifest(path.parent)
        if path.suffix == ".safetensors":
            return _safetensors(path)
        if path.suffix == ".json":
            json_value(path.read_bytes())
        elif path.suffix in _ZIPPED:
            return _archive(path)
    except FileNotFoundError:  # removed meanwhile, by a process that is still at work
        return None
    except UNREADABLE as error:
        return str(error) or type(error).__name__
    return None


def _against_manifest(folder: Path) -> str | None:
    try:
        verify_files(folder, read_manifest(folder))
    except ArtifactError as error:
        return str(error)
    return None


def _archive(path: Path) -> str | None:
    if path.stat().st_size == 0:
        return "it is empty"
    with path.open("rb") as opened:
        if opened.read(2) != b"PK":
            return None  # an old pickle, or somebody's own
    if not zipfile.is_zipfile(path):
        return "its end is missing"
    if path.stat().st_size <= _PLENTY_BYTES:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
        return None if bad is None else f"{bad} in it is changed"
    return None


def _safetensors(path: Path) -> str | None:
    content = path.read_bytes()[: 1 << 26]
    if len(content) < 8:
        return "it is shorter than a header"
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    due = 8 + length + max(ends, default=0)
    return None if path.stat().st_size == due else f"{path.stat().st_size} bytes, its header says {due}"
