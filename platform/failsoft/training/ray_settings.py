"""How a run sits on a Ray cluster. Knows the words of Ray, and does not load it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.notice import NoticePolicy
from failsoft.training.survival.warmth import SparePolicy
from failsoft.training.survival.watch_policy import WatchPolicy

NODE_LABEL = "ray.io/node-id"
"""By this label of Ray's own each node can be named in a selector."""


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """How a run sits on a Ray cluster."""

    folder: Path
    """The run's folder; on storage that all nodes share when there are several."""
    ledger: Path
    """Where events are written."""
    workers: int = 1
    """Of one attempt; the supervisor chooses the number anew before each."""
    threads_per_worker: int = 1
    """Threads of torch, and CPUs asked of Ray, for each worker."""
    gpu: bool = False
    """One GPU for each worker."""
    excluded: frozenset[str] = frozenset()
    """Ids of nodes (hex) that get no worker: they failed a test, or do not answer."""
    immediate_retries: int = 1
    """Restarts of the worker group by Ray itself, at once; later failures go to the supervisor, which waits.

    This one has no preflight: a look at the nodes loads torch for the all-reduce, two seconds here, and most deaths are
    of a process, not of a machine. Where the machine is ill, it costs this one retry: before the supervisor's next
    attempt all nodes are looked at.
    """
    spares: SparePolicy = field(default_factory=SparePolicy)
    """Processes that stand by, warm, to be the workers of the next restart."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    """The network between workers, and how long it may be silent."""
    watch: WatchPolicy = field(default_factory=WatchPolicy)
    """How long a worker may stand still."""
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    """How long a worker has to leave."""

    def __post_init__(self) -> None:
        """Refuse a run without workers, and ids of nodes that no selector can name."""
        for name in ("workers", "threads_per_worker"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        odd = sorted(node for node in self.excluded if not node.isalnum())
        if odd:
            raise ConfigError(f"excluded names {odd[0]!r}, which is no id of a node; take them from: ray list nodes")

    def need(self) -> dict[str, float]:
        """What Ray is asked for each worker."""
        return {"CPU": float(self.threads_per_worker)} | ({"GPU": 1.0} if self.gpu else {})

    def selector(self) -> dict[str, str] | None:
        """Ray's label selector that keeps workers off the excluded nodes; None: any node will do.

        No blank follows a comma: Ray 2.60 takes it for a part of the id, and excludes the first node only.
        """
        return {NODE_LABEL: f"!in({','.join(sorted(self.excluded))})"} if self.excluded else None

    def open_ledger(self) -> Ledger:
        """The run's ledger, for the process that asks."""
        return Ledger(self.ledger, SystemClock(), side=Side.TRAINING, subject=self.folder.name)


def first_lines(error: BaseException) -> str:
    """What an error says, short enough for a ledger."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:4])[:600] or type(error).__name__
