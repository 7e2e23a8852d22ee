"""Who answered, as the gateways write it down: of each span what the chart and the incidents need.

A gateway answers users while somebody looks at its console, so this reads each line once, never more than
:data:`READ_BYTES` at a time, and holds numbers instead of lines.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, is_finite, json_object
from failsoft.health.ledger_files import Position, Tail, last_bytes
from failsoft.incidents.onset import FURTHEST_S, Piece, onset_s
from failsoft.serving.watching.answer_history import NONE, SPAN_S, VERSION

READ_BYTES = 4 * 1024 * 1024
"""Of what has come since the last look; what lies further back is passed over, and said to be."""
HELD = 20_000
"""Spans that are counted: a day of one gateway."""
_DRAWN, _DRAWN_S = 4096, 900.0
_PIECE, _REST_S = 50, 0.001
_FLAWS = ("weak", "late", "error", "shed", "bad_input")
"""Why an answer is not the model's, as far as incidents are told apart by it."""


class _Counted(NamedTuple):
    """A span in numbers."""

    at_s: float
    """When it ended."""
    took_s: float
    answers: int
    replaced: int
    flaws: tuple[int, ...]
    """In the order of the names above."""


class Follower:
    """The new lines of a ledger, with a rest after each piece: a parser that never rests makes live answers late."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._at = Position()
        self.has_passed_over = False
        """Whether there were lines, at the last look, that nobody read."""

    def new_lines(self) -> Iterator[bytes]:
        """Those since the last look, or the newest of them. Holds no file open afterwards."""
        newest = last_bytes(self._path, READ_BYTES)
        self.has_passed_over = (newest.file, newest.bytes) > (self._at.file, self._at.bytes) and newest != Position()
        tail = Tail(self._path, after=newest if self.has_passed_over else self._at)
        try:
            lines = tail.new_lines()
        finally:
            tail.close()
            self._at = tail.position
        for number, line in enumerate(lines, start=1):
            yield line
            if number % _PIECE == 0:
                self._clock.sleep_s(_REST_S)


class AnswersSeen:
    """What is held of them.

    Args:
        path: of the history that all gateways write.
        clock: for its rests.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._lines = Follower(path, clock)
        self._counts: deque[_Counted] = deque(maxlen=HELD)
        self._recent: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_DRAWN)
        self._clock = clock
        self._is_cut = False

    def read(self) -> None:
        """What has come. Blocks on the disk."""
        for number, body in enumerate(map(json_object, self._lines.new_lines())):
            if number == 0 and self._lines.has_passed_over:
                self._counts.clear()
                self._is_cut = True
            if _is_span(body):
                self._hold(float(body["at_s"]), body)

    def _hold(self, at_s: float, body: Mapping[str, Any]) -> None:
        whys = Counter[str]()
        for why in body["answers"].values():
            whys.update(why)
        answers = whys.total()
        self._is_cut = self._is_cut or len(self._counts) == HELD
        flaws = tuple(whys[flaw] for flaw in _FLAWS)
        self._counts.append(_Counted(at_s, _took_s(body), answers, answers - whys[NONE], flaws))
        if (
            at_s >= self._clock.wall_s() - _DRAWN_S
        ):  # of a day's spans no more than numbers: Python looks through the rest
            self._recent.append((at_s, {"at_s": at_s, "span_s": _took_s(body), "answers": body["answers"]}))

    def since(self, began_s: float) -> list[dict[str, Any]]:
        """Those that ended at this wall time or later, of the last quarter of an hour, as the chart takes them."""
        return [span for at_s, span in self._recent if at_s >= began_s]

    def replaced(self, began_s: float, until_s: float, *, why: Collection[str] | None = None) -> str | None:
        """How many of how many answers in this time were not the model's in service; None: none of them was read.

        That is not to say that nobody was hit: gateways write a little later, and a clock may have been set back.
        ``why``: only those that were not its for one of these reasons.
        """
        answers = replaced = 0
        for one in self._within(began_s, until_s):
            answers += one.answers
            replaced += one.replaced if why is None else sum(_of(one, flaw) for flaw in why)
        share = f" ({replaced / answers:.0%})" if answers else ""
        said = f"{replaced:,} of {answers:,}{share}"
        is_whole = not self._is_cut or (bool(self._counts) and self._counts[0].at_s <= began_s)
        return None if not answers else said if is_whole else f"at least {said}"

    def onset_s(self, began_s: float, flaws: Collection[str]) -> float:
        """From when on answers were hit in one of these ways, up to this time; see :mod:`failsoft.incidents.onset`."""
        near = (one for one in self._counts if one.at_s >= began_s - FURTHEST_S)
        pieces = (
            Piece(one.at_s - one.took_s, one.at_s, one.answers, sum(_of(one, flaw) for flaw in flaws)) for one in near
        )
        return onset_s(pieces, began_s)

    def flaws(self, began_s: float, until_s: float) -> dict[str, int]:
        """Of the answers in this time, how many had each flaw that incidents are told apart by."""
        within = list(self._within(began_s, until_s))
        return {flaw: sum(_of(one, flaw) for one in within) for flaw in _FLAWS}

    def _within(self, began_s: float, until_s: float) -> Iterator[_Counted]:
        return (one for one in self._counts if began_s <= one.at_s <= until_s)


def _of(span: _Counted, flaw: str) -> int:
    return span.flaws[_FLAWS.index(flaw)]


def _took_s(body: Mapping[str, Any]) -> float:
    took_s = body.get("span_s")
    return float(took_s) if is_finite(took_s) else SPAN_S


def _is_span(body: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Whether a line of the history holds what is drawn and counted."""
    if body is None or body.get("v") != VERSION or not is_finite(body.get("at_s")):
        return False
    answers = body.get("answers")
    return isinstance(answers, dict) and all(
        isinstance(whys, dict) and all(is_count(count) for count in whys.values()) for whys in answers.values()
    )
