"""Keeps the pace of a run: times this rank's work, meets the others once a window, names slow ranks, shifts their work.

The meeting is one small sum for ``window`` batches; in between a batch costs two readings of a clock. All ranks are
told the same numbers and work the rest out for themselves, so they divide the next batch alike without another word.
Time is compared as factors of durations; the one clock that counts waits is rank 0's, told to all.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.parallel import DistributedDataParallel

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.training.degradation import Degradation, DegradationKind, Degradations, Tell
from failsoft.training.guard import StepGuard
from failsoft.training.pace import shares as division
from failsoft.training.pace.judgement import Finding, Pace, at_full_share, judge
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.pace.remedy import Decision, Remedy
from failsoft.training.pace.schedule import FollowsShares, Schedule
from failsoft.training.pace.standing import RankStanding, behind
from failsoft.training.pace.stopwatch import Stopwatch

DIVIDED = "work_divided"
"""Event: from some position on, batches are divided among the ranks by other shares."""


class PaceKeeper:
    """One rank's; all ranks make one alike. Takes the guard's passes over, to time them.

    Shares begin even with each group of workers, also after a restart: who is slow there is found out anew.

    Args:
        guard: its passes are timed.
        clock: this process's own.
        global_batch: samples of a whole batch; only those are timed against each other.
        policy: how slow ranks are found.
        remedy: what is done about them; None: they are only named.
        degradations: where that is told.
    """

    def __init__(
        self,
        guard: StepGuard,
        clock: Clock,
        *,
        global_batch: int,
        policy: PacePolicy,
        remedy: RemedyPolicy | None,
        degradations: Degradations,
    ) -> None:
        self._ranks, self._clock, self._policy = guard.ranks, clock, policy
        self._global_batch = global_batch
        self._degradations = degradations
        self.tell: Tell = _untold
        """Told of each division from its first position on (:data:`DIVIDED`), so that a replay divides alike."""
        self.stopwatch = Stopwatch(guard.model, clock)
        guard.run_passes = self.stopwatch.timed(guard.run_passes)
        if remedy is not None and not isinstance(guard.model, DistributedDataParallel):
            raise ConfigError(
                "shares of ranks may differ only where the guard holds the model in its DDP wrapper: a rank that takes "
                "more does it in several passes, and only the last may meet the others"
            )
        self._remedy = None if remedy is None else Remedy(policy=remedy, world=self._ranks.world)
        self._standings = [RankStanding(policy=policy) for _ in range(self._ranks.world)]
        self._hosts: list[str] = []
        self._even = Decision(division.even(self._ranks.world), 1)
        self._schedule = Schedule(self._even)
        self._ahead = 0
        self._times: list[float] = []
        self._batches = 0

    @property
    def decision(self) -> Decision:
        """How batches are divided now, or as soon as samples that are on their way are used; the same on all ranks."""
        return self._even if self._remedy is None else self._remedy.decision

    def led(self, follower: FollowsShares) -> None:
        """It loads samples ahead: it is told of the shares, which change only beyond what is on its way."""
        self._ahead = follower.ahead
        follower.follow(self._schedule.shares_at)

    def at(self, position: int) -> Decision:
        """How the batch at a position is divided; the same on all ranks."""
        return self._schedule.at(position)

    def part(self, whole: NDArray[np.int64], position: int) -> NDArray[np.int64]:
        """This rank's part of the batch at a position, or of some of its samples; may be empty."""
        return division.part(whole, self._schedule.shares_at(position), self._ranks.rank)

    def worked(self, samples: int, position: int) -> None:
        """The batch at a position, so many samples over all ranks, was worked on; by all ranks together."""
        took_s = self.stopwatch.take()
        if samples != self._global_batch or self.at(position) != self.decision:
            return
        if took_s is not None:
            self._times.append(took_s)
        self._batches += 1
        if self._batches == self._policy.window:
            self._meet(position)

    def _meet(self, position: int) -> None:
        paces, now_s = self._told(Pace.of(self._times))
        self._times, self._batches = [], 0
        before = self.decision
        findings = judge(at_full_share(paces, before.shares), self._policy)
        changed = [
            standing.met(finding, ranks=len(paces), light=share < division.FULL)
            for standing, finding, share in zip(self._standings, findings, before.shares, strict=True)
        ]
        if self._remedy is not None:
            slowest_s = max((math.exp(pace.log_median) for pace in paces if pace is not None), default=math.nan)
            self._remedy.met(judge(paces, self._policy), behind(self._standings), now_s=now_s, slowest_s=slowest_s)
            self._divide(position + 1 + self._ahead)
        if any(changed) or self.decision != before:
            self._tell(changed, findings, paces, before)

    def _divide(self, holds_from: int) -> None:
        shares, updates = self.decision
        if self._schedule.decided(self.decision, holds_from=holds_from):
            why = division.in_words(shares)
            self.tell(DIVIDED, why, holds_from=holds_from, shares=list(shares), updates=updates)

    def shares_at(self, position: int) -> tuple[int, ...] | None:
        """By which the batch at a position is divided; None: evenly."""
        shares = self._schedule.shares_at(position)
        return None if len(set(shares)) == 1 else shares

    def _told(self, own: Pace | None) -> tuple[list[Pace | None], float]:
        """What every rank brought, and rank 0's time: one sum, in which each number has one rank that is not 0."""
        if not self._hosts:
            said = [text.split(" ", 1) for text in self._ranks.gather(f"{self._ahead} {platform.node()}")]
            self._hosts, self._ahead = [host for _, host in said], max(int(ahead) for ahead, _ in said)
        rows = torch.zeros(self._ranks.world * 3 + 1, dtype=torch.float64)
        if own is not None:
            mine = torch.tensor([own.log_median, own.error, float(own.count)], dtype=torch.float64)
            rows[3 * self._ranks.rank : 3 * self._ranks.rank + 3] = mine
        if self._ranks.rank == 0:
            rows[-1] = self._clock.monotonic_s()
        *numbers, now_s = self._ranks.sum_(rows).tolist()
        triples = zip(*[iter(numbers)] * 3, strict=True)
        return [Pace(log_median=log, error=error, count=int(n)) if n else None for log, error, n in triples], now_s

    def _tell(
        self, changed: Sequence[bool], findings: Sequence[Finding], paces: Sequence[Pace | None], before: Decision
    ) -> None:
        slow = behind(self._standings)
        for rank, standing in enumerate(self._standings):
            if rank in slow:
                light = before.shares[rank] < division.FULL
                self._degradations.began(self._degradation(rank, findings[rank], paces[rank], light=light))
            elif changed[rank]:
                why = f"{standing.factor:.2f} times the others' median, {self._policy.end_windows} windows in a row"
                self._degradations.ended(DegradationKind.SLOW_RANK, name=f"rank {rank}", why=why)
        if self.decision.updates == 1:
            why = "no slow rank is at the floor of its share"
            self._degradations.ended(DegradationKind.SMALLER_BATCH, name="slow rank", why=why)
        else:
            self._degradations.began(self._smaller())

    def _degradation(self, rank: int, finding: Finding, own: Pace | None, *, light: bool) -> Degradation:
        """In words; of a rank that was ``light`` only an upper bound of its factor at a full share is known."""
        share, host, window = self.decision.shares[rank], self._hosts[rank], self._policy.window
        factor = self._standings[rank].factor
        took_s = math.nan if own is None else math.exp(own.log_median)
        excess_s = max(took_s * (1.0 - 1.0 / factor), 0.0)
        lighter = share < division.FULL
        takes = "would at a full share take at most" if light else "takes"
        return Degradation(
            kind=DegradationKind.SLOW_RANK,
            name=f"rank {rank}",
            cause=(
                f"rank {rank} on {host} {takes} {factor:.2f} times the others' median; it took {took_s:.4g} s a batch "
                f"over {window} batches"
            ),
            level=f"share {share}/{division.FULL}",
            cost="others do part of its work" if lighter else f"each batch waits about {excess_s:.3g} s for it",
            way_back="more of its share when it has headroom" if lighter else "it keeps up again",
            details={
                "rank": rank,
                "host": host,
                "factor": _known(factor),
                "surely_above": _known(finding.surely_above),
                "took_s": _known(took_s),
                "for_batches": self._policy.sureness(self._ranks.world).windows * window,
                "shares": list(self.decision.shares),
            },
        )

    def _smaller(self) -> Degradation:
        updates = self.decision.updates
        return Degradation(
            kind=DegradationKind.SMALLER_BATCH,
            name="slow rank",
            cause="a slow rank is at the floor of its share and still slow",
            level=f"1/{updates} of a batch an update",
            cost=f"each update learns at 1/{updates} of the rate",
            way_back="twice as much an update when no rank is slow at its floor, after the wait",
            details={"updates": updates},
        )


def _known(value: float) -> float | None:
    """For the ledger, whose numbers are finite."""
    return round(value, 6) if math.isfinite(value) else None


def _untold(kind: str, why: str, **data: object) -> None:
    """Nobody listens."""
