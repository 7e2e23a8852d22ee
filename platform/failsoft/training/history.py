"""What became of the batches before a dead one: applied, refused, or taken back, as the run itself met them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from failsoft.health.ledger import Event
from failsoft.training.letter import DeadLetter
from failsoft.training.letterbook import LetterBook


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """One rollback of a run: at ``at`` it took back everything from ``since`` on."""

    since: int
    """Position of the snapshot."""
    at: int
    """The run's position when it rolled back; the next batch that it met."""


@dataclass(frozen=True, kw_only=True)
class History:
    """The refusals and rollbacks of a run, without what a restart undid."""

    refused: dict[int, DeadLetter] = field(default_factory=dict)
    """A letter of each refused batch, by position."""
    rollbacks: tuple[Rollback, ...] = ()

    def undone_before(self, position: int) -> frozenset[int]:
        """Batches of which the state had no trace left when the batch at ``position`` was met."""
        past = (rollback for rollback in self.rollbacks if rollback.at <= position)
        return frozenset(undone for rollback in past for undone in range(rollback.since, rollback.at))


def history_of(book: LetterBook, events: Iterable[Event] = ()) -> History:
    """The history of a run.

    Args:
        book: its dead letters.
        events: of this run, in order; without them rollbacks are known by the batches that they took back.
    """
    refused = {letter.position: letter for letter in reversed(book.letters) if letter.refused}
    told = _rollbacks_told(events)
    known = {rollback.at for rollback in told}
    from_letters = [rollback for rollback in _rollbacks_by_letters(book.letters) if rollback.at not in known]
    return History(refused=refused, rollbacks=tuple(sorted([*told, *from_letters], key=lambda one: one.at)))


def _rollbacks_told(events: Iterable[Event]) -> list[Rollback]:
    found: list[Rollback] = []
    for event in events:
        if event.kind == "run_started":
            start = int(event.data.get("position", 0))
            found = [rollback for rollback in found if rollback.at <= start]
        elif event.kind == "rolled_back":
            found.append(Rollback(since=int(event.data["snapshot_position"]), at=int(event.data["position"])))
    return found


def _rollbacks_by_letters(letters: Iterable[DeadLetter]) -> list[Rollback]:
    since: dict[int, int] = {}
    for letter in letters:
        if letter.undone_at is not None:
            since[letter.undone_at] = min(letter.position, since.get(letter.undone_at, letter.position))
    return [Rollback(since=first, at=at) for at, first in since.items()]
