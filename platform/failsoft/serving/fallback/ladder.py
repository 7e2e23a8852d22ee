"""The fallback ladder: rungs from the best to the surest. The last rung can't fail; this is checked before it serves.

A rung says None when it would only guess. Its own confidence is no proof: a tree model is 0.99997 sure of an input
without a single known feature, so a rung judges how much of the text it knows (``rungs.py``), not how sure it feels.
A rung that raises or dawdles again and again rests (``breaker.py``); the last one is always asked.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock, SystemClock
from failsoft.serving.fallback.breaker import BreakerPolicy, RungBreaker
from failsoft.serving.plain import as_plain
from failsoft.serving.seam import Rung, RungAnswer
from failsoft.serving.web.messages import Entity, Source
from failsoft.serving.web.problems import whole

_log = logging.getLogger(__name__)
_LOG_AGAIN_S = 10.0
"""A rung that fails at every text is written of this often."""
PROBES: tuple[str, ...] = ("", "play some music", "\ufffd", "\U0001f600 \u0000", "a" * 8_000)
"""What the last rung must answer before it may serve, where items are texts."""
RESERVED: frozenset[str] = frozenset({Source.PRIMARY, Source.CANARY, Source.PREVIOUS})
"""Models answer under these names; a rung has another one."""

Fits = Callable[[Any, str], None]


def _anything(_output: Any, _source: str) -> None:
    """Every output and source fits."""


@dataclass(frozen=True, kw_only=True)
class LadderPolicy:
    """How patient the ladder is with its rungs."""

    slow_s: float = 0.02
    """An answer that takes longer is a failure, though it is given: a tree model's p99 beside two busy neighbours is
    0.014 s, so a healthy one is not so slow several times in a row."""
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    """When a rung rests."""

    def __post_init__(self) -> None:
        """Refuse a limit that every answer is above, or none."""
        if not 0.0 < self.slow_s < float("inf"):
            raise ConfigError(f"slow_s is {self.slow_s}; a rung answers within some ms, use 0.02 or so")


class FallbackLadder:
    """Asks its rungs in order and returns the first answer.

    Args:
        rungs: from the best to the surest.
        policy: when a rung other than the last one rests.
        clock: measures answers and rests.
        rng: spreads the ends of rests.
        probes: what the last rung is asked now, before it may serve.
        fits: raises ValueError when the app can't make an answer of an output and its source.

    Raises:
        ConfigError: there are no rungs, two have one name or a model's, or the last one raised or had no answer that
            fits to one of the probes.
    """

    def __init__(
        self,
        rungs: Sequence[Rung],
        *,
        policy: LadderPolicy | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        probes: Sequence[Any] = PROBES,
        fits: Fits = _anything,
    ) -> None:
        if not rungs:
            raise ConfigError("a ladder without rungs answers nothing; give it at least the rules, or a ConstantRung")
        _refuse_names([rung.name for rung in rungs])
        self._policy, self._clock = policy or LadderPolicy(), clock or SystemClock()
        self._fits = fits
        self._last = rungs[-1]
        self._last_resort = _proven(self._last, probes, fits)
        chance = rng or random.Random()  # jitter must differ between gateways
        self._upper = [(rung, RungBreaker(self._policy.breaker, clock=self._clock, rng=chance)) for rung in rungs[:-1]]
        self._failures: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        self._logged_s = -math.inf
        self.last_reason: str | None = None
        """Why the ladder was asked last; None before the first time."""

    @property
    def failures(self) -> Mapping[str, int]:
        """How often each rung raised, by name."""
        return dict(self._failures)

    @property
    def answers(self) -> Mapping[str, int]:
        """How often each rung answered, by name."""
        return dict(self._answers)

    @property
    def resting(self) -> Mapping[str, str]:
        """Rungs that are not asked now, by name, and why. The last one never is among them."""
        return {rung.name: breaker.why for rung, breaker in self._upper if breaker.why is not None}

    def answer(self, item: Any, reason: str) -> RungAnswer:
        """Answer any item; never raises.

        Args:
            item: the cleaned text, or the instance.
            reason: why the model does not answer; kept as :attr:`last_reason`.
        """
        self.last_reason = reason
        for rung, breaker in self._upper:
            found = self._ask_unless_resting(rung, breaker, item)
            if found is not None:
                return self._given(rung.name, found)
        try:
            found = _checked(self._last.answer(item), self._last.name, self._fits)
        except Exception:  # noqa: BLE001 -- proven when it was made, and still anybody's code; the caller gets an answer
            self._failures[self._last.name] += 1
            found = None
        return self._given("last resort", self._last_resort) if found is None else self._given(self._last.name, found)

    def _given(self, by: str, answer: RungAnswer) -> RungAnswer:
        self._answers[by] += 1
        return answer

    def _ask_unless_resting(self, rung: Rung, breaker: RungBreaker, item: Any) -> RungAnswer | None:
        ticket = breaker.admit()
        if ticket is None:
            return None
        began_s = self._clock.monotonic_s()
        try:
            found = _checked(rung.answer(item), rung.name, self._fits)
        except Exception as error:  # noqa: BLE001 -- a rung may be anybody's code; the caller gets an answer whatever it does
            self._failures[rung.name] += 1
            breaker.failed(ticket, error.__class__.__name__)
            self._log_now_and_then(rung.name, error)
            return None
        took_s = self._clock.monotonic_s() - began_s
        if took_s <= self._policy.slow_s:
            breaker.succeeded(ticket)
        else:
            breaker.failed(ticket, f"an answer took {took_s * 1000:.0f} ms")
        return found

    def _log_now_and_then(self, rung: str, error: Exception) -> None:
        """Its words may quote what a caller wrote, and why a rung rests is shown to whoever reads the status."""
        now_s = self._clock.monotonic_s()
        if not now_s - self._logged_s < _LOG_AGAIN_S:
            self._logged_s = now_s
            _log.warning("the rung %s failed: %s", rung, whole(f"{error.__class__.__name__}: {error}"[:200]))


def _checked(answer: RungAnswer | None, name: str, fits: Fits) -> RungAnswer | None:
    """The answer, as JSON can carry it and under its rung's name.

    Raises:
        ValueError: it has no output, or a confidence that can be none, or does not fit the app's form of answers.
        TypeError: JSON can't carry it.
    """
    if answer is None:
        return None
    if not _sane(answer):
        raise ValueError(f"{answer!r:.200} is no answer")
    output = as_plain(answer.output)
    fits(output, answer.source or name)
    if output is answer.output and answer.source:
        return answer
    return replace(answer, output=output, source=answer.source or name)


def _sane(answer: Any) -> bool:
    """0, False and an empty list are answers; no text at all is none, nor is one in a model's name."""
    missing = answer.output is None or (isinstance(answer.output, str) and not answer.output)
    sure = answer.confidence is None or _is_share(answer.confidence)
    pieces = all(isinstance(entity, Entity) for entity in answer.entities)
    return not missing and sure and pieces and isinstance(answer.source, str) and answer.source not in RESERVED


def _is_share(value: Any) -> bool:
    """An array may compare like a number, but can't be sent as one."""
    return isinstance(value, float | int | np.floating | np.integer) and bool(0.0 <= value <= 1.0)


def _refuse_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or name in RESERVED:
            raise ConfigError(f"a rung is named {name!r}; give it a name of its own, none of {sorted(RESERVED)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"rungs are named {list(names)}; each needs a name of its own, callers read it as the source")


def _proven(last: Rung, probes: Sequence[Any], fits: Fits) -> RungAnswer:
    """The last rung's answer to nothing, kept for the day when it breaks after all."""
    answers = [_probe(last, item, fits) for item in probes]
    if not answers:
        raise ConfigError("there are no probes; ask the last rung at least one odd thing before it serves")
    return answers[0]


def _probe(last: Rung, item: Any, fits: Fits) -> RungAnswer:
    shown = repr(item[:20] if isinstance(item, str) else item)[:80]
    try:
        found = last.answer(item)
        answer = _checked(found, last.name, fits) if found is not None and _sane(found) else None
    except Exception as error:  # a user's rung may raise anything; it becomes one sentence
        raise ConfigError(
            f"the last rung ({last.name}) raised on {shown}: {error}; it must answer anything: end the ladder with a "
            "ConstantRung if it can't"
        ) from error
    if answer is None:
        raise ConfigError(
            f"the last rung ({last.name}) has no answer to {shown}; give it a default answer, or end the ladder with a "
            "ConstantRung"
        )
    return answer
