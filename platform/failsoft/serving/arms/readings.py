"""What comes of asking a model about one text, and who can be asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from failsoft.health.window import Outcome
from failsoft.serving.web.messages import Entity


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A model's answer to one text or instance, judged."""

    output: Any
    """The answer itself, as JSON can carry it: the example's intent."""
    confidence: float
    entities: tuple[Entity, ...]
    """Spans refer to the text that the model was given."""
    release: str
    load_generation: int
    outcome: Outcome
    """GOOD or WEAK: what the answer says about the model."""
    usable: bool
    """Good enough to be given to this caller."""
    why: str
    """What is wrong with it; empty when nothing is."""
    model_ms: float = math.nan
    """The model's own time for the call that carried the text, without any queue; NaN: unknown."""
    together: int = 1
    """Texts that this call carried."""
    oov_share: float = math.nan
    """Share of the text's words that the training texts did not hold; NaN: unknown."""
    words: float = math.nan
    """Words of the text, as the model counts them; NaN: unknown."""
    entropy: float = math.nan
    """Of the answer, as a fraction of the largest possible; NaN: unknown."""
    margin: float = math.nan
    """Between the two most probable answers; NaN: unknown."""
    label: str = ""
    """What is counted to see whether the mix of answers drifts; empty: nothing is."""


@dataclass(frozen=True, kw_only=True)
class NoReading:
    """A model gave no answer: late, failed or shed."""

    outcome: Outcome
    why: str


class ModelArm(Protocol):
    """One colour's model, however far away."""

    async def ask(self, text: Any, *, within_s: float = math.inf) -> Reading | NoReading:
        """Answer one clean text or instance. Raises nothing but cancellation, which also stops the call.

        ``within_s`` tells the model how long its caller waits: work for callers who have left is not begun.
        """
        ...
