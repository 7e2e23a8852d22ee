"""The fallback ladder: rungs from the best to the surest. The last rung can't fail; this is checked before it serves.

A rung says None when it would only guess. Its own confidence is no proof: a tree model is 0.99997 sure of an input
without a single known feature, so a rung judges how much of the text it knows (``rungs.py``), not how sure it feels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from failsoft.errors import ConfigError
from failsoft.serving.messages import Entity, Source

PROBES: tuple[str, ...] = ("", "play some music", "\ufffd", "\U0001f600 \u0000", "a" * 8_000)
"""What the last rung must answer before it may serve."""


@dataclass(frozen=True, kw_only=True)
class RungAnswer:
    """What a rung says about one clean text."""

    source: Source
    intent: str
    confidence: float | None = None
    """None when the rung has no honest one."""
    entities: tuple[Entity, ...] = ()
    """Spans refer to the text that the rung was given."""


class Rung(Protocol):
    """One fallback. Synchronous, quick, in this process."""

    @property
    def name(self) -> Source:
        """Who answers."""
        ...

    def answer(self, text: str) -> RungAnswer | None:
        """Answer a clean text; None when the next rung should. May raise; only the last rung may not."""
        ...


class FallbackLadder:
    """Asks its rungs in order and returns the first answer.

    Raises:
        ConfigError: there are no rungs, or the last one raised or had no answer to one of :data:`PROBES`.
    """

    def __init__(self, rungs: Sequence[Rung]) -> None:
        if not rungs:
            raise ConfigError("a ladder without rungs answers nothing; give it at least the rules")
        self._rungs = tuple(rungs)
        self._last_resort = _proven(self._rungs[-1])
        self._failures: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
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

    def answer(self, text: str, reason: str) -> RungAnswer:
        """Answer any text; never raises.

        Args:
            text: the cleaned text.
            reason: why the model does not answer; kept as :attr:`last_reason`.
        """
        self.last_reason = reason
        for rung in self._rungs:
            found = self._ask(rung, text)
            if found is not None:
                self._answers[rung.name] += 1
                return found
        self._answers["last resort"] += 1
        return self._last_resort

    def _ask(self, rung: Rung, text: str) -> RungAnswer | None:
        try:
            found = rung.answer(text)
        except Exception:  # noqa: BLE001 -- a rung may be anybody's code; the caller gets an answer whatever it does
            self._failures[rung.name] += 1
            return None
        if found is not None and not _sane(found):
            self._failures[rung.name] += 1
            return None
        return found


def _sane(answer: RungAnswer) -> bool:
    return bool(answer.intent) and (answer.confidence is None or 0.0 <= answer.confidence <= 1.0)


def _proven(last: Rung) -> RungAnswer:
    """The last rung's answer to nothing, kept for the day when it breaks after all."""
    answers = [_probe(last, text) for text in PROBES]
    return answers[0]


def _probe(last: Rung, text: str) -> RungAnswer:
    try:
        answer = last.answer(text)
    except Exception as error:  # a user's rung may raise anything; it becomes one sentence
        raise ConfigError(
            f"the last rung ({last.name}) raised on {text[:20]!r}: {error}; it must answer any text"
        ) from error
    if answer is None or not _sane(answer):
        raise ConfigError(
            f"the last rung ({last.name}) has no answer to {text[:20]!r}; give the rules a default answer"
        )
    return answer
