"""Every byte of a release is read before it begins its way, beside what live answers need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import Clock
from failsoft.serving.giving_way import giving_way
from failsoft.serving.pacing import LoadingPolicy, Pace

PACE = LoadingPolicy(pauses_at_most_s=3.0)
"""An operator waits for it, and a command line no longer than 10 s."""


class Verifier:
    """Reads in a thread that gives way to all others.

    Args:
        releases: the store.
        clock: measures, and waits.
        spare: whether a model answers callers, who are to be spared.
        hurried: told the release, and in words that its pauses are used up.
    """

    def __init__(
        self,
        releases: ArtifactStore,
        clock: Clock,
        *,
        spare: Callable[[], bool],
        hurried: Callable[[str, str], None],
    ) -> None:
        self._releases, self._clock, self._spare, self._hurried = releases, clock, spare, hurried
        self._thread = giving_way("verifying releases")

    async def verify(self, release: str) -> None:
        """Read it.

        Raises:
            ArtifactError: it is absent, damaged, or of a newer format.
            ConfigError: there can be no release of that name.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._read, release)

    def _read(self, release: str) -> None:
        pace = Pace(PACE, self._clock, spare=self._spare, on_hurry=lambda why: self._hurried(release, why))
        self._releases.open(release, beat=pace.beat)
