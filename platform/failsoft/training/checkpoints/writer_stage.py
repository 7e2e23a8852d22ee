"""The stages of a writer, and the moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Stage(StrEnum):
    """What the writer does, as far as this side knows."""

    ABSENT = "absent"
    READY = "ready"
    WRITING = "writing"


MOVES: Mapping[Stage, frozenset[Stage]] = {
    Stage.ABSENT: frozenset({Stage.READY}),
    Stage.READY: frozenset({Stage.WRITING, Stage.ABSENT}),
    Stage.WRITING: frozenset({Stage.READY, Stage.ABSENT}),
}
