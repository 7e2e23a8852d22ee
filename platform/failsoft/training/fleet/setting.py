"""A run on a fleet: how large, what takes how long, and by which policies it is led."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.cadence import Setting, daly_s
from failsoft.training.fleet.faults import FaultRates, llama3
from failsoft.training.survival.growth import ResizePolicy
from failsoft.training.survival.preflight import PreflightPolicy
from failsoft.training.survival.room import WorkerRange
from failsoft.training.survival.supervise import RestartPolicy
from failsoft.training.survival.watch_policy import WatchPhase, WatchPolicy

BEST = None
"""As an interval: the one that wastes least, by Daly."""


class Part(StrEnum):
    """What the fleet's time goes to; the parts add up to the wall time."""

    PRODUCTIVE = "productive"
    FEWER = "fewer workers"
    """A step takes longer on fewer nodes; the time beyond what it takes on all of them."""
    LOST = "done in vain"
    """Work since the moment that a restart went back to."""
    STALL = "checkpoints and snapshots"
    DETECT = "until noticed"
    BACKOFF = "back-off"
    PREFLIGHT = "preflight"
    START = "start of workers"
    WAIT = "wait for nodes"
    BY_HAND = "until people came"


@dataclass(frozen=True, kw_only=True)
class Times:
    """What takes how long on this fleet, in seconds. None of it is known to failsoft: measure it, or take a guess."""

    step_s: float = 6.0
    """One step on all nodes: 16 million tokens of a 405B model at 400 TFLOP/s on each of 16,384 GPUs."""
    checkpoint_cost_s: float = 2.0
    """How long a checkpoint holds the training up."""
    checkpoint_write_s: float = 60.0
    """Behind the training, until it can be gone back to."""
    snapshot_cost_s: float = 0.2
    """The copy into the host's memory: 0.4 GB from each GPU."""
    start_s: float = 180.0
    """Start of all workers, their meeting, loading, up to the first step; a guess, the largest one."""
    death_seen_s: float = 1.0
    """A dead worker is seen by Ray Train's controller, which looks ten times a second."""
    node_seen_s: float = 40.0
    """A node that went away without a word is given up by Ray (its health checks' default patience)."""
    preflight_s: float = 20.0
    """All nodes look at themselves together."""
    save_s: float = 10.0
    """A last checkpoint, once a worker was told to leave."""
    repair_s: float = 86_400.0
    """Mean time until an ill or lost node is back, exponential; a guess."""
    by_hand_s: float = 1800.0
    """Until people have come, found the ill node and started the run again, once the supervisor has given up."""

    def __post_init__(self) -> None:
        """Refuse times that are none."""
        for name, value in vars(self).items():
            if not 0.0 <= value < math.inf:
                raise ConfigError(f"{name} is {value}; use 0 or more seconds")
        for name in ("step_s", "checkpoint_cost_s", "repair_s"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use more than 0 seconds")


@dataclass(frozen=True, kw_only=True)
class FleetSetting:
    """One run. Policies have the defaults that a run of failsoft has."""

    nodes: int = 2048
    """That the run wants; each is one worker with its GPUs."""
    spares: int = 32
    """Nodes beside them that stand idle; a guess, 1.6 %."""
    least: int | None = None
    """Nodes with which it goes on; None: all of ``nodes``, so that it waits where a spare is missing."""
    days: float = 54.0
    faults: FaultRates = field(default_factory=llama3)
    times: Times = field(default_factory=Times)
    checkpoint_every_steps: int | None = BEST
    """None: as ``node_mtbf_s`` of a run makes it, by Daly's formula."""
    snapshot_every_steps: int | None = 100
    """RAM snapshots that outlive a worker, but not its node; None: none."""
    immediate_retries: int = 1
    """Restarts by Ray itself, at once."""
    preflight_finds: float | None = 0.95
    """The share of ill nodes that a preflight finds; a guess. None: there is no preflight."""
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    watch: WatchPolicy = field(default_factory=WatchPolicy)
    resize: ResizePolicy = field(default_factory=lambda: ResizePolicy(costs_s=Times().save_s + Times().start_s))
    preflight: PreflightPolicy = field(default_factory=PreflightPolicy)

    def __post_init__(self) -> None:
        """Refuse a fleet that can't be one."""
        if not self.spares >= 0:
            raise ConfigError(f"spares is {self.spares}; use 0 or more")
        if not self.immediate_retries >= 0:
            raise ConfigError(f"immediate_retries is {self.immediate_retries}; use 0 or more")
        if not 0.0 < self.days < math.inf:
            raise ConfigError(f"days is {self.days}; use more than 0")
        for name in ("checkpoint_every_steps", "snapshot_every_steps"):
            if getattr(self, name) is not None and not getattr(self, name) >= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more, or None")
        if self.preflight_finds is not None and not 0.0 <= self.preflight_finds <= 1.0:
            raise ConfigError(f"preflight_finds is {self.preflight_finds}; use a share from 0 to 1, or None")
        self.workers  # noqa: B018 -- it refuses a range in words

    @property
    def workers(self) -> WorkerRange:
        """How few and how many."""
        return WorkerRange(least=self.nodes if self.least is None else self.least, most=self.nodes)

    def cadence(self, workers: int) -> Setting:
        """What Daly's formula is given; the restart is not part of it."""
        return Setting(
            node_mtbf_s=1.0 / self.faults.total_per_node_s,
            checkpoint_cost_s=self.times.checkpoint_cost_s,
            nodes=workers,
            restart_s=self.times.start_s,
        )

    def checkpoint_steps(self, workers: int) -> int:
        """Steps between two checkpoints of so many workers."""
        if self.checkpoint_every_steps is not None:
            return self.checkpoint_every_steps
        return max(1, round(daly_s(self.cadence(workers)) / self.step_s(workers)))

    def step_s(self, workers: int) -> float:
        """One step on so many: the global batch stays what it is."""
        return self.times.step_s * self.nodes / workers

    def hang_seen_s(self, *, at_work: bool) -> float:
        """From standing still to the end of the worker, by the watchdog's own limits; it looks once a tick."""
        limit_s = self.watch.limit_s(WatchPhase.STEP if at_work else WatchPhase.FIRST_STEP)
        return limit_s + self.watch.tick_s + self.watch.muster_s
