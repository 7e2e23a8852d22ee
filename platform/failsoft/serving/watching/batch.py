"""What a gateway tells the controller: how its calls of one arm ended between two reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, TypeVar

from failsoft.errors import ConfigError
from failsoft.health.json_object import is_finite
from failsoft.health.monitor import BAD
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, known_fields
from failsoft.serving.watching.beside import NOTHING_BESIDE, Beside, beside_of

KeyT = TypeVar("KeyT")
SLOW, TIMED, WRONG, LABELLED = "slow", "timed", "wrong", "labelled"
_SIDES = frozenset({SLOW, TIMED, WRONG, LABELLED})
"""Counts of a caller beside those of outcomes."""
_MAX_CALLS = 1_000_000
"""A gateway reports at least every few seconds; each call of a report is fed to a window, so they must be countable."""


@dataclass(frozen=True, kw_only=True)
class OutcomeBatch:
    """How a gateway's calls of one arm ended between two reports. Counts suffice: order inside a batch is unknown."""

    gateway: str
    sequence: int
    """Grows with every batch of a gateway. A batch may arrive twice; it counts once."""
    epoch: int
    """The plan under which the calls were made."""
    arm: Arm
    mirrored: bool
    outcomes: Mapping[Outcome, int]
    latency_ms: float = 0.0
    """Sum over all calls."""
    agree: int = 0
    """Mirrored answers with the live answer's intent …"""
    compared: int = 0
    """… of so many compared."""
    slow: int = 0
    """Answers that took the model too long for its release …"""
    timed: int = 0
    """… of so many whose time and whose release's time are known."""
    wrong: int = 0
    """Answers that turned out wrong …"""
    labelled: int = 0
    """… of so many whose right label came by now, also from before this plan, by the weights of this arm."""
    callers: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """The part of some callers in all this: for each, counts by an outcome's name, and ``slow``, ``timed``,
    ``wrong`` and ``labelled``."""
    beside: Beside = NOTHING_BESIDE
    """Mirrored answers beside the live ones."""

    def __post_init__(self) -> None:
        """Refuse what would cancel evidence, make some up, or count twice: a number that is none is never old."""
        parts = [part for by_caller in self.callers.values() for part in by_caller.values()]
        shares = [(self.agree, self.compared), (self.slow, self.timed), (self.wrong, self.labelled)]
        shares += self._parts_and_wholes()
        numbers: list[Any] = [
            self.sequence,
            self.epoch,
            *self.outcomes.values(),
            *parts,
            *(one for share in shares for one in share),
        ]
        whole = all(isinstance(number, Integral) and int(number) >= 0 for number in numbers)
        kinds: tuple[tuple[Any, Any], ...] = (
            (self.gateway, str),
            (self.mirrored, bool),
        )
        whole = whole and is_finite(self.latency_ms)
        if not (whole and all(isinstance(*kind) for kind in kinds) and all(part <= all_ for part, all_ in shares)):
            raise ConfigError(f"batch {self.sequence} of {self.gateway} has impossible counts: {self.as_json()}")

    def _parts_and_wholes(self) -> Iterator[tuple[int, int]]:
        """What callers brought in all, of each kind, and what there was."""
        brought: Counter[str] = Counter()
        for part in self.callers.values():
            brought.update(part)
        whole = {str(outcome): count for outcome, count in self.outcomes.items()}
        whole |= {SLOW: self.slow, TIMED: self.timed, WRONG: self.wrong, LABELLED: self.labelled}
        yield from ((count, whole.get(kind, 0)) for kind, count in brought.items())
        for one, all_ in ((SLOW, TIMED), (WRONG, LABELLED)):
            yield from ((part.get(one, 0), part.get(all_, 0)) for part in self.callers.values())

    @property
    def has_bad(self) -> bool:
        """Whether one of the outcomes speaks against the model."""
        return any(count and outcome in BAD for outcome, count in self.outcomes.items())

    def part(self, caller: int) -> dict[Outcome, int]:
        """How one caller's calls ended."""
        part = self.callers.get(caller, {})
        return {Outcome(name): count for name, count in part.items() if name not in _SIDES}

    def without(self, callers: Iterable[int]) -> dict[Outcome, int]:
        """How the calls of all other callers ended."""
        left = Counter(self.outcomes)
        for caller in callers:
            left.subtract(self.part(caller))
        return {outcome: count for outcome, count in left.items() if count > 0}

    def timed_calls(self) -> dict[tuple[bool, int | None], int]:
        """How many calls were slow and how many not, for each caller who is told apart and for all others."""
        return self._by_caller(SLOW, self.slow, TIMED, self.timed)

    def labelled_answers(self) -> dict[tuple[bool, int | None], int]:
        """The same of answers that turned out wrong, or not."""
        return self._by_caller(WRONG, self.wrong, LABELLED, self.labelled)

    def _by_caller(self, bad: str, of_bad: int, all_: str, of_all: int) -> dict[tuple[bool, int | None], int]:
        counts: dict[tuple[bool, int | None], int] = {(True, None): of_bad, (False, None): of_all - of_bad}
        for caller, part in self.callers.items():
            own = {True: part.get(bad, 0), False: part.get(all_, 0) - part.get(bad, 0)}
            for is_bad, count in own.items():
                counts[is_bad, caller] = count
                counts[is_bad, None] -= count
        return {key: count for key, count in counts.items() if count > 0}

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the controller's ``report`` takes them."""
        return {
            "gateway": self.gateway,
            "sequence": self.sequence,
            "epoch": self.epoch,
            "arm": str(self.arm),
            "mirrored": self.mirrored,
            "outcomes": {str(outcome): count for outcome, count in self.outcomes.items()},
            "latency_ms": self.latency_ms,
            "agree": self.agree,
            "compared": self.compared,
            "slow": self.slow,
            "timed": self.timed,
            "callers": {str(caller): dict(part) for caller, part in self.callers.items()},
        } | self._seldom_as_json()

    def _seldom_as_json(self) -> dict[str, Any]:
        """What most batches have none of."""
        labels = {WRONG: self.wrong, LABELLED: self.labelled} if self.labelled else {}
        return labels | ({"beside": self.beside.as_json()} if self.beside.answers else {})

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> OutcomeBatch:
        """Read what :meth:`as_json` gave, here or in another version.

        Raises:
            ConfigError: fields are missing or impossible, an outcome is unknown, or the batch is larger than any
                traffic makes one.
        """
        try:
            fields = known_fields(cls, body)
            outcomes = {Outcome(name): count for name, count in fields.pop("outcomes").items()}
            callers = {int(caller): dict(part) for caller, part in fields.pop("callers", {}).items()}
            if (
                not max(sum(outcomes.values()), fields.get(TIMED, 0), fields.get(LABELLED, 0), len(callers))
                <= _MAX_CALLS
            ):
                raise ValueError(f"more than {_MAX_CALLS:,} calls between two reports")
            beside = beside_of(fields.pop("beside", None))
            return cls(arm=Arm(fields.pop("arm")), outcomes=outcomes, callers=callers, beside=beside, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not an outcome batch: {error.__class__.__name__}: {error}") from error


def interleaved(outcomes: Mapping[KeyT, int]) -> Iterator[KeyT]:
    """The counted outcomes (or any other kinds) in an order that spreads each kind evenly.

    A batch may be larger than a monitor's window; all bad ones last would make a healthy batch look ill.
    """
    total = sum(outcomes.values())
    due = [
        ((index + 0.5) * total / count, str(outcome), outcome)
        for outcome, count in outcomes.items()
        for index in range(count)
    ]
    yield from (outcome for _, _, outcome in sorted(due))
