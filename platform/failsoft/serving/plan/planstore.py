"""Where the routing plan is kept, so that no restart forgets it.

Two files, ``plan-0.json`` and ``plan-1.json``, written in turn and each replaced whole: the valid one with the larger
write number is the truth, and if it is damaged the other is at most one write behind. No file holds a point in time:
only remaining and elapsed seconds, since neither clock means anything after a restart.

A controller whose node was cut off may live on beside the one that took its place. Each write names its writer, and one
that finds another's since its own is refused: what the earlier one thinks never becomes true for anybody.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failsoft.artifacts.manifest import digest_bytes
from failsoft.artifacts.store import write_durably
from failsoft.errors import FailsoftError, PlanOvertakenError, PlanStoreError
from failsoft.health.json_object import json_value
from failsoft.serving.plan.plan import RoutingPlan, known_fields
from failsoft.serving.rollout.evidence import Counts

FORMAT = 1
_SLOTS = ("plan-0.json", "plan-1.json")
_ILL = (ValueError, TypeError, LookupError, AttributeError, OverflowError, FailsoftError)
"""What a slot raises that is torn, or was written by another hand."""


@dataclass(frozen=True, kw_only=True)
class RolloutState:
    """The plan, and what the controller must know to go on from it."""

    plan: RoutingPlan
    since_epoch: int
    """Reports and trips under plans from this one on concern the subject as it is now."""
    order: str = ""
    """The operator's order that is in force, in words; the same one again changes nothing but its end."""
    held: str = ""
    """Who holds the subject in its stage, and why, in words; empty: it rises by itself."""
    slots: int = 2
    """Model deployments that the plan is made for: two colours, or one slot (see ``one_slot.py``)."""
    proven: bool = True
    """The subject has been in SERVING: it is never rejected, it only falls and returns."""
    trips: int = 0
    """Since the last full quiet period."""
    rest_s: float = 0.0
    """What remains of the rest in DEGRADED."""
    counts: Counts = field(default_factory=Counts)
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Releases that were rejected, and why."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "plan": self.plan.as_json(),
            "since_epoch": self.since_epoch,
            "order": self.order,
            "held": self.held,
            "slots": self.slots,
            "proven": self.proven,
            "trips": self.trips,
            "rest_s": self.rest_s,
            "counts": self.counts.as_json(),
            "rejected": dict(self.rejected),
        }

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> RolloutState:
        """Read what :meth:`as_json` gave, here or in another version; raises what a wrong value raises."""
        fields = known_fields(cls, body)
        return cls(plan=RoutingPlan.of(fields.pop("plan")), counts=Counts.of(fields.pop("counts")), **fields)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What storage holds."""

    state: RolloutState
    damaged: str | None
    """What is wrong with the other file, which may have been the newer one; None when all is well."""


@dataclass(frozen=True, kw_only=True)
class _Slot:
    write: int
    writer: str
    body: Mapping[str, Any]
    """A whole state, which another version may have written in words that this one does not know."""
    later: int | None = None
    """The format, where a later failsoft wrote it and this one can't read the state; None: it is ours."""


class PlanStore:
    """The two files. One writer at a time; anyone may read.

    Args:
        folder: made when first written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._name = uuid.uuid4().hex
        self._write, self._writer = 0, ""

    def load(self) -> Loaded | None:
        """The stored state; None when nothing was ever stored.

        What a newer failsoft wrote in another format counts as unreadable, as after an upgrade that was taken back: the
        state is then that of the other file, which is one write behind.

        Raises:
            PlanStoreError: the files can't be read, or none of those that are there is valid.
        """
        seen: list[_Slot] = []
        found: list[tuple[int, RolloutState]] = []
        damage: list[str] = []
        for name in _SLOTS:
            try:
                slot = self._read(name)
                if slot is not None:
                    seen.append(slot)
                if slot is not None and slot.later is not None:
                    damage.append(_of_a_later_one(self.folder / name, slot.later))
                elif slot is not None:
                    found.append((slot.write, RolloutState.of(slot.body)))
            except _ILL as error:
                damage.append(f"{self.folder / name} is damaged ({error.__class__.__name__}: {error})")
        if not found and damage:
            later = "Start that newer failsoft again, or move" if any(slot.later for slot in seen) else "Move"
            raise PlanStoreError(
                f"{'; '.join(damage)}: no plan is left that this failsoft can read; gateways keep the plan they have. "
                f"{later} these files away to start from a first plan, then start the app again"
            )
        if not found:
            return None
        newest = max(seen, key=lambda slot: slot.write)
        self._write, self._writer = newest.write, newest.writer
        return Loaded(state=max(found, key=lambda one: one[0])[1], damaged="; ".join(damage) or None)

    def save(self, state: RolloutState) -> None:
        """Make ``state`` durable.

        Raises:
            PlanOvertakenError: another one has written since this one last read or wrote.
            PlanStoreError: storage refused; what was stored before is still whole and is still the truth.
        """
        write, body = self._write + 1, state.as_json()
        record = {"format": FORMAT, "write": write, "writer": self._name, "state": body, "digest": _digest(write, body)}
        path = self.folder / _SLOTS[write % 2]
        try:
            with _alone_in(self.folder):
                self._refuse_if_overtaken()
                write_durably(path, json.dumps(record, indent=1, sort_keys=True).encode())
        except OSError as error:
            raise PlanStoreError(
                f"plan {state.plan.epoch} could not be written to {path} ({error}), so the plan before it stays in "
                "force; make the folder writable, the next try comes by itself"
            ) from error
        self._write, self._writer = write, self._name

    def _refuse_if_overtaken(self) -> None:
        """What is torn hides no other writer for long: each writes both files in turn."""
        for name in _SLOTS:
            try:
                slot = self._read(name)
            except _ILL:
                continue
            known = slot is None or slot.write < self._write or (slot.write, slot.writer) == (self._write, self._writer)
            if slot is not None and not known:
                raise PlanOvertakenError(
                    f"{self.folder / name} was written by another controller since (write {slot.write}): that one "
                    "leads, and this one changes nothing any more"
                )

    def _read(self, name: str) -> _Slot | None:
        path = self.folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlanStoreError(f"{path} can't be read ({error})") from error
        record = json_value(content)
        write, made_in = int(record["write"]), record["format"]
        writer = str(record.get("writer", ""))
        if type(made_in) is int and made_in > FORMAT:  # what its state and its digest mean, only that one knows
            return _Slot(write=write, writer=writer, body={}, later=made_in)
        body = record["state"]
        if made_in != FORMAT or record["digest"] != _digest(write, body):
            raise ValueError(f"format {made_in} with a digest that does not fit")
        return _Slot(write=write, writer=writer, body=body)


def _of_a_later_one(path: Path, made_in: int) -> str:
    return f"{path} was written by a newer failsoft (plan format {made_in}, this one reads {FORMAT})"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Nobody else looks and writes in between; on a file system without such locks the look has to do.

    Raises:
        BlockingIOError: somebody does just now.
        OSError: the folder can't be made or opened.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


def _digest(write: int, body: Mapping[str, Any]) -> str:
    return digest_bytes(json.dumps([FORMAT, write, body], sort_keys=True, separators=(",", ":")).encode())
