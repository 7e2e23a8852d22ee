"""Who of a group that stands still is probably to blame. Judgement only, by what each rank said of itself.

A hang is seen first by whoever's patience ends first, and that is as often a victim, who waits in a collective, as the
one who keeps the others waiting. So nobody is judged by who gave the alarm, only by where the ranks stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import FrameType

from failsoft.health.json_object import json_object

_COLLECTIVES = ("torch.distributed.", "torch.nn.parallel.distributed.")
_BACKWARD = "torch.autograd."


class Standing(StrEnum):
    """What a training thread is doing, by the innermost of its calls."""

    COLLECTIVE = "in a collective"
    """It waits for its peers."""
    BACKWARD = "in a backward pass"
    """DDP meets its peers in there, outside of Python: it may wait for them, or stand by itself."""
    ELSEWHERE = "not in a collective"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What one rank says of itself."""

    rank: int
    phase: str
    position: int
    standing: Standing
    where: str
    """The innermost call, as ``file:line function``."""

    def in_words(self) -> str:
        """For people."""
        where = self.where or "no call"
        return f"rank {self.rank}: {self.phase} at batch {self.position}, {self.standing}, {where}"

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """Whom to look at first."""

    ranks: tuple[int, ...]
    """Probably to blame; none where the statements do not tell."""
    why: str


def statement_of(text: str) -> Statement | None:
    """What was written by :meth:`Statement.to_json`; None for anything else, half a file for one."""
    body = json_object(text)
    try:
        return None if body is None else Statement(**body | {"standing": Standing(body["standing"])})
    except (KeyError, TypeError, ValueError):
        return None


def standing_of(frame: FrameType | None) -> Standing:
    """By the innermost call alone: under FSDP, a forward pass has frames of torch.distributed around it."""
    module = "" if frame is None else f"{frame.f_globals.get('__name__', '')}."
    if module.startswith(_COLLECTIVES):
        return Standing.COLLECTIVE
    return Standing.BACKWARD if module.startswith(_BACKWARD) else Standing.ELSEWHERE


def suspect(statements: Mapping[int, Statement], world: int) -> Suspicion:
    """Judge a group of ``world`` ranks, some of which may have said nothing."""
    silent = tuple(rank for rank in range(world) if rank not in statements)
    if silent:
        return Suspicion(ranks=silent, why="said nothing: the process, Python in it, or its node stands still")
    by_standing = {
        standing: tuple(rank for rank, said in sorted(statements.items()) if said.standing is standing)
        for standing in Standing
    }
    elsewhere, backward = by_standing[Standing.ELSEWHERE], by_standing[Standing.BACKWARD]
    if elsewhere and len(elsewhere) < world:
        return Suspicion(ranks=elsewhere, why="not in a collective, while the others may wait in one")
    if backward and len(backward) + len(elsewhere) < world:
        return Suspicion(ranks=backward, why="in a backward pass, while the others wait in a collective")
    if elsewhere:
        return Suspicion(ranks=(), why="none is in a collective: a device or a disk that they share may stand still")
    if backward:
        return Suspicion(ranks=(), why="all are in a backward pass: the network, or a device of any of them")
    return Suspicion(ranks=(), why="all wait in collectives: the network, or ranks that call different collectives")
