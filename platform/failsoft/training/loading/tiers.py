"""Sources in tiers: the nearest that has a sample gives it; one that fails rests, and is asked again after that.

Also when a cache holds all that is wanted of it: then what the cache gave is asked of it once more after each rest, or
nobody would ever know that it is back.

Each tier has a breaker, and so has each shard of it: a tier that can't be reached is given up as a whole (one shard
after the other would cost a time-out each), a shard that is torn is given up alone. What comes from a lower tier fills
the caches above it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from failsoft.errors import ConfigError, SampleError, SourceError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.lifecycle import Move
from failsoft.training.loading.board import Board, Word
from failsoft.training.loading.quarantine import Gate, Quarantine, QuarantinePolicy
from failsoft.training.loading.sample import SourceNote

_MAX_SHARDS = 4096
_MAX_WRONG = 65_536


class Source(Protocol):
    """One tier."""

    @property
    def name(self) -> str:
        """Of the tier, for events."""
        ...

    def shard_of(self, index: int) -> str:
        """What fails together within the tier, and what a dead letter quotes; empty for the whole of it."""
        ...

    def fetch(self, index: int) -> bytes | None:
        """The bytes of sample ``index``; None when this tier does not hold it, which is no failure.

        Raises:
            SourceError: it can't be asked, or does not answer.
            SampleError: it answers, but what it gives is not the sample.
        """
        ...


@runtime_checkable
class Keeps(Protocol):
    """A tier that lower ones fill."""

    def keep(self, index: int, data: bytes) -> None:
        """Take a sample in; never raises."""
        ...


class Synthesis(Protocol):
    """The last tier: makes something of the right form out of nothing. It is flagged, and counts nowhere."""

    def make(self, index: int) -> bytes:
        """Bytes that the dataset can decode; a pure function of the index."""
        ...


class Fetched(NamedTuple):
    """One sample's bytes and where they came from."""

    data: bytes
    tier: str
    synthetic: bool
    why: str = ""
    """Why it is synthetic."""


@dataclass(kw_only=True)
class TieredSource:
    """Tiers in the order in which they are asked. Picklable before its first use; used by one thread of one process."""

    tiers: Sequence[Source]
    synthesis: Synthesis | None = None
    """None: a sample that no tier has is a bad sample, out of reach."""
    tier_policy: QuarantinePolicy = field(default_factory=QuarantinePolicy)
    """Counts only what a tier as a whole is to blame for: no answer."""
    shard_policy: QuarantinePolicy = field(default_factory=QuarantinePolicy)
    """Counts wrong bytes, too."""
    clock: Clock = field(default_factory=SystemClock)
    seed: int = 0
    """Of the jitter of rests."""

    def __post_init__(self) -> None:
        """Refuse a source without tiers; nothing is opened yet."""
        if not self.tiers:
            raise ConfigError("tiers is empty; give at least one source")
        self._breakers: dict[tuple[str, str], list[Quarantine]] = {}
        self._notes: list[SourceNote] = []
        self._wrong: set[tuple[str, int]] = set()
        self._ill: set[tuple[str, str]] = set()
        self._rng = random.Random(self.seed)
        self._board: Board | None = None
        self._heard = 0
        self._names: dict[int, tuple[str, str]] = {}

    def source_of(self, index: int) -> str:
        """What a dead letter quotes: the shard in the last tier, which holds everything."""
        last = self.tiers[-1]
        return last.shard_of(index) or last.name

    def share(self, board: Board) -> None:
        """Learn together with other processes that get a copy of this source: what one finds ill, rests for all.

        Before its first use, and before it is copied. One that shares a board already keeps it.
        """
        self._board = self._board or board

    def fetch(self, index: int) -> Fetched:
        """The sample from the nearest tier that has it, else a synthetic one.

        Raises:
            SampleError: the lowest tier gave wrong bytes.
            SourceError: no tier could give it, and there is no synthesis.
        """
        refusals: list[str] = []
        if self._board is not None and self._board.change[0] != self._heard:
            self._listen(self._board)
        for depth, tier in enumerate(self.tiers):
            data = self._ask(tier, index, refusals)
            if data is not None:
                if depth:
                    self._fill(self.tiers[:depth], index, data)
                if self._ill:
                    self._look_after(self.tiers[depth + 1 :], index)
                return Fetched(data, tier.name, synthetic=False)
        why = "; ".join(refusals) or "no tier holds it"
        if self.synthesis is None:
            raise SourceError(why)
        return Fetched(self.synthesis.make(index), "synthetic", synthetic=True, why=why)

    def take_notes(self) -> tuple[SourceNote, ...]:
        """Which sources went into quarantine or came back since the last asking."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _ask(self, tier: Source, index: int, refusals: list[str]) -> bytes | None:
        shard = tier.shard_of(index)
        told = self._breakers.get((tier.name, shard)) or self._concerned(tier, shard)
        for breaker in told:
            if not (breaker.is_well or breaker.admits()):
                refusals.append(f"{tier.name} rests: {breaker.cause}")
                return None
        try:
            data = tier.fetch(index)
        except SourceError as error:
            refusals.append(f"{tier.name}: {error}")
            for breaker in told:
                breaker.failed(str(error))
            return None
        except SampleError as error:
            told[0].answered()  # the tier as a whole answers
            for part in told[1:] if self._is_news((tier.name, index)) else ():
                part.failed(str(error))
            raise
        for breaker in told:
            breaker.answered()
        return data

    def _listen(self, board: Board) -> None:
        self._heard = board.change[0]
        for key in board.keys:
            told = self._breakers.get(self._names.get(key, ("", "")))
            if told is not None:
                told[-1].listen()

    def _look_after(self, below: Sequence[Source], index: int) -> None:
        """Ask those that have rested long enough for a sample that is at hand already; what they say decides."""
        for tier in below:
            told = self._concerned(tier, tier.shard_of(index))
            for breaker in told:
                breaker.listen()
            if any(breaker.is_due for breaker in told):
                with suppress(SampleError):
                    self._ask(tier, index, [])

    def _is_news(self, wrong: tuple[str, int]) -> bool:
        """Whether a sample's bytes are found wrong for the first time.

        Where a cache holds all good samples of a shard, nothing is asked of it any more but its bad ones, epoch after
        epoch: the same few would bring the whole shard into quarantine, and themselves out of reach.
        """
        if len(self._wrong) >= _MAX_WRONG:
            self._wrong.clear()
        known = wrong in self._wrong
        self._wrong.add(wrong)
        return not known

    def _fill(self, above: Sequence[Source], index: int, data: bytes) -> None:
        for tier in above:
            if isinstance(tier, Keeps):
                tier.keep(index, data)

    def _concerned(self, tier: Source, shard: str) -> list[Quarantine]:
        """The tier's own breaker, then that of its shard."""
        key = (tier.name, shard)
        found = self._breakers.get(key)
        if found is None:
            if len(self._breakers) >= _MAX_SHARDS:
                self._forget_one()
            whole = self._breaker((tier.name, ""), self.tier_policy)
            found = [whole, self._breaker(key, self.shard_policy)] if shard else [whole]
            self._breakers[key] = found
            for breaker in found:
                breaker.listen()
        return found

    def _breaker(self, key: tuple[str, str], policy: QuarantinePolicy) -> Quarantine:
        if not key[1] and key in self._breakers:
            return self._breakers[key][0]
        word = self._word(key)
        made = Quarantine(policy, self.clock, self._rng, partial(self._moved, key), word)
        if word is not None:
            self._names[word.key] = key
        if not key[1]:
            self._breakers[key] = [made]
        return made

    def _forget_one(self) -> None:
        """The oldest shard that is well: a data set of a million shards must not end in a million breakers."""
        well = (key for key, told in self._breakers.items() if key[1] and told[-1].gate is Gate.CLOSED)
        gone = next(well, next(key for key in self._breakers if key[1]))
        self._breakers.pop(gone)
        self._ill.discard(gone)
        if (word := self._word(gone)) is not None:
            self._names.pop(word.key, None)

    def _word(self, key: tuple[str, str]) -> Word | None:
        return None if self._board is None else Word(self._board, "\0".join(key))

    def _moved(self, key: tuple[str, str], move: Move[Gate]) -> None:
        (self._ill.discard if move.after is Gate.CLOSED else self._ill.add)(key)
        if move.after is Gate.PROBING:
            return
        resting, breaker = move.after is Gate.OPEN, self._breakers[key][-1]
        below = [tier.name for tier in self.tiers[self._depth(key[0]) + 1 :]]
        last = "synthetic samples of weight 0" if self.synthesis is not None else "copies of weight 0"
        name = f"{key[0]}: {key[1]}" if key[1] else key[0]
        self._notes.append(
            SourceNote(
                name=name,
                resting=resting,
                cause=move.why,
                instead=", ".join([*below, last]) if resting else "",
                rest_s=round(breaker.rest_s, 3) if resting else 0.0,
            )
        )

    def _depth(self, name: str) -> int:
        return next(depth for depth, tier in enumerate(self.tiers) if tier.name == name)
