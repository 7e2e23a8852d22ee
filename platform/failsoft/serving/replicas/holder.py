"""The release that one model replica holds: loaded whole, swapped at once, kept when the next one will not load.

Free of Ray and of any model library: how a release becomes a predictor is handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from failsoft.serving.plan.plan import Colour, RoutingPlan

ScoresT_co = TypeVar("ScoresT_co", covariant=True)
PredictorT = TypeVar("PredictorT")


class Predictor(Protocol[ScoresT_co]):
    """What a model replica needs of a model."""

    def predict(self, texts: Sequence[str]) -> ScoresT_co:
        """Score some clean texts in one batch."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the plan asks a colour to have loaded."""

    release: str
    load_generation: int


@dataclass(frozen=True, kw_only=True)
class Held(Generic[PredictorT]):
    """A loaded release; replaced whole, so that a request never sees half of two."""

    wanted: Wanted
    predictor: PredictorT


def wanted_of(plan: RoutingPlan, colour: Colour) -> Wanted | None:
    """What ``colour`` must have loaded; None for an idle colour."""
    release = plan.releases.get(colour)
    return None if release is None else Wanted(release=release, load_generation=plan.load_generation.get(colour, 0))


class ReleaseHolder(Generic[PredictorT]):
    """Loads what is wanted, one at a time, in a thread, while the old one goes on answering.

    Args:
        load: opens and verifies a release by name and makes a predictor of it; raises if that can't be done.
        on_refusal: told of a release that did not load, and why; once, however often the same is tried again.
    """

    def __init__(self, load: Callable[[str], PredictorT], on_refusal: Callable[[Wanted, str], None]) -> None:
        self._load = load
        self._on_refusal = on_refusal
        self._turn = asyncio.Lock()
        self._wanted: Wanted | None = None
        self.held: Held[PredictorT] | None = None
        self.refusal: str | None = None
        """Why the newest wish was not fulfilled; None when it was."""

    @property
    def loading(self) -> bool:
        """The first release is on its way: whoever asks meanwhile learns nothing about any model."""
        return self.held is None and self._wanted is not None and self.refusal is None

    @property
    def ready(self) -> bool:
        """Something is loaded or on its way, or nothing is wanted."""
        return self.held is not None or self._wanted is None or self.loading

    def status(self) -> dict[str, Any]:
        """For operators."""
        return {"loading": self.loading, "swap": None}

    async def want(self, wanted: Wanted | None) -> None:
        """Have ``wanted`` loaded when this returns, or the old one kept and :attr:`refusal` set.

        A wish that came in the meantime outranks this one; the last wish wins. None keeps what is there.
        """
        self._wanted = wanted
        async with self._turn:
            newest = self._wanted
            if newest is None:
                return
            if self.held is not None and self.held.wanted == newest:
                self.refusal = None
            else:
                await self._try(newest)

    async def _try(self, wanted: Wanted) -> None:
        try:
            predictor = await asyncio.to_thread(self._load, wanted.release)
        except Exception as error:  # noqa: BLE001 -- a model replica's boundary: a loader may raise anything, the old release goes on
            told, self.refusal = self.refusal, f"{wanted.release} did not load: {error}"
            if self.refusal != told:
                self._on_refusal(wanted, self.refusal)
            return
        self.held, self.refusal = Held(wanted=wanted, predictor=predictor), None
