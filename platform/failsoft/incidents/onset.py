"""When the answers went bad, which is before anybody noticed: evidence takes time, and users saw those answers, too.

By wall times of the gateways' own spans, for people: nothing acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from failsoft.incidents.finding import Incident, Kind

BAD_SHARE = 0.05
"""A span with so large a part of its answers hit is a bad one; the alerts' own limit."""
GAP_S = 15.0
"""Bad spans that are further apart belong to different troubles: three spans of a gateway."""
FURTHEST_S = 600.0
"""So long before it was noticed nothing is looked for."""
_FLAWS = frozenset({"weak", "late", "error"})
_OF_KIND: Mapping[Kind, Collection[str]] = {
    Kind.FALL: _FLAWS,
    Kind.OVERLOAD: frozenset({"shed"}),
    Kind.BAD_INPUT: frozenset({"bad_input"}),
}


class Piece(NamedTuple):
    """A span of one gateway."""

    start_s: float
    end_s: float
    answers: int
    hit: int


def flaws_of(incident: Incident) -> Collection[str]:
    """Why answers are not the model's, as far as that is what the incident is about."""
    return _OF_KIND[incident.kind]


def onset_s(pieces: Iterable[Piece], began_s: float) -> float:
    """Wall time from which on answers were hit: the start of the first bad span that leads up to ``began_s``.

    That itself where none does.
    """
    first_s = began_s
    bad = (one for one in pieces if one.answers and one.hit >= BAD_SHARE * one.answers)
    for one in sorted(bad, key=lambda piece: piece.end_s, reverse=True):
        if began_s - FURTHEST_S <= one.start_s < first_s <= one.end_s + GAP_S:
            first_s = one.start_s
    return first_s
