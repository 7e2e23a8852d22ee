"""Waves that are not the model's fault, written down with their beginning and their end.

A wave of calls that are shed, or of items that nobody could read, trips nothing, so no plan tells of it. Here the
monitor's warnings become events: ``overload_began``, ``overload_goes_on``, ``overload_over``, and the same for
``bad_input``.
"""

from __future__ import annotations

from collections.abc import Mapping

EVENTS = {"shed": "overload", "bad_input": "bad_input"}
"""Signal of the panel → how its events are called."""
QUIET_LOOKS = 15
"""A wave is over after so many looks in a row without it, or without a single answer: half a minute."""
TELL_AGAIN_LOOKS = 30
"""While it lasts it is told again, about once a minute: a gateway that died in it says nothing any more."""


class Waves:
    """Of one gateway; looked at every two seconds or so."""

    def __init__(self) -> None:
        self._lasts: dict[str, int] = {}
        self._quiet: dict[str, int] = {}
        self._answers = 0

    def news(self, warnings: Mapping[str, str], answers: int) -> list[tuple[str, str]]:
        """Kind and words of each event since the last look.

        Args:
            warnings: of the panel: signal → why.
            answers: counted since the gateway began; a window that nobody fills any more tells of the past.
        """
        is_idle, self._answers = answers == self._answers, answers
        found: list[tuple[str, str]] = []
        for signal, name in EVENTS.items():
            why = None if is_idle else warnings.get(signal)
            found += [(f"{name}_{what}", words) for what, words in self._look(signal, why)]
        return found

    def _look(self, signal: str, why: str | None) -> list[tuple[str, str]]:
        if signal not in self._lasts:
            if why is None:
                return []
            self._lasts[signal], self._quiet[signal] = 0, 0
            return [("began", why)]
        self._lasts[signal] += 1
        self._quiet[signal] = 0 if why is not None else self._quiet[signal] + 1
        if self._quiet[signal] >= QUIET_LOOKS:
            del self._lasts[signal]
            return [("over", "no more of it for half a minute")]
        if self._lasts[signal] % TELL_AGAIN_LOOKS == 0:
            return [("goes_on", why or "less of it now")]
        return []
