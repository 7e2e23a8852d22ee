"""When to checkpoint: the best interval for a failure rate and a cost, and the reasons that make one due.

Young, *A first order approximation to the optimum checkpoint interval*, CACM 17(9), 1974: ``sqrt(2 C M)``.
Daly, *A higher order estimate of the optimum checkpoint interval for restart dumps*, FGCS 22(3), 2006, equation 37:
``sqrt(2 C M) [1 + (C / 2M)^(1/2) / 3 + (C / 2M) / 9] - C`` for ``C < 2M``, else ``M``. C: seconds for which a
checkpoint holds the training up; M: mean time between failures of the whole job; the interval is work between the end
of one checkpoint and the start of the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from failsoft.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A job on a cluster, as far as checkpoints care."""

    node_mtbf_s: float
    """Mean time between failures of one node."""
    checkpoint_cost_s: float
    """How long one checkpoint holds the training up: the stall, where the write goes on behind the training."""
    nodes: int = 1
    """Nodes that must all live; a job on many fails as often as any of them does."""
    restart_s: float = 60.0
    """From a failure to the first new step, without the work that is repeated."""

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        for name in ("node_mtbf_s", "checkpoint_cost_s"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; use a time above 0")
        if not 0.0 <= self.restart_s < math.inf:
            raise ConfigError(f"restart_s is {self.restart_s}; use 0 or more")
        if not self.nodes >= 1:
            raise ConfigError(f"nodes is {self.nodes}; use 1 or more")

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures of the job: failures of independent nodes add up."""
        return self.node_mtbf_s / self.nodes


def young_s(setting: Setting) -> float:
    """Young's interval: seconds of work between checkpoints, good while the cost is small beside the MTBF."""
    return math.sqrt(2.0 * setting.checkpoint_cost_s * setting.mtbf_s)


def daly_s(setting: Setting) -> float:
    """Daly's interval, good also where a checkpoint costs a good part of the time between failures."""
    cost_s, mtbf_s = setting.checkpoint_cost_s, setting.mtbf_s
    if not cost_s < 2.0 * mtbf_s:
        return mtbf_s
    share = cost_s / (2.0 * mtbf_s)
    return young_s(setting) * (1.0 + math.sqrt(share) / 3.0 + share / 9.0) - cost_s


def expected_efficiency(setting: Setting, interval_s: float) -> float:
    """Useful share (0..1) of the wall time, by Daly's complete model of exponential failures (equation 20).

    ``T = M e^(R/M) (e^((tau+C)/M) - 1) / tau`` seconds of wall time for each second of work; a failure may also strike
    during a restart. 0 when an interval can hardly ever be finished.
    """
    if not interval_s > 0.0:
        raise ConfigError(f"interval_s is {interval_s}; use a time above 0")
    mtbf_s = setting.mtbf_s
    exponent = (interval_s + setting.checkpoint_cost_s) / mtbf_s
    if not exponent + setting.restart_s / mtbf_s < 700.0:  # e^700 is where a float ends
        return 0.0
    wall_s = mtbf_s * math.exp(setting.restart_s / mtbf_s) * math.expm1(exponent)
    return min(1.0, interval_s / wall_s)


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """What makes a checkpoint due; the first that applies wins."""

    every_steps: int | None = 2000
    """Applied steps since the last one."""
    every_s: float | None = None
    """Seconds since the last one, by the clock of rank 0."""
    at_epoch_end: bool = False
    """When the last batch of an epoch is consumed."""

    def __post_init__(self) -> None:
        """Refuse to be always due."""
        if self.every_steps is not None and not self.every_steps >= 1:
            raise ConfigError(f"every_steps is {self.every_steps}; use 1 or more, or None")
        if self.every_s is not None and not self.every_s > 0.0:
            raise ConfigError(f"every_s is {self.every_s}; use a time above 0, or None")

    def due(self, *, steps: int, elapsed_s: float | None = None, epoch_ended: bool = False) -> str | None:
        """The reason why a checkpoint is due now, or None.

        Args:
            steps: applied since the last one.
            elapsed_s: since the last one; None where the ranks have not agreed on a time just now.
            epoch_ended: the batch just consumed was the last of its epoch.
        """
        if self.every_steps is not None and steps >= self.every_steps:
            return f"{steps} steps since the last one"
        if self.at_epoch_end and epoch_ended:
            return "the epoch ended"
        if self.every_s is not None and elapsed_s is not None and elapsed_s >= self.every_s:
            return f"{elapsed_s:.0f} s since the last one"
        return None
