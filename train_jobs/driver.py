"""What holds a run's workers: in this process, or in a child of it. The supervisor knows no more of it than this."""

from __future__ import annotations

from typing import Protocol

from failsoft.training.survival.room import NodeRoom
from train_jobs.result import JobResult


class Driver(Protocol):
    """Carries out what the supervisor decides. Each method may find that the process behind it is gone.

    Raises:
        DriverLostError: the process died; the next call finds another one.
    """

    def start(self) -> None:
        """Prepare the run and connect to Ray, unless that is done.

        Raises:
            FailsoftError: the run can't be trained: its data, its settings, or no Ray.
        """
        ...

    def excluded(self) -> frozenset[str]:
        """Ids of nodes that shall get no worker now."""
        ...

    def rooms(self) -> tuple[NodeRoom, ...] | None:
        """What the cluster's nodes have left; None: not known. May be asked while an attempt runs."""
        ...

    def wish(self, workers: int, excluded: frozenset[str]) -> None:
        """Let an autoscaler know that so many workers are waited for, on other nodes than these; 0: no longer."""
        ...

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        """Start so many workers, and wait for their end; None when they ended by themselves, else what ended them."""
        ...

    def finish(self) -> JobResult:
        """Evaluate the final checkpoint and publish, as the job asks.

        Raises:
            FailsoftError: that can't be done.
        """
        ...
