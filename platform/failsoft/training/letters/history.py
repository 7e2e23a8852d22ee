"""What became of the batches before a dead one: applied, refused, or taken back, as the run itself met them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from failsoft.health.json_object import is_count, is_finite
from failsoft.health.ledger import Event
from failsoft.training.checkpoints.checkpoint import identity_digest, versions
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letterbook import LetterBook
from failsoft.training.pace.keeper import DIVIDED


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """One rollback of a run: at ``at`` it took back everything from ``since`` on."""

    since: int
    """Position of the snapshot."""
    at: int
    """The run's position when it rolled back; the next batch that it met."""
    rate_factor: float | None = None
    """Share of the learning rate that the run went on with; None when the ledger doesn't say."""


@dataclass(frozen=True, kw_only=True)
class History:
    """The refusals and rollbacks of a run, without what a restart undid."""

    refused: dict[int, DeadLetter] = field(default_factory=dict)
    """A letter of each refused batch, by position."""
    rollbacks: tuple[Rollback, ...] = ()
    divided: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """From which position on batches were divided among the ranks by which shares; empty ones: evenly."""

    def shares_at(self, position: int, world: int) -> tuple[int, ...] | None:
        """The shares by which the batch was divided among so many ranks; None: evenly."""
        said = next((shares for since, shares in reversed(self.divided) if since <= position), ())
        letter = self.refused.get(position)
        shares = said if letter is None or letter.shares is None else letter.shares
        return shares if len(shares) == world else None

    def rate_factor_at(self, position: int) -> float | None:
        """What the learning rate was lowered to when the run rolled back to go on at ``position``; None: not at all."""
        factors = [one.rate_factor for one in self.rollbacks if one.at == position and one.rate_factor is not None]
        return factors[-1] if factors else None

    def undone_in(self, span: range) -> frozenset[int]:
        """Batches of a span of which the state had no trace left when the batch at its end was met.

        Never more work than the span is long: where a rollback lies is what a file says, and may be anything.
        """
        past = (range(one.since, one.at) for one in self.rollbacks if one.at <= span.stop)
        both = (range(max(span.start, undone.start), undone.stop) for undone in past)
        return frozenset(position for undone in both for position in undone)


def history_of(book: LetterBook, events: Iterable[Event] = ()) -> History:
    """The history of a run.

    Args:
        book: its dead letters.
        events: of this run, in order; without them rollbacks are known by the batches that they took back.
    """
    refused = {letter.position: letter for letter in reversed(book.letters) if letter.refused}
    events = list(events)
    told = _rollbacks_told(events)
    known = {rollback.at for rollback in told}
    from_letters = [rollback for rollback in _rollbacks_by_letters(book.letters) if rollback.at not in known]
    rollbacks = tuple(sorted([*told, *from_letters], key=lambda one: one.at))
    return History(refused=refused, rollbacks=rollbacks, divided=tuple(_divided(events)))


def changes_since(
    events: Iterable[Event], letters: Sequence[DeadLetter], identity: Mapping[str, Any]
) -> tuple[str, ...]:
    """What the record of a refused batch says otherwise than this process does now; empty without a record.

    Args:
        events: of this run.
        letters: of the batch.
        identity: what the run is about, as it would be built now.
    """
    records = [_record_of(event) for event in events if _is_of(event, letters)]
    if not records:
        return ()
    then, found = records[-1], list[str]()
    if then.get("config_digest") not in {None, "", identity_digest(identity)}:
        found.append("the run's settings")
    now = versions() | {"cuda": torch.version.cuda}
    before = then.get("versions")
    told = before if isinstance(before, Mapping) else {}
    other = [part for part in now if told.get(part, now[part]) != now[part]]
    found += [f"{part} ({_short(told[part])}, now {_short(now[part])})" for part in other]
    return tuple(found)


def _is_of(event: Event, letters: Sequence[DeadLetter]) -> bool:
    """Whether a refusal's event was told with one of these letters: the same batch, at the same step."""
    steps = {letter.step for letter in letters}
    return (
        event.kind == "batch_refused"
        and event.count("position", -1) == letters[0].position
        and event.count("step", -1) in steps
        and isinstance(event.data.get("reproduction"), Mapping)
    )


def _record_of(event: Event) -> dict[str, Any]:
    return dict(event.data["reproduction"])


def _short(version: object) -> str:
    return str(version)[:20]


def _rollbacks_told(events: Iterable[Event]) -> list[Rollback]:
    found: list[Rollback] = []
    for event in events:
        if event.kind == "run_started":
            start = event.count("position")
            found = [rollback for rollback in found if rollback.at <= start]
        elif event.kind == "rolled_back":
            at = event.count("position")
            to = event.count("snapshot_position", at)
            if event.data.get("replayed_from") is None:
                found.append(Rollback(since=to, at=at, rate_factor=_rate_factor(event)))
            else:  # the stretch was met again: what became of it is in the letters of the second pass
                found = [rollback for rollback in found if rollback.at <= to]
    return found


def _divided(events: Iterable[Event]) -> list[tuple[int, tuple[int, ...]]]:
    """Each group of workers begins with even shares; a division that holds from some position on ends later ones."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for event in events:
        if event.kind == "run_started":
            since, shares = event.count("position"), list[int]()
        elif event.kind == DIVIDED:
            since, shares = event.count("holds_from"), _shares(event.data.get("shares"))
        else:
            continue
        found = [entry for entry in found if entry[0] < since]
        found.append((since, tuple(shares)))
    return found


def _shares(value: object) -> list[int]:
    """Empty, as even ones are told, where it is no list of counts."""
    return value if isinstance(value, list) and all(map(is_count, value)) else []


def _rate_factor(event: Event) -> float | None:
    record = event.data.get("reproduction")
    factor = record.get("rate_factor") if isinstance(record, Mapping) else None
    return float(factor) if is_finite(factor) else None


def _rollbacks_by_letters(letters: Iterable[DeadLetter]) -> list[Rollback]:
    since: dict[int, int] = {}
    for letter in letters:
        if letter.undone_at is not None:
            since[letter.undone_at] = min(letter.position, since.get(letter.undone_at, letter.position))
    return [Rollback(since=first, at=at) for at, first in since.items()]
