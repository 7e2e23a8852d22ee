"""The seam: all that somebody has to write to serve a model of her own. Read this file, then ``docs/own_model.py``.

::

    caller ── item ──> inputs ──> Predictor ── scores ──> Quality ── Judged ──> answer
                          │      (model replica)         (gateway)     │
                          └────────────────> Rung, Rung, … <── weak ───┘
                                          (gateway process)

Three things are hers: a :class:`Predictor`, which runs in the model replicas and may bring torch or anything else; a
:class:`Quality`, which says what its scores mean and which of them are credible (kinds for classes, tags, numbers and
own confidences are in ``failsoft.serving.quality``); and the :class:`Rung` list that answers instead. Quality and rungs
run in the gateway process, which must start and answer when no model can: they may not need torch, nor wait.

Everything else (deadlines, breakers, the watch, the stages of trust, the mirror) is the same for every model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from failsoft.artifacts.bundle import Bundle
from failsoft.health.window import Outcome
from failsoft.serving.web.messages import Entity

Measures = Mapping[str, float]
"""What was measured of a release when it was made, by name: ``temperature``, and what :meth:`Quality.measure` found."""


class Predictor(Protocol):
    """A loaded model. Lives in a model replica: one call at a time, in a thread beside the replica's event loop.

    It may also have ``close()``, called before another release takes its only slot, to give device memory back;
    ``break_weights()``, which spoils what is in memory: a drill's planned fault; and ``only_computes = True``, which
    says that ``predict`` waits for nothing, runs no event loop and may be called from any thread: while its calls take
    5 ms at most they are then made without the hop to the thread.
    """

    def predict(self, batch: Any, /) -> Any:
        """Score a batch, a list: clean texts, or instances as the app's inputs let them through; never empty.

        Returns:
            What the app's :class:`Quality` reads: numpy arrays, or dicts, lists and tuples of them, rows in the order
            asked. Tensors are made arrays on the way, since the gateway has no torch.
        """
        ...


class Loads(Protocol):
    """A class whose ``load`` makes a predictor of a release; a function of a bundle will do as well."""

    def load(self, bundle: Bundle, /) -> Predictor:
        """Make a predictor of a verified release, whose files are ``bundle.file("name")``. May raise anything.

        A release that does not load is refused in words and the one before goes on. Nobody but this method decides how
        a file is read; prefer formats that can't run code (safetensors, npz without pickles) to pickles. For a torch
        model, :func:`failsoft.models.id_bounds.refuse_unknown_ids` turns an id that no table has, which would take
        the process on a GPU, into an error of one call.
        """
        ...


Loader = Callable[[Bundle], Predictor]
PredictorSource = str | Loads | Loader
"""``"package.module:Name"``, which is imported in model replicas only, or the class or function itself."""


class Judged(NamedTuple):
    """What the scores of one item are worth."""

    output: Any
    """The answer, as JSON can carry it; None when there is none."""
    confidence: float
    """0 to 1, calibrated as far as the release is; NaN when it could not be had, and such an answer never counts."""
    outcome: Outcome
    """GOOD or WEAK: what it says about the model."""
    usable: bool
    """Whether the caller may have it."""
    reason: str
    """What is wrong with it; empty when nothing is."""
    entities: tuple[Entity, ...] = ()
    """Named pieces of a text, by their places in the text that the model was given."""
    label: str = ""
    """What is counted to see whether the mix of answers drifts: a class, an intent; empty: nothing is."""
    oov_share: float = math.nan
    """Share of the item that training never saw, 0 to 1; NaN: unknown."""
    words: float = math.nan
    """How long the item is, as the release's baseline counts: words of a text; NaN: unknown. Only shown."""
    entropy: float = math.nan
    """Of the answer, as a fraction of the largest possible; NaN: unknown. Only shown."""
    margin: float = math.nan
    """Between the two most probable answers, 0 to 1; NaN: unknown. Only shown."""


def unusable(why: str) -> Judged:
    """The judgement of what is no answer."""
    return Judged(output=None, confidence=math.nan, outcome=Outcome.WEAK, usable=False, reason=why)


class Quality(Protocol):
    """What scores mean, and which of them are credible. Pure, picklable, and batched: it runs for every answer.

    Write comparisons so that NaN fails them: ``not (confidence >= limit)`` is weak. Derive from this class to take its
    :meth:`agrees` and :meth:`measure`.
    """

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> Sequence[Judged]:
        """One judgement for each of ``rows`` items, in order. Scores may be of any shape when the model is ill.

        A raise, another number of judgements, or a confidence that is none makes all or that one unusable and weak.
        """
        ...

    def agrees(self, one: Any, other: Any) -> bool:
        """Whether two outputs say the same: a mirrored answer and the live one, or a golden one and today's."""
        return bool(one == other)

    def measure(self, scores: Any, *, rows: int) -> Measures:
        """What :meth:`judge` will want to know of a healthy release; computed once, when it is published."""
        del scores, rows
        return {}


@dataclass(frozen=True, kw_only=True)
class RungAnswer:
    """What a rung says about one item."""

    output: Any
    """As JSON can carry it."""
    confidence: float | None = None
    """None when the rung has no honest one."""
    entities: tuple[Entity, ...] = ()
    """Spans refer to the text that the rung was given."""
    source: str = ""
    """Who answers; the rung's name when empty."""


class Rung(Protocol):
    """One fallback. Synchronous, quick (some ms at most), in the gateway process, with a breaker of its own."""

    @property
    def name(self) -> str:
        """Who answers; callers read it as ``source``."""
        ...

    def answer(self, item: Any, /) -> RungAnswer | None:
        """Answer a clean text or an instance; None when the next rung should. May raise; the last rung may not."""
        ...


RungMaker = Callable[[Bundle], Sequence[Rung]]
"""The rungs of a release, from the best to the surest. The last one is asked odd things before anything is served."""
RungSource = str | RungMaker
"""``"package.module:function"`` or the function itself."""
