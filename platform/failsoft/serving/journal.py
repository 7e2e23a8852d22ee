"""What the answering of requests tells, and to whom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from failsoft.serving.arms.mirror import NotMirrored
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Answer


class Journal(Protocol):
    """Who wants to know how things went. Every method returns at once and never raises."""

    def note(self, seen: Seen) -> None:
        """One call of a model ended."""
        ...

    def stale(self, colour: Colour) -> None:
        """A model answered with another release or an older load than the plan asks for: no evidence either way."""
        ...

    def answered(self, answer: Answer, row: int, why: str, asked: Any, *, caller: int | None = None) -> None:
        """One item of a request was answered.

        Args:
            answer: what the caller gets.
            row: the item's place in its request.
            why: why not the model in service, in a word; ``none``: it was.
            asked: the text or instance as the caller wrote it.
            caller: number of whose request it was; None: nobody knows.
        """
        ...

    def holds_back(self, caller: int | None) -> str | None:
        """Why this request had better not go to the subject: its caller alone has gone bad. None: it may."""
        ...

    def mirror(self, copy: Mirrored) -> None:
        """The subject is to get a copy of this request, apart from the live path."""
        ...

    def not_mirrored(self, reason: NotMirrored) -> None:
        """This request was chosen to be copied, and no copy could be made."""
        ...


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """A live request that the subject answers too, unseen by the caller."""

    text: Any
    """Clean text or instance, as the subject's release wants it."""
    plan: RoutingPlan
    live_output: Any
    caller: int | None = None
    """Number of whose request it was; None: nobody knows."""
    live_confidence: float = math.nan
    """NaN: whoever answered has no honest one."""
    live_latency_ms: float = math.nan
    """Time inside the gateway; NaN: unknown."""
    request_id: str = ""
    row: int = 0
    """Place of the item in its request."""
