"""What a model replica with one slot keeps at hand: which releases the plan wants in host memory, and how it fares."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from failsoft.artifacts.bundle import Bundle
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.replicas.host_shelf import HostShelf


class SlotMemory:
    """Keeps the releases that a plan names in host memory, after what is asked for first was loaded.

    Copies of many gigabytes take minutes. They are made by a thread of their own, and nobody waits for them: a model
    that falls ill meanwhile leaves the slot at once.

    Args:
        shelf: where they are kept.
    """

    def __init__(self, shelf: HostShelf) -> None:
        self._shelf = shelf
        self._kept_for: Mapping[Any, str | None] = {}
        self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="host copies")
        self._copying: Future[None] | None = None

    def open(self, release: str) -> tuple[Bundle, bool]:
        """A verified release and whether it came from memory. Blocks."""
        artifact, from_memory = self._shelf.open(release)
        return Bundle.of(artifact), from_memory

    def keep_for(self, plan: RoutingPlan) -> None:
        """Begin to have what the plan names in memory: the release in the slot, and the one to go back to.

        Call it again and again: while copies are being made nothing is begun, and what was refused is tried again.
        Raises what a bug in the copying raised.
        """
        if self._copying is not None:
            if not self._copying.done():
                return
            self._copying.result()
        if plan.releases == self._kept_for and not self._shelf.refusals:
            return
        names = [name for name in plan.releases.values() if name]
        self._kept_for = plan.releases
        self._copying = self._copier.submit(self._shelf.keep, names)

    def status(self) -> dict[str, Any]:
        """For operators. Blocks a little: small files are read."""
        return {
            "in_host_memory": sorted(self._shelf.kept()),
            "not_in_host_memory": dict(self._shelf.refusals),
            "copying": self._copying is not None and not self._copying.done(),
        }
