"""What to do about slow ranks: a lighter share, given back in steps; at its floor, smaller updates. Pure.

A rank that is surely slower gets so much less that it would just keep up: the share divided by its factor. With less
than a full share it is then judged by the same times, so that fixed costs of a step don't mislead: as long as it takes
as long as the others, nothing changes; when it has headroom, window after window, it takes more; where fixed costs may
hide headroom, it tries a sixteenth, and gives it back at once when that was wrong. (The time for n
samples is a + b·n, so ``share / factor`` never gives it more than it can do.) Every rank works this out for itself,
from what all of them were told, so they come to the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from failsoft.training.pace.judgement import Finding, Look
from failsoft.training.pace.policy import RemedyPolicy
from failsoft.training.pace.shares import FULL, even

_DEARER = 1.1
"""Smaller updates that make a batch take so many times longer do more harm than good: what is slow is not the samples,
but something that each update pays anew."""

_QUICKER, _TOO_MUCH = 1.0, 1.05
"""Below the first on its lighter share a rank may try a sixteenth more; above the second it was too much."""
_LITTLE = 1.02
"""Longer by so much is no matter."""


class Decision(NamedTuple):
    """How the next batches are divided."""

    shares: tuple[int, ...]
    """In sixteenths, by rank."""
    updates: int
    """Over how many updates each batch is spread."""


@dataclass
class _Patience:
    """Of one rank, or of the updates."""

    relapses: int = 0
    until_s: float = -math.inf
    returned_s: float = -math.inf
    in_a_row: int = 0
    on_trial: bool = False
    """The last sixteenth was given without knowing whether it is too much."""


@dataclass(kw_only=True)
class Remedy:
    """The shares of a run. All ranks keep one alike."""

    policy: RemedyPolicy
    world: int
    decision: Decision = field(init=False)
    """What holds now."""

    def __post_init__(self) -> None:
        """Even shares, as every group of workers begins."""
        self.decision = Decision(even(self.world), 1)
        self._patience = [_Patience() for _ in range(self.world)]
        self._smaller = _Patience()
        self._before_s = math.nan
        self._in_vain = False

    def met(
        self, findings: Sequence[Finding], behind: Sequence[int], *, now_s: float, slowest_s: float = math.nan
    ) -> Decision:
        """Take one window's findings.

        Args:
            findings: by rank, from the times as they were.
            behind: the ranks that are slow, whatever their share.
            now_s: rank 0's monotonic clock, as all ranks were told it.
            slowest_s: what the slowest rank took for a batch; NaN where nobody knows.
        """
        shares = list(self.decision.shares)
        for rank, finding in enumerate(findings):
            shares[rank] = self._share(rank, finding, is_behind=rank in behind, now_s=now_s)
        stuck = any(self._at_floor(rank) and findings[rank].look is Look.SLOW for rank in behind)
        self.decision = Decision(_scaled(shares), self._updates(stuck=stuck, now_s=now_s, slowest_s=slowest_s))
        return self.decision

    def _share(self, rank: int, finding: Finding, *, is_behind: bool, now_s: float) -> int:
        share, patience = self.decision.shares[rank], self._patience[rank]
        if is_behind and finding.look is Look.SLOW:
            patience.in_a_row = 0
            if share > self.policy.floor:
                self._wait(patience, now_s)
                return max(self.policy.floor, min(share - 1, round(share / finding.factor)))
            return share
        if patience.on_trial and finding.factor > _TOO_MUCH:
            patience.on_trial, patience.in_a_row = False, 0
            self._wait(patience, now_s)
            return share - 1
        sure = self._has_room(share, finding)
        maybe = share < FULL and finding.factor < _QUICKER
        patience.in_a_row = patience.in_a_row + 1 if sure or maybe else 0
        if patience.in_a_row < self.policy.windows or now_s < patience.until_s:
            return share
        patience.in_a_row, patience.returned_s, patience.on_trial = 0, now_s, not sure
        return share + 1 if not sure else min(FULL, max(share + 1, math.floor(share / finding.factor)))

    def _has_room(self, share: int, finding: Finding) -> bool:
        """Close to a full share it is enough to keep up: what is missing then is less than can be told apart.

        Else there must be room for a sixteenth more: the costs of a step that do not depend on its samples hide how
        much a rank that is quick again could do.
        """
        nearly = share >= self.policy.headroom * FULL and finding.look is Look.KEEPS_UP
        one_more = finding.factor * (share + 1) <= _LITTLE * share
        return share < FULL and (nearly or one_more or finding.factor < self.policy.headroom)

    def _updates(self, *, stuck: bool, now_s: float, slowest_s: float) -> int:
        updates, patience = self.decision.updates, self._smaller
        if updates > 1 and slowest_s > _DEARER * self._before_s:
            self._in_vain, self._before_s, patience.in_a_row = True, math.nan, 0
            return updates // 2
        self._in_vain &= stuck
        worse, better = stuck and updates < self.policy.max_updates and not self._in_vain, not stuck and updates > 1
        patience.in_a_row = patience.in_a_row + 1 if worse or better else 0
        if patience.in_a_row < self.policy.windows or (better and now_s < patience.until_s):
            return updates
        patience.in_a_row = 0
        if worse:
            self._wait(patience, now_s)
            self._before_s = slowest_s
            return min(2 * updates, self.policy.max_updates)
        patience.returned_s = now_s
        return updates // 2

    def _at_floor(self, rank: int) -> bool:
        return self.decision.shares[rank] <= self.policy.floor

    def _wait(self, patience: _Patience, now_s: float) -> None:
        """Before anything is given back; longer each time that it had to be taken again soon after."""
        relapsed = now_s - patience.returned_s <= self.policy.patience.cap_s
        patience.relapses = patience.relapses + 1 if relapsed else 0
        patience.until_s = now_s + self.policy.patience.wait_s(patience.relapses + 1, random.Random(0))


def _scaled(shares: Sequence[int]) -> tuple[int, ...]:
    """The same division, with somebody at a full share: where all are lighter, nobody is."""
    most = max(shares)
    return tuple(shares) if most == FULL else tuple(max(1, round(share * FULL / most)) for share in shares)
