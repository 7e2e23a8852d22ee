"""How large a part of a run's samples was synthetic: an alarm first, a stop when it lasts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.health.blocks import BlockMonitor
from failsoft.health.monitor import HealthPolicy, Status


def share_policy() -> HealthPolicy:
    """Alarm above 1 % of the last million samples; stop when a fifth of them, and of at least 20,000, is made up."""
    return HealthPolicy(
        window_size=1_000_000,
        min_samples=20_000,
        max_bad_fraction=0.2,
        ruled_out_bad_fraction=0.2,
        warn_bad_fraction=0.01,
    )


@dataclass(frozen=True, kw_only=True)
class FillPolicy:
    """How much synthetic fill a run bears."""

    share: HealthPolicy = field(default_factory=share_policy)
    """Of the samples, so much may be synthetic before it alarms: the policy of its window."""

    def __post_init__(self) -> None:
        """Refuse a bound without an alarm before it."""
        if self.share.warn_bad_fraction is None:
            raise ConfigError(
                "share has no warn_bad_fraction; set it (0.01), so that people hear of it before the stop"
            )


class SyntheticShare:
    """Counts over all ranks; the same on each."""

    def __init__(self, policy: FillPolicy | None = None) -> None:
        self._monitor = BlockMonitor(policy=(policy or FillPolicy()).share)

    def met(self, samples: int, *, synthetic: int) -> None:
        """So many samples since the last time, and how many of them were made up."""
        self._monitor.count(good=max(0, samples - synthetic), bad=synthetic)

    def counts(self) -> list[list[int]]:
        """The window as small JSON."""
        return self._monitor.counts()

    def load_counts(self, counts: Iterable[Sequence[int]]) -> None:
        """Take the window of :meth:`counts` on."""
        self._monitor.load_counts(counts)

    @property
    def bad(self) -> int:
        """Samples in the window that something stood in for."""
        return self._monitor.verdict().bad

    @property
    def alarming(self) -> bool:
        """Above the share at which people are told."""
        return self._monitor.verdict().warning

    @property
    def too_much(self) -> bool:
        """Surely above the bound: the run stops."""
        return self._monitor.verdict().status is Status.DEGRADED

    def in_words(self) -> str:
        """Like "2,310 of 100,000 samples (2.310 %) are synthetic; alarms above 1.000 %, stops at 20.000 %"."""
        verdict = self._monitor.verdict()
        part = verdict.bad / verdict.total if verdict.total else 0.0
        warn, limit = verdict.policy.warn_bad_fraction or 0.0, verdict.policy.max_bad_fraction
        return (
            f"{verdict.bad:,} of {verdict.total:,} samples ({part * 100:.3f} %) are synthetic; alarms above "
            f"{warn * 100:.3f} %, stops at {limit * 100:.3f} %"
        )
