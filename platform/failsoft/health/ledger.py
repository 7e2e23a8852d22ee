"""The event ledger: what happened, when, why, to whom. One schema for training, serving and releases.

JSON lines, appended with one ``write`` each, so that many processes may share a file and a process killed in mid-write
tears at most the last line. Readers count torn lines instead of failing on them. A full file is put away under a number
(:mod:`failsoft.health.ledger_files`) and still read. Fields of an event (schema 1):
``v`` schema, ``at_s`` wall time, ``side`` training | serving | release, ``kind`` a snake_case noun phrase,
``subject`` the run, release or gateway it is about, ``why`` a sentence, ``data`` small JSON details.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from failsoft.errors import ConfigError
from failsoft.health.aside import Aside
from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, is_finite, json_object
from failsoft.health.ledger_files import FULL_BYTES, all_lines, append_line, put_away
from failsoft.health.ledger_retention import bound
from failsoft.health.retention import read_retention

_log = logging.getLogger(__name__)

SCHEMA = 1
MAX_EVENT_BYTES = 64 * 1024
_YEAR_2_S, _YEAR_9999_S = -62_100_000_000.0, 253_370_000_000.0


class Side(StrEnum):
    """Which half of the platform an event comes from."""

    TRAINING = "training"
    SERVING = "serving"
    RELEASE = "release"


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the ledger."""

    at_s: float
    side: Side
    kind: str
    subject: str
    why: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def count(self, name: str, otherwise: int = 0) -> int:
        """A count in ``data``; ``otherwise`` where there is none (too large an event loses its data)."""
        value = self.data.get(name)
        return int(value) if is_count(value) else otherwise

    def to_line(self) -> bytes:
        """One JSON line, at most ``MAX_EVENT_BYTES``; larger ``data`` is replaced by a note of its size."""
        line = self._encode(self.data)
        return line if len(line) <= MAX_EVENT_BYTES else self._encode({"dropped_bytes": len(line)})

    def _encode(self, data: Mapping[str, Any]) -> bytes:
        record = {
            "v": SCHEMA,
            "at_s": round(self.at_s, 6),
            "side": self.side,
            "kind": self.kind,
            "subject": self.subject,
        }
        record |= {"why": self.why[:4096], "data": dict(data)}
        try:
            line = _to_json(record)
        except (TypeError, ValueError):  # a key that is no text, or data that holds itself
            line = _to_json(record | {"data": {"text": repr(data)[:4096]}})
        return line.encode() + b"\n"


@dataclass(frozen=True, kw_only=True)
class LedgerReading:
    """Everything that could be read, and how many lines could not."""

    events: tuple[Event, ...]
    torn_lines: int


class Ledger:
    """Append-only; opened for each write, so that a removed or rotated file is simply begun again.

    Args:
        path: of the file.
        clock: dates events.
        side: whose events they are.
        subject: what they are about.
        aside: writes; whoever records waits as long as it does. None: for the disk, however long.
    """

    def __init__(self, path: Path, clock: Clock, *, side: Side, subject: str, aside: Aside | None = None) -> None:
        self.path = path
        self._aside = aside
        self._clock = clock
        self._side = side
        self._subject = subject
        self._full_bytes = 0
        self._refused = 0
        self._told = 0

    @property
    def unrecorded(self) -> int:
        """Events that are only in the log: the disk refused them, or stood still for so long that too many waited."""
        return self._refused + (0 if self._aside is None else self._aside.turned_away)

    def record(self, kind: str, why: str, **data: Any) -> Event:
        """Append one event and return it. ``data`` is small JSON; what JSON cannot say is written as text.

        A disk that takes no more words does not end the work that they are about: the event goes to the log instead.
        How many are missing is an event of its own (``events_missing``) when the disk takes words again.
        """
        event = self._event(kind, why, data)
        line = event.to_line()  # now: whoever records goes on with the objects in ``data``
        if self._aside is None:
            self._keep(line)
        elif not self._aside.do(partial(self._keep, line)):
            self._log(line, "it has stood still, and too many events wait for it, or the process has no thread left")
        return event

    def settle(self, *, within_s: float | None = None) -> None:
        """Wait until all that was recorded is on the disk, or was refused by it, or so long."""
        if self._aside is not None:
            self._aside.settle(within_s=within_s)

    def _event(self, kind: str, why: str, data: Mapping[str, Any]) -> Event:
        return Event(at_s=self._clock.wall_s(), side=self._side, kind=kind, subject=self._subject, why=why, data=data)

    def _keep(self, line: bytes) -> None:
        if self._kept(line) and self.unrecorded > self._told and (self._aside is None or self._aside.waiting <= 1):
            self._tell_missing(self.unrecorded - self._told)

    def _tell_missing(self, count: int) -> None:
        """Whoever reads the ledger alone would take a gap for quiet."""
        why = f"{count} events before this one are missing: the disk refused them or stood still; the log has them"
        if self._kept(self._event("events_missing", why, {"count": count, "process": os.getpid()}).to_line()):
            self._told += count

    def _kept(self, line: bytes) -> bool:
        try:
            self._append(line)
        except OSError as error:
            self._refused += 1
            self._log(line, str(error))
            return False
        return True

    def _log(self, line: bytes, why: str) -> None:
        _log.warning("%s can't be written (%s); not in it: %s", self.path, why, line.decode())

    def _append(self, line: bytes) -> None:
        size = append_line(self.path, line)
        if size >= FULL_BYTES and size >= self._full_bytes:
            self._put_away(size)

    def _put_away(self, size: int) -> None:
        try:
            put_away(self.path)
        except OSError as error:  # it is whole, only larger than usual; tried again when it is larger by as much again
            self._full_bytes = size + FULL_BYTES
            _log.warning("%s is full and can't be put away (%s); it goes on growing", self.path, error)
            return
        self._full_bytes = 0
        try:
            bound(self.path, read_retention(self.path.parent))
        except (ConfigError, OSError) as error:  # nothing of it may end the work that the events are about
            _log.warning("%s is not shortened (%s)", self.path, error)


def _to_json(record: Mapping[str, Any] | str) -> str:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), default=str)


def read_ledger(path: Path) -> LedgerReading:
    """All whole events of a ledger in order of writing, its full files included; an absent file is an empty ledger."""
    events: list[Event] = []
    torn = 0
    for line in all_lines(path):
        event = parse_event(line)
        if event is None:
            torn += 1
        else:
            events.append(event)
    return LedgerReading(events=tuple(events), torn_lines=torn)


def each_event(path: Path, *words: str) -> Iterator[Event]:
    """The same events one by one: a year of them is larger than a laptop's memory.

    Args:
        path: of the ledger.
        words: values that an event must hold somewhere, as its side or its subject. A line without one of them is not
            parsed, which takes forty times as long as to look; where exactly they stand is for the caller to ask.
    """
    held = holding(*words)
    return (event for event in map(parse_event, filter(held, all_lines(path))) if event is not None)


def holding(*words: str) -> Callable[[bytes], bool]:
    """Whether a line may be of an event that holds all these values."""
    needles = [_to_json(word).encode() for word in words]
    return lambda line: all(needle in line for needle in needles)


def parse_event(line: bytes) -> Event | None:
    """The event of one line; None where it is torn or says nothing that this schema knows."""
    record = json_object(line)
    if record is None or not _is_moment(record.get("at_s")):
        return None
    try:
        return Event(
            at_s=float(record["at_s"]),
            side=Side(record["side"]),
            kind=str(record["kind"]),
            subject=str(record["subject"]),
            why=str(record["why"]),
            data=dict(record["data"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _is_moment(value: object) -> TypeGuard[float]:
    """Whether a calendar has it: what no date can be made of would break whoever shows it."""
    return is_finite(value) and _YEAR_2_S < value < _YEAR_9999_S
