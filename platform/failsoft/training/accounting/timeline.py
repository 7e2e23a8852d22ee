"""The time of a run cut into stretches, each with the one thing it went to; read from the ledger's events alone.

A small machine reads the events in order of writing. It is always in one :class:`Stage`; the table ``NEXT`` says which
events change it. Stretches are whole microseconds, so they add up to the wall time exactly. When a group of workers
died, nobody was there to say so: the stretch around its death is cut later, at the time of its last sign of life.
"""

from __future__ import annotations

from dataclasses import replace

from failsoft.health.json_object import is_finite
from failsoft.health.ledger import Event
from failsoft.training.accounting.stretches import (
    AFTER_A_DEATH,
    ALIVE,
    BEGINNINGS,
    BLIND,
    LOOKS,
    NEXT,
    PLAIN,
    SUPERVISOR,
    Mishap,
    Part,
    Stage,
    Stretch,
)
from failsoft.training.progress import MOST_SKEW_S

_LONGEST_S = 1e9  # thirty years: more is no measurement


class Timeline:
    """Reads one run's events in order of writing. :meth:`read` is its only door."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.mishaps: list[Mishap] = []
        self.kinds: set[str] = set()
        """Kinds of events read."""
        self.untimed_refusals = 0
        """Refused batches whose time nobody took."""
        self.set_back_us = 0
        """By how much the wall clock went back between events, in all."""
        self.stood_us = 0
        """From an end of the run to its next start."""
        self._stage: Stage | None = None
        self._now_us = 0
        self._at_us = 0
        self._position = 0
        self._wait_us = 0
        self._open: int | None = None
        self._limbo: int | None = None
        self._down = Part.UNSPLIT

    @property
    def now_us(self) -> int:
        """Wall time read so far: the sum of all stretches."""
        return self._now_us

    @property
    def stage(self) -> Stage | None:
        """Where the run stands after what was read; None before anything."""
        return self._stage

    def read(self, event: Event) -> None:
        """Take the next event of the run."""
        kind = _kind(event)
        self.kinds.add(kind)
        length_us = self._passed(event.at_s)
        if self._stage is None:
            self._stage, self._position = NEXT.get(kind, Stage.STARTING), _position(event, 0)
            self._wait_us = _micros(event.data.get("wait_s")) if kind == "attempt_failed" else 0
            return
        if self._stage is Stage.OVER:
            self.stood_us += length_us
            if kind not in BEGINNINGS:
                return
        else:
            self._now_us += length_us
            self._cut(kind, event, self._now_us - length_us)
        self._move(kind, event)

    def seen_alive(self, at_s: float) -> None:
        """The run was seen at work at this wall time, after all of its events."""
        if self._stage is Stage.WORKING and round(at_s * 1e6) > self._at_us:
            begin_us = self._now_us
            self._now_us += self._passed(at_s)
            self._add(begin_us, self._now_us, Part.PRODUCTIVE, last=self._position)

    def _passed(self, at_s: float) -> int:
        at_us = round(at_s * 1e6)
        length_us = 0 if self._stage is None else at_us - self._at_us
        self._at_us = at_us
        self.set_back_us += max(0, -length_us)
        return max(0, length_us)

    def _cut(self, kind: str, event: Event, begin_us: int) -> None:
        """Say what the time since the event before went to."""
        if self._stage is Stage.WORKING and (kind in AFTER_A_DEATH or event.data.get("by") == SUPERVISOR):
            self._died(kind, event, begin_us)
        elif self._stage is Stage.WORKING or (self._stage is Stage.DETECTING and kind in ALIVE):
            self._worked(kind, event, begin_us)
        else:
            self._was_down(kind, begin_us)

    def _worked(self, kind: str, event: Event, begin_us: int) -> None:
        part, took_us = Part.PRODUCTIVE, 0
        if kind == "batch_refused":
            part, took_us = Part.REFUSED, _micros(event.data.get("took_s"))
            self.untimed_refusals += "took_s" not in event.data
        elif kind == "checkpoint_handed_over":
            part, took_us = Part.STALL, _micros(event.data.get("stall_s"))
        elif kind in LOOKS:
            part, took_us = Part.VALIDATION, _micros(event.data.get("took_s"))
        position = max(self._position, _position(event, self._position))
        middle_us = max(begin_us, self._now_us - took_us)
        self._add(begin_us, middle_us, Part.PRODUCTIVE, last=position)
        self._add(middle_us, self._now_us, part, last=position + (kind == "batch_refused"))

    def _died(self, kind: str, event: Event, begin_us: int) -> None:
        """The workers died since the event before, and nobody said when."""
        self._open = self._mishap("restart", event)
        self._add(begin_us, self._now_us, Part.UNKNOWN, last=self._position, incident=self._open)
        self._limbo = len(self.stretches) - 1 if begin_us < self._now_us else None
        self._down = Part.UNSPLIT if kind in BLIND else Part.DETECT

    def _was_down(self, kind: str, begin_us: int) -> None:
        part = PLAIN[self._stage or Stage.STARTING]
        blind = BLIND if self._stage is Stage.DETECTING else {"run_started"}
        if self._stage is not Stage.LOADING and kind in blind:
            part = Part.UNSPLIT  # nobody told where the one ended and the next began
        waited_us = min(self._wait_us, self._now_us - begin_us) if self._stage is Stage.WAITING else 0
        self._add(begin_us, begin_us + waited_us, Part.BACKOFF, incident=self._open)
        self._add(begin_us + waited_us, self._now_us, part, incident=self._open)

    def _move(self, kind: str, event: Event) -> None:
        """Follow the table, and what an event says of the time before it."""
        self._settle_limbo(event)
        if kind == "run_started":
            self._resumed(event)
        elif kind == "rolled_back" and self._stage in {Stage.WORKING, Stage.DETECTING}:
            self._rolled_back(event)
        elif kind == "attempt_failed":
            self._wait_us = _micros(event.data.get("wait_s"))
        stage = NEXT.get(kind)
        if stage is None and self._stage is Stage.DETECTING and kind in ALIVE:
            stage = Stage.WORKING  # whoever was missed works on
        if stage is Stage.DETECTING and self._stage is Stage.WORKING:
            self._open = self._mishap("restart", event)
        self._stage = stage or self._stage

    def _settle_limbo(self, event: Event) -> None:
        """Cut the time around an unseen death at the last sign of life, once that is told."""
        last_seen_s = _last_seen_s(event)
        if self._limbo is None or last_seen_s is None:
            return
        dark = self.stretches[self._limbo]
        seen_us = self._now_us - (self._at_us - round(last_seen_s * 1e6))
        cut_us = min(max(seen_us, dark.begin_us), dark.end_us)
        reached = max(dark.first, _position(event, 0) + event.count("repeated_batches"))
        alive = replace(dark, end_us=cut_us, part=Part.PRODUCTIVE, last=reached, incident=None)
        down = replace(dark, begin_us=cut_us, part=self._down, first=reached, last=reached)
        self.stretches[self._limbo : self._limbo + 1] = [one for one in (alive, down) if one.length_us]
        self._limbo = None

    def _resumed(self, event: Event) -> None:
        position = _position(event, 0)
        if self._open is not None:
            repeated = event.count("repeated_batches")
            told = self.mishaps[self._open]
            reached = max(told.position, position + repeated)
            self.mishaps[self._open] = replace(told, batches=repeated, position=reached)
        self._take_back(position, Part.LOST, {Part.PRODUCTIVE, Part.REFUSED}, self._open)
        self._position, self._open, self._limbo, self._wait_us = position, None, None, 0

    def _rolled_back(self, event: Event) -> None:
        mishap = self._mishap("rollback", event)
        undone = event.count("undone_steps")
        self.mishaps[mishap] = replace(self.mishaps[mishap], batches=undone)
        since = event.count("snapshot_position", self._position)
        self._take_back(since, Part.UNDONE, {Part.PRODUCTIVE} if undone else set(), mishap)
        self._position = event.count("replayed_from", _position(event, self._position))

    def _take_back(self, since: int, part: Part, undoes: set[Part], incident: int | None) -> None:
        """Work beyond position ``since`` doesn't stand any more. A stretch across it is cut in proportion."""
        for index in range(len(self.stretches) - 1, -1, -1):
            one = self.stretches[index]
            if one.part is Part.PRODUCTIVE and one.first < since:
                if one.last > since and one.part in undoes:
                    cut_us = one.begin_us + one.length_us * (since - one.first) // (one.last - one.first)
                    kept = replace(one, end_us=cut_us, last=since)
                    gone = replace(one, begin_us=cut_us, first=since, part=part, incident=incident)
                    self.stretches[index : index + 1] = [piece for piece in (kept, gone) if piece.length_us]
                return
            if one.part in undoes:
                self.stretches[index] = replace(one, part=part, incident=incident)
            elif one.part is Part.REFUSED:
                self.stretches[index] = replace(one, incident=incident)

    def _mishap(self, kind: str, event: Event) -> int:
        position = _position(event, self._position)
        why = event.why or event.kind
        self.mishaps.append(Mishap(kind=kind, at_us=self._now_us, at_s=event.at_s, position=position, why=why))
        return len(self.mishaps) - 1

    def _add(
        self, begin_us: int, end_us: int, part: Part, *, last: int | None = None, incident: int | None = None
    ) -> None:
        last = self._position if last is None else last
        if end_us > begin_us:
            self.stretches.append(
                Stretch(begin_us=begin_us, end_us=end_us, part=part, first=self._position, last=last, incident=incident)
            )
        self._position = last


def _kind(event: Event) -> str:
    """A planned kill is told as a fault; other planned faults end nothing."""
    if event.kind == "planned_fault" and event.data.get("fault") == "kill_worker":
        return "planned_kill"
    return event.kind


def _position(event: Event, otherwise: int) -> int:
    return event.count("position", otherwise)


def _last_seen_s(event: Event) -> float | None:
    """None where it is no time, or one after the event that tells it: nobody died later than that."""
    seen_s = event.data.get("last_seen_s")
    return seen_s if is_finite(seen_s) and 0.0 <= seen_s <= event.at_s + MOST_SKEW_S else None


def _micros(seconds: object) -> int:
    """Whole microseconds; 0 for what is no time."""
    return round(seconds * 1e6) if isinstance(seconds, int | float) and 0.0 < seconds < _LONGEST_S else 0
