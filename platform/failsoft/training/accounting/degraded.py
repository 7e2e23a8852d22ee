"""Which part of a run was degraded, and how: added up from the ledger's events alone.

*Batches* are those worked on: again after a restart or a replay counts again, since it was done again, degraded or not.
*Time* is time at work (productive, lost, undone, refused, validation or a checkpoint's stall), not that of restarts.
Several degradations at once count once in the whole, and once each by kind. One that is open when its workers die ends
at their last sign of life; one that is open when the run ends is said to be open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from failsoft.health.json_object import is_count
from failsoft.health.ledger import Event
from failsoft.training.accounting.stretches import AFTER_A_DEATH, SUPERVISOR, Part, Stage, Stretch
from failsoft.training.accounting.timeline import Timeline
from failsoft.training.degradation import BEGAN, CHANGED, ENDED

_WORK = frozenset({Part.PRODUCTIVE, Part.LOST, Part.UNDONE, Part.REFUSED, Part.STALL, Part.VALIDATION})
_ALL = "all"
_Key = tuple[str, str, int | None]


@dataclass(frozen=True, kw_only=True)
class DegradedBy:
    """What one kind of degradation amounts to in a run."""

    times: int = 0
    """How often it began; across restarts, each time."""
    batches: int = 0
    seconds: float = 0.0
    levels: tuple[str, ...] = ()
    """How far it went, in the order in which the levels were first reached."""
    names: tuple[str, ...] = ()
    """Which ones: sources, callbacks, ranks."""
    why: str = ""
    """The latest cause."""
    open: bool = False
    """Whether it holds at the end of what is known."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One that holds at the end of what is known."""

    kind: str
    name: str
    level: str
    since_s: float
    """Wall time of its beginning."""
    why: str
    data: Mapping[str, Any]
    """As its latest event told: for a slow rank ``rank``, ``host`` and ``factor``."""


@dataclass(frozen=True, kw_only=True)
class Degraded:
    """The degraded part of one run."""

    batches: int = 0
    """Worked on while anything was degraded."""
    of_batches: int = 0
    seconds: float = 0.0
    of_seconds: float = 0.0
    """At work."""
    kinds: Mapping[str, DegradedBy] = field(default_factory=dict)
    standing: tuple[Standing, ...] = ()
    """What holds now, one by one."""

    @property
    def fraction_of_batches(self) -> float | None:
        """0..1; None before any batch."""
        return self.batches / self.of_batches if self.of_batches else None

    @property
    def fraction_of_time(self) -> float | None:
        """0..1; None before any time at work."""
        return self.seconds / self.of_seconds if self.of_seconds else None

    def to_json(self) -> dict[str, Any]:
        """Plain data, the fractions included."""
        return asdict(self) | {
            "fraction_of_batches": self.fraction_of_batches,
            "fraction_of_time": self.fraction_of_time,
        }

    def in_words(self) -> str:
        """One sentence: which fraction, and how."""
        if not self.kinds:
            return "nothing was degraded"
        share = "–" if self.fraction_of_batches is None else f"{self.fraction_of_batches:.1%}"
        parts = [f"{kind} {one.batches}{' and still so' if one.open else ''}" for kind, one in self.kinds.items()]
        return f"{share} of {self.of_batches} batches degraded: {', '.join(parts)}"


class _Reader:
    """Reads the events of one run in order of writing."""

    def __init__(self) -> None:
        self.line = Timeline()
        self.spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.batches: dict[str, int] = defaultdict(int)
        self.told: dict[str, list[Event]] = defaultdict(list)
        self.of_batches = 0
        self._open: dict[_Key, int] = {}
        self._latest: dict[_Key, tuple[Event, Event]] = {}
        self._dead: frozenset[str] | None = None
        self._position = 0
        self._stand = False

    @property
    def kinds_open(self) -> frozenset[str]:
        """What holds now."""
        return frozenset(kind for kind, _name, _rank in self._open)

    @property
    def standing(self) -> tuple[Standing, ...]:
        """The same, one by one."""
        return tuple(_standing(*self._latest[key]) for key in self._open)

    def read(self, event: Event) -> None:
        """Count the batches up to this event, then follow it."""
        before = self.line.stage
        self.line.read(event)
        if before is Stage.WORKING:
            self._worked(event)
        if event.kind in AFTER_A_DEATH and not (event.kind == "run_started" and self._stand):
            self.close()
        self._stand = event.kind == "workers_up" or (self._stand and event.kind != "run_started")
        if event.kind == "run_started":
            self._started(event)
        elif event.kind in {BEGAN, CHANGED}:
            key = self._which(event)
            self.told[key[0]].append(event)
            first = self._latest[key][0] if key in self._open else event
            self._latest[key] = (first, event)
            self._open.setdefault(key, self.line.now_us)
        elif event.kind == ENDED:
            self._close(self._which(event))

    def seen_alive(self, at_s: float | None, position: int | None) -> None:
        """The run was seen at work after all of its events."""
        if at_s is not None:
            self.line.seen_alive(at_s)
        if position is not None and self.line.stage is Stage.WORKING:
            self._count(position, self.kinds_open)

    def close(self) -> None:
        """What is open ends here."""
        for key in list(self._open):
            self._close(key)

    def _which(self, event: Event) -> _Key:
        """Of which open one it tells.

        What all ranks agreed on may name a rank as its cause: another at each change, and none at the end.
        """
        key = _key(event)
        if key in self._open or event.kind == BEGAN or (event.kind == ENDED and "rank" in event.data):
            return key
        same = [one for one in self._open if one[:2] == key[:2]]
        return same[0] if len(same) == 1 else key

    def _close(self, key: _Key) -> None:
        began_us = self._open.pop(key, None)
        if began_us is not None:
            self.spans[key[0]].append((began_us, self.line.now_us))

    def _worked(self, event: Event) -> None:
        if event.kind in AFTER_A_DEATH or event.data.get("by") == SUPERVISOR:
            self._dead = self.kinds_open
            return
        self._count(event.count("position", self._position), self.kinds_open)
        if event.kind == "rolled_back":
            self._position = event.count("replayed_from", self._position)
        if self.line.stage is Stage.DETECTING:
            self._dead = self.kinds_open

    def _started(self, event: Event) -> None:
        """A group of workers begins; only now it is told how far the one before it had come."""
        position = event.count("position")
        if self._dead is not None:
            self._count(position + event.count("repeated_batches"), self._dead)
        self._position, self._dead = position, None

    def _count(self, reached: int, kinds: frozenset[str]) -> None:
        done = max(0, reached - self._position)  # another rank's word may come a batch late
        self._position = max(self._position, reached)
        self.of_batches += done
        for kind in kinds | ({_ALL} if kinds else set()):
            self.batches[kind] += done


def degraded(events: Iterable[Event], *, seen_at_s: float | None = None, seen_position: int | None = None) -> Degraded:
    """Add up what was degraded.

    Args:
        events: of one run, in order of writing.
        seen_at_s: wall time at which the run was last seen at work, for one that goes on.
        seen_position: the batch that it was at by then; its position file tells.
    """
    reader = _Reader()
    for event in events:
        reader.read(event)
    reader.seen_alive(seen_at_s, seen_position)
    still, standing = reader.kinds_open, reader.standing
    reader.close()
    work = [one for one in reader.line.stretches if one.part in _WORK]
    everything = [span for spans in reader.spans.values() for span in spans]
    return Degraded(
        batches=reader.batches[_ALL],
        of_batches=reader.of_batches,
        seconds=_overlap_s(everything, work),
        of_seconds=sum(one.length_us for one in work) / 1e6,
        kinds={kind: _by(reader, kind, work, is_open=kind in still) for kind in reader.told},
        standing=standing,
    )


def _by(reader: _Reader, kind: str, work: Sequence[Stretch], *, is_open: bool) -> DegradedBy:
    told = reader.told[kind]
    return DegradedBy(
        times=sum(event.kind == BEGAN for event in told),
        batches=reader.batches[kind],
        seconds=_overlap_s(reader.spans[kind], work),
        levels=_once(event.data.get("level") for event in told),
        names=_once(event.data.get("name") for event in told),
        why=told[-1].why,
        open=is_open,
    )


def _standing(first: Event, latest: Event) -> Standing:
    kind, name, _rank = _key(latest)
    level, said = str(latest.data.get("level", "")), dict(latest.data)
    return Standing(kind=kind, name=name, level=level, since_s=first.at_s, why=latest.why, data=said)


def _once(words: Iterable[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(word) for word in words if word))


def _overlap_s(spans: Sequence[tuple[int, int]], work: Sequence[Stretch]) -> float:
    """Seconds of work inside of any of the spans; the stretches come in order and don't overlap."""
    total, index = 0, 0
    for begin, end in _merged(spans):
        while index < len(work) and work[index].end_us <= begin:
            index += 1
        for one in islice(work, index, None):
            if one.begin_us >= end:
                break
            total += min(end, one.end_us) - max(begin, one.begin_us)
    return total / 1e6


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments in spans that are in order and apart."""
    apart: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((begin, end))
    return apart


def _key(event: Event) -> _Key:
    rank = event.data.get("rank")
    return str(event.data.get("degradation")), str(event.data.get("name", "")), rank if is_count(rank) else None
