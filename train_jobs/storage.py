"""The supervisor's patience with the run's storage: a mount that is away costs a wait, not the run.

What the supervisor itself reads and writes there is small and may be done again. While storage is away no attempt is
begun: workers could neither read nor save, and each would cost a part of the budget of failures.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from failsoft.errors import ConfigError, PreemptedError, StorageAwayError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.checkpoints.driver_lock import LOCK_NAME

Found = TypeVar("Found")
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class StoragePolicy:
    """How long storage may be away."""

    patience_s: float = 3600.0
    """Then the supervisor ends and leaves the rest to who started it: a run is not to hold machines for nothing."""

    def __post_init__(self) -> None:
        """Refuse a patience that is none."""
        if not self.patience_s >= 0.0:
            raise ConfigError(f"patience_s of the storage is {self.patience_s}; use 0 or more seconds")


class Storage:
    """The run's folder, as the supervisor reaches it.

    Args:
        folder: the run's. A lock that lies there now has to lie there later, too: an empty folder in the place of a
            mount that is gone would look like a run that has not begun.
        clock: waits.
        rng: spreads the waits.
        ledger: told of the wait when it is over, for it lies on the same storage.
        backoff: waits between the tries.
        policy: when to give up.
        say: told at once.
        told: whether the run was told to leave; asked twice a second while waiting.
    """

    def __init__(  # noqa: PLR0913 -- each a part of its own, given by name
        self,
        folder: Path,
        *,
        clock: Clock,
        rng: random.Random,
        ledger: Ledger,
        backoff: BackoffPolicy,
        policy: StoragePolicy | None = None,
        say: Callable[[str], object] = lambda _said: None,
        told: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._rng = rng
        self._ledger = ledger
        self._backoff = backoff
        self._policy = policy or StoragePolicy()
        self._say = say
        self._told = told
        mark = folder / LOCK_NAME
        self._mark = mark if mark.exists() else None
        self.waits = 0
        """How often it was away."""

    def reached(self, work: Callable[[], Found]) -> Found:
        """Do something on the storage that may be done again, as often as it takes.

        Raises:
            StorageAwayError: it was away for too long.
            PreemptedError: the run was told to leave meanwhile.
        """
        since_s, failures = self._clock.monotonic_s(), 0
        while True:
            try:
                if self._mark is not None:
                    self._mark.stat()
                found = work()
            except OSError as error:
                failures += 1
                self._wait(error, failures, since_s)
                continue
            if failures:
                self._back(failures, self._clock.monotonic_s() - since_s)
            return found

    def _wait(self, error: OSError, failures: int, since_s: float) -> None:
        away_s, patience_s = self._clock.monotonic_s() - since_s, self._policy.patience_s
        if not away_s < patience_s:
            raise StorageAwayError(
                f"{self._folder} could not be reached for {away_s:.0f} s ({failures} tries): {error}; mend the storage "
                "(mount, network, permission, room), then start the same command again: it goes on from its newest "
                "checkpoint"
            ) from error
        if failures == 1:
            self._say(f"waits up to {patience_s:g} s for the run's storage: {error}")
        until_s = self._clock.monotonic_s() + min(self._backoff.wait_s(failures, self._rng), patience_s - away_s)
        while (left_s := until_s - self._clock.monotonic_s()) > 0.0:
            if self._told():
                raise PreemptedError(
                    "told to leave while the run's storage was away; the same command goes on from its last checkpoint"
                ) from error
            self._clock.sleep_s(min(left_s, _LOOK_S))

    def _back(self, failures: int, away_s: float) -> None:
        self.waits += 1
        said = f"the run's storage is back after {away_s:.0f} s and {failures} tries in vain"
        self._say(said)
        self._ledger.record("storage_back", said, away_s=round(away_s, 3), tries=failures, waits=self.waits)
