"""Names that somebody else makes up, counted without end to them: a rung may name another source for each answer."""

from __future__ import annotations

from collections.abc import Collection

from failsoft.health.metric import OTHER

MOST = 64
"""As many as metrics tell apart."""


def one_of_few(name: str, known: Collection[str], *, most: int = MOST) -> str:
    """The name, while it is known or there are few; else one for all others."""
    return name if name in known or len(known) < most else OTHER
