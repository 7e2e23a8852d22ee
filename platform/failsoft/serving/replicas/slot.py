"""The one place that a model has when two don't fit: the old one leaves before the new one comes.

While a swap is under way nothing is held, and whoever asks is told so: that is no fault of any model.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from failsoft.health.clock import Clock
from failsoft.serving.replicas.holder import Holder, PredictorT, Wanted


@dataclass(frozen=True, kw_only=True)
class Swap:
    """One change of what the slot holds, as it was measured."""

    release: str
    took_s: float
    """From the moment when the old one stopped answering to the moment when the new one answers."""
    from_memory: bool

    def in_words(self) -> str:
        """For the status and the ledger."""
        source = "host memory" if self.from_memory else "storage"
        return f"{self.release} was read from {source} in {self.took_s:.2f} s"


class SlotHolder(Holder[PredictorT]):
    """Holds one release at a time, and nothing when the next one will not load.

    Args:
        load: opens and verifies a release by name and makes a predictor of it, and says whether its bytes came from
            memory; raises if that can't be done.
        on_refusal: as for every :class:`~failsoft.serving.replicas.holder.Holder`.
        on_swap: told of every swap.
        clock: measures swaps.
        let_go: gives back what a predictor holds on the device; it is not asked again.
    """

    def __init__(
        self,
        load: Callable[[str], tuple[PredictorT, bool]],
        *,
        on_refusal: Callable[[Wanted, str], None],
        on_swap: Callable[[Swap], object],
        clock: Clock,
        let_go: Callable[[PredictorT], None],
    ) -> None:
        super().__init__(on_refusal)
        self._load, self._let_go, self._clock = load, let_go, clock
        self._on_swap = on_swap
        self.swap: Swap | None = None
        """The last one; None: none yet."""

    def status(self) -> dict[str, Any]:
        """For operators."""
        return {"loading": self.loading, "swap": self.swap.in_words() if self.swap else None}

    async def _bring(self, wanted: Wanted) -> None:
        """Nothing comes back when this fails: the plan, which learns of it by the answers, asks for the old one."""
        before, self.held = self.held, None  # from here on whoever asks is told that nothing is loaded
        began_s = self._clock.monotonic_s()
        if before is not None:
            await asyncio.to_thread(self._let_go, before.predictor)
            del before
            await asyncio.to_thread(gc.collect)  # what the new one needs is held by cycles as often as not
        try:
            predictor, from_memory = await asyncio.to_thread(self._load, wanted.release)
        except Exception as error:  # noqa: BLE001 -- a model replica's boundary: a loader may raise anything
            self._refuse(wanted, error)
            return
        self._take(wanted, predictor)
        took_s = self._clock.monotonic_s() - began_s
        self.swap = Swap(release=wanted.release, took_s=took_s, from_memory=from_memory)
        self._on_swap(self.swap)
