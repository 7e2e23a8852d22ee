"""A local folder that keeps what a remote gave: checked at each read, bounded in size, shared by processes.

One file for each sample: 16 bytes of digest, then the data; written aside and renamed, so that no reader meets half of
one. A file that does not fit its digest is removed and counts as absent. When the folder is full, files leave by
chance: in epochs of a new order each, the file that was used longest ago is the one that is needed soonest, so the
usual rule (oldest first) would do worse than none.
"""

from __future__ import annotations

import logging
import os
import random
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from failsoft.artifacts.asides import has_it_alone
from failsoft.errors import ConfigError
from failsoft.training.loading.layout import DIGEST_BYTES, sample_digest

_log = logging.getLogger(__name__)

_FOLDERS = 4096
_ENDING = ".sample"
_OWN_FOLDER = re.compile(r"[0-9a-f]{3}")
_OWN_FILE = re.compile(r"\d+\.sample|\.\d+\.sample\.\d+-[0-9a-f]{8}")
_LOCK = "lock"
_LARGEST_PART = 0.5
"""Of the cache, for one sample."""


@dataclass(frozen=True, kw_only=True)
class CachePolicy:
    """How large a cache may be."""

    max_bytes: int
    """Of all files together. For a moment each process may add a 64th of it beyond that."""
    after_eviction: float = 0.9
    """What is left when the folder was full, as a share of ``max_bytes``."""

    def __post_init__(self) -> None:
        """Refuse a cache that holds nothing."""
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes is {self.max_bytes}; give the cache room, or leave it out")
        if not 0.0 < self.after_eviction < 1.0:
            raise ConfigError(f"after_eviction is {self.after_eviction}; use a share between 0 and 1, such as 0.9")


class LocalCache:
    """A tier that is filled by those below it. Picklable; safe for any number of processes.

    A disk that refuses costs the cache, never a sample: :attr:`refused` counts. What others put into its folder is
    neither counted nor removed, and said once.

    Args:
        folder: of this data set alone: another one has other samples at the same indices.
        policy: its size.
    """

    name = "cache"

    def __init__(self, folder: Path, policy: CachePolicy) -> None:
        self.folder = Path(folder)
        self.policy = policy
        self.damaged = 0
        """Files whose bytes did not fit their digest."""
        self.refused = 0
        """Samples that the disk did not take."""
        self._added: int | None = None
        self._has_said = False

    def shard_of(self, _index: int) -> str:
        """It is one shard."""
        return ""

    def fetch(self, index: int) -> bytes | None:
        """The sample's bytes, checked; None when it is not here, or damaged, or the disk does not give it."""
        path = self._path(index)
        try:
            body = path.read_bytes()
        except OSError:
            return None
        data = body[DIGEST_BYTES:]
        if len(body) >= DIGEST_BYTES and sample_digest(data) == body[:DIGEST_BYTES]:
            return data
        self.damaged += 1
        self.forget(index)
        return None

    def forget(self, index: int) -> None:
        """Remove a sample, if it is here."""
        try:
            self._path(index).unlink(missing_ok=True)
        except OSError:
            self.refused += 1

    def keep(self, index: int, data: bytes) -> None:
        """Take a sample in; throws others out when there is no room. One of more than half the cache stays out."""
        if len(data) > self.policy.max_bytes * _LARGEST_PART:
            self.refused += 1  # all others would have to go for it
            return
        path = self._path(index)
        aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            self._make_room(len(data))
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(sample_digest(data) + data)
            aside.replace(path)
        except OSError:
            self.refused += 1
            with suppress(OSError):
                aside.unlink()

    def size_bytes(self) -> int:
        """Of all files, counted now."""
        return sum(size for _, size in self._files())

    def _make_room(self, size: int) -> None:
        """Counts the folder at the start, and again whenever this process has added a 64th of the bound."""
        if self._added is not None and self._added + size <= self.policy.max_bytes // 64:
            self._added += size
            return
        self._added = size
        with self._alone() as alone:
            if alone:
                self._evict(size)

    def _evict(self, size: int) -> None:
        files = list(self._files())
        total = sum(taken for _, taken in files) + size
        if total <= self.policy.max_bytes:
            return
        random.Random(total).shuffle(files)
        room = self.policy.max_bytes * self.policy.after_eviction
        refusal: OSError | None = None
        while files and total > room:
            path, taken = files.pop()
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                refusal = error
            else:
                total -= taken
        if refusal is not None and total > self.policy.max_bytes:
            raise refusal

    def _files(self) -> Iterator[tuple[Path, int]]:
        """Also what a killed writer left aside, so that it is bounded, too."""
        if not self.folder.is_dir():
            return
        for folder in os.scandir(self.folder):
            if _OWN_FOLDER.fullmatch(folder.name) and folder.is_dir():
                yield from self._files_in(folder.path)
            elif folder.name != _LOCK:
                self._say(f"{folder.path} is not of this cache")

    def _files_in(self, folder: str) -> Iterator[tuple[Path, int]]:
        try:
            found = list(os.scandir(folder))
        except FileNotFoundError:  # another process removed it meanwhile
            return
        except OSError as error:
            self._say(f"{folder} can't be looked into ({error})")
            return
        for file in found:
            try:
                if _OWN_FILE.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    yield Path(file.path), file.stat().st_size
                else:
                    self._say(f"{file.path} is not of this cache")
            except FileNotFoundError:  # likewise
                continue

    def _say(self, what: str) -> None:
        if not self._has_said:
            self._has_said = True
            _log.warning("%s; it stays, and is not counted: a cache is best in a folder of its own", what)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether this process is the one that counts and removes now; the others do not wait for it.

        Where no lock can be had, each of them is: two that remove at a time leave less, and damage nothing.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _LOCK
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)  # never waits, not for a pipe either
        except OSError:
            if path.is_dir() or path.is_symlink():
                self._say(f"{path} is not of this cache, which would have its lock there")
            yield True
            return
        try:
            yield has_it_alone(lock)
        finally:
            os.close(lock)

    def _path(self, index: int) -> Path:
        return self.folder / f"{index % _FOLDERS:03x}" / f"{index}{_ENDING}"
