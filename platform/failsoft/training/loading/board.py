"""What the workers of one loader know together of sources that are ill: a table in memory that they share.

Nobody waits for a lock here, since a worker that is killed would hold it for ever. Each entry is one number, written
and read whole; of two that are written at the same moment one is lost, and then a source is tried once more than need
be, or rests by the other's count. Times are the monotonic clock's, which all processes of a machine share.
"""

from __future__ import annotations

import secrets
from multiprocessing.context import get_spawning_popen
from typing import Any

import torch
from blake3 import blake3

_KEY, _STRIKES, _RESTS, _REST_NS, _UNTIL_NS, _FIELDS = range(6)
_TEXT_BYTES = 160
_NS = 1e9


class Board:
    """The table. In a worker that is started with it, it is the same one; any other copy is empty.

    Args:
        sources: that may be ill at a time, tiers and shards together; of more each worker learns for itself.
        table: of another process.
    """

    def __init__(self, sources: int = 1024, table: torch.Tensor | None = None) -> None:
        self._sources = sources
        texts = sources * _TEXT_BYTES
        self._table = torch.zeros(texts + 8 * (sources * _FIELDS + 1), dtype=torch.uint8) if table is None else table
        self._table.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves this one untyped
        whole = memoryview(self._table.numpy())  # type: ignore[arg-type]  # arrays are buffers, whatever numpy says
        self.texts = whole[:texts]
        """A cause for each source."""
        self.numbers = whole[texts:-8].cast("q")
        """A key, the failures in a row, the rests so far, length and end of the present one, for each source."""
        self.change = whole[-8:].cast("q")
        """One number, which is another one whenever something was written."""

    def __reduce__(self) -> tuple[Any, ...]:
        starts_a_worker = get_spawning_popen() is not None
        return Board, (self._sources, self._table) if starts_a_worker else (self._sources,)

    @property
    def keys(self) -> list[int]:
        """Of all sources that something was said of."""
        keys: list[int] = self.numbers[::_FIELDS].tolist()
        return keys[: keys.index(0)] if 0 in keys else keys

    def place_of(self, key: int, *, claim: bool) -> int | None:
        """The row of a source; None when there is none, or no room for one more."""
        numbers, free = self.numbers, None
        for row in range(self._sources):
            found = numbers[row * _FIELDS + _KEY]
            if found == key:
                return row
            if not found:
                free = row
                break
        if free is None or not claim:
            return None
        numbers[free * _FIELDS + _KEY] = key
        return free


class Word:
    """What the board says of one source.

    Args:
        board: where it stands.
        name: of the source; the same in all processes.
    """

    def __init__(self, board: Board, name: str) -> None:
        self._board = board
        self.key = int.from_bytes(blake3(name.encode(errors="surrogatepass")).digest(7), "big") | 1
        """What stands for the name on the board."""
        self._row: int | None = None

    @property
    def is_there(self) -> bool:
        """Whether anything was said of it."""
        return self._at(claim=False) is not None

    @property
    def strikes(self) -> int:
        """Failures in a row, of all workers together."""
        return self._get(_STRIKES)

    @property
    def rests(self) -> int:
        """Rests in a row."""
        return self._get(_RESTS)

    @property
    def rest_s(self) -> float:
        """Length of the present one."""
        return self._get(_REST_NS) / _NS

    @property
    def until_s(self) -> float:
        """End of the present rest by the monotonic clock; 0 while it is well."""
        return self._get(_UNTIL_NS) / _NS

    @property
    def cause(self) -> str:
        """Of the present rest."""
        row = self._at(claim=False)
        if row is None:
            return ""
        text = bytes(self._board.texts[row * _TEXT_BYTES : (row + 1) * _TEXT_BYTES])
        return text.rstrip(b"\0").decode(errors="replace")

    def strike(self) -> int:
        """One more failure; returns how many in a row."""
        strikes = self.strikes + 1
        self._put(_STRIKES, strikes)
        return strikes

    def forgive(self) -> None:
        """It gave what it was asked for, so the next failure is the first."""
        self._put(_STRIKES, 0)

    def rest(self, *, rests: int, rest_s: float, until_s: float, cause: str) -> None:
        """It rests, or is being tried by one worker, whose word the others await until then."""
        row = self._at(claim=True)
        if row is not None:
            text = cause.encode(errors="replace")[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
            self._board.texts[row * _TEXT_BYTES : (row + 1) * _TEXT_BYTES] = text
            self._put(_RESTS, rests)
            self._put(_REST_NS, round(rest_s * _NS))
            self._put(_UNTIL_NS, max(1, round(until_s * _NS)))

    def well(self) -> None:
        """It answers again."""
        for field in (_UNTIL_NS, _STRIKES, _RESTS, _REST_NS):
            self._put(field, 0)

    def _at(self, *, claim: bool) -> int | None:
        """Looked up anew where another process, at the same moment, took the same row for another source."""
        row = self._row
        if row is None or self._board.numbers[row * _FIELDS + _KEY] != self.key:
            row = self._row = self._board.place_of(self.key, claim=claim)
        return row

    def _get(self, field: int) -> int:
        row = self._at(claim=False)
        return 0 if row is None else int(self._board.numbers[row * _FIELDS + field])

    def _put(self, field: int, number: int) -> None:
        row = self._at(claim=True)
        if row is not None:
            self._board.numbers[row * _FIELDS + field] = number
            self._board.change[0] = secrets.randbits(62)  # a count would lose one of two at the same moment
