"""What a model replica with one slot keeps at hand: which releases the plan wants in host memory, and how it fares."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from failsoft.artifacts.bundle import Bundle
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.replicas.host_shelf import HostShelf


class SlotMemory:
    """Keeps the releases that a plan names in host memory, after what is asked for first was loaded.

    Args:
        shelf: where they are kept.
    """

    def __init__(self, shelf: HostShelf) -> None:
        self._shelf = shelf
        self._kept_for: Mapping[Any, str | None] = {}

    def open(self, release: str) -> tuple[Bundle, bool]:
        """A verified release and whether it came from memory. Blocks."""
        artifact, from_memory = self._shelf.open(release)
        return Bundle.of(artifact), from_memory

    async def keep_for(self, plan: RoutingPlan) -> None:
        """Have what the plan names in memory: the release in the slot, and the one to go back to."""
        if plan.releases == self._kept_for and not self._shelf.refusals:
            return
        names = [name for name in plan.releases.values() if name]
        await asyncio.to_thread(self._shelf.keep, names)
        self._kept_for = plan.releases

    def status(self) -> dict[str, Any]:
        """For operators. Blocks a little: small files are read."""
        return {"in_host_memory": sorted(self._shelf.kept()), "not_in_host_memory": dict(self._shelf.refusals)}
