"""What goes wrong in a run of the soak, and where."""

from __future__ import annotations

from dataclasses import dataclass

from failsoft.health.faults import Fault, FaultKind, FaultMoment, FaultPlan

OUTAGE = 0.005
"""Of the run, each: about 0.8 % of all samples until then are out of reach, below the share that is alarmed."""


@dataclass(frozen=True, kw_only=True)
class SoakPlan:
    """One run. Where its troubles lie is said in shares of its length, so that a short one meets them all, too."""

    name: str
    seed: int
    total: int
    troubled: bool = False
    workers: int = 0
    """Processes that load, of each rank."""
    remedy: bool = False
    """Others take over part of the straggler's samples; each sample takes a millisecond then, so that it is samples and
    not the fixed cost of a step that take the time."""
    window: int = 50
    climb_after: int = 100
    slow_s: float = 0.01
    """That the straggler takes longer over each sample."""

    def at(self, share: float) -> int:
        """A position."""
        return round(share * self.total)

    @property
    def outages(self) -> tuple[range, ...]:
        """The remote does not answer, and most of the cache is gone when that begins."""
        starts = (self.at(0.42), self.at(0.8)) if self.troubled else ()
        return tuple(range(start, start + self.at(OUTAGE)) for start in starts)

    @property
    def straggles(self) -> range:
        """Rank 1 takes longer over each of its samples."""
        return range(self.at(0.2), self.at(0.25))

    @property
    def faults(self) -> FaultPlan:
        """One straggler, and rank 1 out of memory three times; the third time before it has climbed back."""
        if not self.troubled:
            return FaultPlan()
        slow = Fault(
            kind=FaultKind.SLOW_RANK,
            position=self.straggles.start,
            last=self.straggles.stop - 1,
            rank=1,
            sample_s=self.slow_s,
        )
        return FaultPlan(
            faults=(
                *(self._even(rank) for rank in range(2 if self.remedy else 0)),
                slow,
                _short(self.at(0.1), FaultMoment.FORWARD, above=4),
                _short(self.outages[0].start + 2, FaultMoment.BACKWARD, above=4),
                _short(self.outages[0].start + 2 + self.climb_after // 2, FaultMoment.BACKWARD, above=2),
            )
        )

    def _even(self, rank: int) -> Fault:
        return Fault(kind=FaultKind.SLOW_RANK, position=0, last=self.total - 1, rank=rank, sample_s=0.001)


def _short(position: int, when: FaultMoment, *, above: int) -> Fault:
    return Fault(kind=FaultKind.OUT_OF_MEMORY, position=position, rank=1, when=when, above_samples=above)
