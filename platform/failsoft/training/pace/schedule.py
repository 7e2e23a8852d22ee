"""Which division of the batches holds at which position: what loads samples ahead must know before it comes to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from failsoft.training.pace.remedy import Decision

SharesAt = Callable[[int], tuple[int, ...]]
"""The shares of all ranks at a position, in sixteenths."""


@runtime_checkable
class FollowsShares(Protocol):
    """A task that loads samples ahead, and can load other shares than the even ones."""

    @property
    def ahead(self) -> int:
        """Positions beyond the one that is worked on for which samples may be on their way already; 0 or more."""
        ...

    def follow(self, shares_at: SharesAt) -> None:
        """Divide by these shares whatever is asked for from now on; asked in this process alone."""
        ...


class Schedule:
    """Decisions by position. A position that is met again is divided as before, so that nothing is loaded twice."""

    def __init__(self, first: Decision) -> None:
        self._starts = [0]
        self._decisions = [first]

    def at(self, position: int) -> Decision:
        """What holds at a position, from 0."""
        return self._decisions[bisect_right(self._starts, position) - 1]

    def shares_at(self, position: int) -> tuple[int, ...]:
        """The shares of it."""
        return self.at(position).shares

    def decided(self, decision: Decision, *, holds_from: int) -> bool:
        """From a position on; what was decided for later ones holds no more. Returns whether anything changes."""
        if self._decisions[-1] == decision and self._starts[-1] <= holds_from:
            return False
        keep = bisect_right(self._starts, holds_from - 1)
        self._starts[keep:], self._decisions[keep:] = [holds_from], [decision]
        return True
