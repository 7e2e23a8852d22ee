"""The release that one model replica holds: loaded whole, swapped at once, kept when the next one will not load.

Free of Ray and of any model library: how a release becomes a predictor is handed in.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from failsoft.serving.giving_way import giving_way
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


class Holder(ABC, Generic[PredictorT]):
    """Has what is wanted brought in, one release at a time; how, say the two kinds of it.

    Args:
        on_refusal: told of a release that did not load, and why; once, however often the same is tried again.
    """

    def __init__(self, on_refusal: Callable[[Wanted, str], None]) -> None:
        self._on_refusal = on_refusal
        self._turn = asyncio.Lock()
        self._wanted: Wanted | None = None
        self.held: Held[PredictorT] | None = None
        self.refusal: str | None = None
        """Why the newest wish was not fulfilled; None when it was."""

    @property
    def loading(self) -> bool:
        """Nothing is held and something is on its way: whoever asks meanwhile learns nothing about any model."""
        return self.held is None and self._wanted is not None and self.refusal is None

    @property
    def ready(self) -> bool:
        """Something is loaded or on its way, or nothing is wanted."""
        return self.held is not None or self._wanted is None or self.loading

    async def want(self, wanted: Wanted | None) -> None:
        """Have ``wanted`` loaded when this returns, or :attr:`refusal` set.

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
                await self._bring(newest)

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """For operators."""

    @abstractmethod
    async def _bring(self, wanted: Wanted) -> None:
        """Load it, and :meth:`_take` or :meth:`_refuse` it."""

    def _take(self, wanted: Wanted, predictor: PredictorT) -> None:
        self.held, self.refusal = Held(wanted=wanted, predictor=predictor), None

    def _refuse(self, wanted: Wanted, error: Exception) -> None:
        told, self.refusal = self.refusal, f"{wanted.release} did not load: {error}"
        if self.refusal != told:
            self._on_refusal(wanted, self.refusal)


class ReleaseHolder(Holder[PredictorT]):
    """Loads what is wanted in a thread, while the old one goes on answering; keeps the old one when that fails.

    That thread gives way to all others: a colour that loads has no callers, and those of the other colour share cores.

    Args:
        load: opens and verifies a release by name and makes a predictor of it; raises if that can't be done.
        on_refusal: as for every :class:`Holder`.
    """

    def __init__(self, load: Callable[[str], PredictorT], on_refusal: Callable[[Wanted, str], None]) -> None:
        super().__init__(on_refusal)
        self._load, self._thread = load, giving_way("loading")

    def status(self) -> dict[str, Any]:
        """For operators."""
        return {"loading": self.loading, "swap": None}

    async def _bring(self, wanted: Wanted) -> None:
        try:
            loop = asyncio.get_running_loop()
            predictor = await loop.run_in_executor(self._thread, self._load, wanted.release)
        except Exception as error:  # noqa: BLE001 -- a model replica's boundary: a loader may raise anything, the old release goes on
            self._refuse(wanted, error)
            return
        self._take(wanted, predictor)
