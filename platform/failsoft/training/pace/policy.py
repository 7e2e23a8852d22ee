"""When a rank counts as slow, and what may be done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.pace.shares import FULL


@dataclass(frozen=True, kw_only=True)
class Sureness:
    """How sure one must be; the fewer ranks there are to compare with, the surer."""

    min_factor: float
    """A slow rank takes surely longer than this many times the others' median."""
    errors: float
    """Surely: by so many standard errors of the difference."""
    windows: int
    """So many windows in a row."""


@dataclass(frozen=True, kw_only=True)
class PacePolicy:
    """How slow ranks are found. Factors compare durations that each rank took with its own clock, never the clocks."""

    window: int = 50
    """Whole batches between two meetings of the ranks; each rank brings the median of its times."""
    min_samples: int = 20
    """Fewer times than this in a window tell nothing of a rank."""
    many: Sureness = Sureness(min_factor=1.2, errors=3.0, windows=2)
    """With four ranks or more, where the spread over the ranks is known, too."""
    few: Sureness = Sureness(min_factor=1.3, errors=4.0, windows=3)
    """With two or three: whether one is slow or the other fast can't be told, and the spread of two says nothing."""
    deviations: float = 4.0
    """With many ranks a slow one also lies so many robust standard deviations (over the ranks) above the median."""
    end_factor: float = 1.1
    """Below this a slow rank keeps up again; in between nothing changes."""
    end_windows: int = 3
    """So many windows in a row at the usual speed end it."""
    min_excess_s: float = 0.002
    """Less than this a step is not worth a word: bookkeeping of rank 0 costs as much."""

    def __post_init__(self) -> None:
        """Refuse what would find everybody slow, or nobody."""
        if not 2 <= self.min_samples <= self.window:
            raise ConfigError(
                f"min_samples is {self.min_samples} with a window of {self.window}; a spread needs 2 times or more, "
                "and the window must hold them"
            )
        for name in ("many", "few"):
            sure: Sureness = getattr(self, name)
            if not 1.0 < self.end_factor < sure.min_factor < math.inf:
                raise ConfigError(
                    f"end_factor is {self.end_factor} and min_factor of {name} {sure.min_factor}; use 1 < end_factor < "
                    "min_factor, or a rank would be slow and not slow at once"
                )
            if sure.windows < 1 or not sure.errors >= 0.0:
                raise ConfigError(f"{name} is {sure}; use 1 window or more, and 0 errors or more")
        if not self.deviations >= 0.0 or not self.min_excess_s >= 0.0 or self.end_windows < 1:
            raise ConfigError(
                f"deviations is {self.deviations}, min_excess_s {self.min_excess_s}, end_windows {self.end_windows}; "
                "use 0 or more, 0 or more, 1 or more"
            )

    def sureness(self, ranks: int) -> Sureness:
        """What holds for so many ranks that can be compared."""
        return self.many if ranks >= 4 else self.few


@dataclass(frozen=True, kw_only=True)
class RemedyPolicy:
    """How the share of a slow rank is lowered, and given back."""

    floor: int = FULL // 4
    """The smallest share, in sixteenths."""
    headroom: float = 0.9
    """A rank that takes less than this part of the others' time on its lighter share can take more."""
    windows: int = 3
    """So many windows in a row, before it does."""
    patience: BackoffPolicy = field(
        default_factory=lambda: BackoffPolicy(first_s=30.0, factor=3.0, cap_s=3600.0, jitter_fraction=0.0)
    )
    """Wait after the share was lowered, before any of it is given back; grows with each relapse."""
    max_updates: int = 4
    """When the share is at its floor and the rank still slow, a global batch is spread over up to so many smaller
    updates, each at its share of the learning rate. 1: never."""

    def __post_init__(self) -> None:
        """Refuse shares that leave a rank nothing, or everything."""
        if not 1 <= self.floor < FULL:
            raise ConfigError(f"floor is {self.floor}; use 1 to {FULL - 1} sixteenths")
        if not 0.0 < self.headroom < 1.0:
            raise ConfigError(f"headroom is {self.headroom}; use a part below 1, such as 0.9")
        if self.windows < 1 or self.max_updates < 1:
            raise ConfigError(f"windows is {self.windows}, max_updates {self.max_updates}; use 1 or more")
        if self.patience.jitter_fraction:
            raise ConfigError(
                f"jitter_fraction of patience is {self.patience.jitter_fraction}; use 0: all ranks work the wait out "
                "for themselves, and must come to the same"
            )
