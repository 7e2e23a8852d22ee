"""Secrets that open routes: several at a time while one takes another's place, and as digests where one only compares.

A token's file, or its variable, holds tokens with line breaks or blanks between; any of them opens. One may stand there
as ``sha256:`` and 64 hexadecimal digits: it opens too, and who reads the file can't use it. The first one that is no
digest is what our own commands send.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.artifacts.asides import HIDDEN, alone_in
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock, SystemClock

_log = logging.getLogger(__name__)
MIN_CHARS = 16
"""Of a token that somebody thought up; those that are made here have 32."""
MOST_TOKENS = 8
"""In one place: each of them is compared with whatever comes."""
DIGEST_MARK = "sha256:"
_DIGEST_BYTES = 32
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EACCES})
"""What file systems without hard links say (FAT, some of networks and of FUSE)."""
_WHOLE_WITHIN_S, _LOOK_S = 1.0, 0.01
"""Between making a token's file and its one write lies less than a millisecond, if nothing kills the process."""
Digests = Callable[[], tuple[bytes, ...]]
"""SHA-256 of each token that opens at this moment."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What one place holds."""

    digests: tuple[bytes, ...]
    """SHA-256 of each token."""
    plain: str | None = field(repr=False)
    """The first that is there in the open; None where all are digests."""

    @classmethod
    def read(cls, text: str, *, whose: str, where: str) -> Tokens:
        """The tokens of a text.

        Raises:
            ConfigError: there is none, there are too many, one is too short, or what is marked as a digest is none.
        """
        words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]
        if len(words) > MOST_TOKENS:
            raise ConfigError(f"{where} holds {len(words)} {whose} tokens; keep {MOST_TOKENS} at most")
        plain = [word for word in words if not word.startswith(DIGEST_MARK)]
        shortest = min(map(len, plain if words else [""]), default=MIN_CHARS)
        if shortest < MIN_CHARS:
            raise ConfigError(f"the {whose} token has {shortest} characters; use at least {MIN_CHARS}, see {where}")
        digests = (_digest(word, f"{whose} token in {where}") for word in words)
        return cls(digests=tuple(digests), plain=next(iter(plain), None))


class TokenPlace:
    """Where the tokens of one kind of caller are: the environment's variable, else a file that only its owner may read.

    Args:
        whose: of whom they are, in a word.
        variable: name of the variable.
        path: the file; made with one new token when it and the variable are absent.

    Raises:
        ConfigError: the file can be read by others, or what is there is no token.
    """

    def __init__(self, *, whose: str, variable: str, path: Path) -> None:
        self._whose, self._variable, self._path = whose, variable, path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._known = self._read()

    @property
    def plain(self) -> str:
        """What our own commands send.

        Raises:
            ConfigError: all that is there are digests.
        """
        if self._known.plain is None:
            raise ConfigError(
                f"{self._path} holds digests of {self._whose} tokens only; give the token itself in ${self._variable}"
            )
        return self._known.plain

    @property
    def is_plain(self) -> bool:
        """Whether one of them is there in the open."""
        return self._known.plain is not None

    def digests(self) -> tuple[bytes, ...]:
        """Of the tokens that hold now: a changed file holds at once, without a restart.

        While the storage is away those that were known go on to hold. A file that is there and is not as it must be
        opens to nobody: whoever emptied it meant that.
        """
        if not self._lock.acquire(blocking=False):  # another thread looks; storage that hangs holds up one, not all
            return self._known.digests
        try:
            self._look_again()
        finally:
            self._lock.release()
        return self._known.digests

    def _look_again(self) -> None:
        try:
            if not os.environ.get(self._variable) and _marks(self._path) != self._seen:
                self._known = self._read()
        except OSError as error:
            _log.warning("%s can't be read (%s); the %s tokens known so far hold", self._path, error, self._whose)
        except (ConfigError, UnicodeDecodeError) as error:
            _log.error("no %s token opens any more: %s", self._whose, error)
            self._known = Tokens(digests=(), plain=None)

    def _read(self) -> Tokens:
        given = os.environ.get(self._variable)
        if given:
            return Tokens.read(given, whose=self._whose, where=f"${self._variable}")
        if not self._seen:
            if not self._path.exists():
                make_token(self._path, SystemClock())
            _wait_until_whole(self._path, SystemClock())  # another process may be making it
        marks = _marks(self._path)  # before it is read: what is written meanwhile is read at the next look
        mode, content = self._path.stat().st_mode, self._path.read_bytes()
        self._seen = marks  # only now: where storage refuses, a token taken back must not go on to open
        if mode & 0o077:
            raise ConfigError(f"{self._path} can be read by other users; run: chmod 600 {self._path}")
        return Tokens.read(content.decode("utf-8"), whose=self._whose, where=str(self._path))


def digest_of(token: str) -> bytes:
    """SHA-256 of a token as it came; enough for what is random, which these are: nobody tries 2**192 of them."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _digest(word: str, what: str) -> bytes:
    if not word.startswith(DIGEST_MARK):
        return digest_of(word)
    try:
        digest = bytes.fromhex(word.removeprefix(DIGEST_MARK))
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        raise ConfigError(
            f"a {what} begins with {DIGEST_MARK} and is no SHA-256; make one: printf %s TOKEN | sha256sum"
        )
    return digest


def _marks(path: Path) -> tuple[int, ...]:
    """Change when the file does."""
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode


def make_token(path: Path, clock: Clock) -> None:
    """Write a new token under its final name, whole, unless another process has done so in between: one token holds.

    Args:
        path: the token's file.
        clock: for waiting until another one's is whole, where the file system can neither link nor lock.

    Raises:
        OSError: the folder takes none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{HIDDEN}{path.name}-{secrets.token_hex(4)}")
    token = secrets.token_urlsafe(24).encode()
    try:
        _write_new(aside, token)
        _link_or_make(aside, path, token)
    except FileExistsError:
        _wait_until_whole(path, clock)
    finally:
        aside.unlink(missing_ok=True)


def _write_new(path: Path, token: bytes) -> None:
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(handle, token)
        os.fsync(handle)
    except OSError:
        path.unlink(missing_ok=True)  # nobody takes half a token for one
        raise
    finally:
        os.close(handle)


def _link_or_make(aside: Path, path: Path, token: bytes) -> None:
    """Where there are no links, who makes the file at all wins, on any machine; a lock lets the others see it whole."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with alone_in(path.parent):
            _write_new(path, token)


def _wait_until_whole(path: Path, clock: Clock) -> None:
    """Of one that stays empty whoever reads it says so."""
    until_s = clock.monotonic_s() + _WHOLE_WITHIN_S
    while path.is_file() and not path.stat().st_size and clock.monotonic_s() < until_s:
        clock.sleep_s(_LOOK_S)
