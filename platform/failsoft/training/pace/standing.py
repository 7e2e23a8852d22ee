"""Who is a slow rank, after hysteresis: from findings of windows to a beginning and an end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from failsoft.health.lifecycle import Lifecycle
from failsoft.training.pace.judgement import Finding, Look
from failsoft.training.pace.policy import PacePolicy


class Standing(StrEnum):
    """How a rank stands."""

    WITH_THE_OTHERS = "with the others"
    BEHIND = "behind"


MOVES = {
    Standing.WITH_THE_OTHERS: frozenset({Standing.BEHIND}),
    Standing.BEHIND: frozenset({Standing.WITH_THE_OTHERS}),
}


@dataclass(kw_only=True)
class RankStanding:
    """One rank over the windows. All ranks keep one of each, from the same findings."""

    policy: PacePolicy
    factor: float = math.nan
    """Of the last window that told one."""
    _life: Lifecycle[Standing] = field(default_factory=lambda: Lifecycle(MOVES, Standing.WITH_THE_OTHERS))
    _in_a_row: int = 0

    @property
    def standing(self) -> Standing:
        """Now."""
        return self._life.state

    def met(self, finding: Finding, *, ranks: int, light: bool) -> bool:
        """Take one window's finding; returns whether the standing changed.

        Args:
            finding: of this rank.
            ranks: how many there are to compare.
            light: it has less than its full share, so keeping up proves nothing yet.
        """
        if not math.isnan(finding.factor):
            self.factor = finding.factor
        behind = self.standing is Standing.BEHIND
        evidence = finding.look is Look.KEEPS_UP and not light if behind else finding.look is Look.SLOW
        self._in_a_row = self._in_a_row + 1 if evidence else 0
        needed = self.policy.end_windows if behind else self.policy.sureness(ranks).windows
        if self._in_a_row < needed:
            return False
        self._in_a_row = 0
        to = Standing.WITH_THE_OTHERS if behind else Standing.BEHIND
        self._life.move(to, why=f"{finding.factor:.2f} times the others' median, {needed} windows in a row")
        return True


def behind(standings: Sequence[RankStanding]) -> tuple[int, ...]:
    """The slow ranks."""
    return tuple(rank for rank, one in enumerate(standings) if one.standing is Standing.BEHIND)
