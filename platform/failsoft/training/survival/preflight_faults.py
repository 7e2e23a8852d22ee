"""Planned faults of a node, for drills and tests: (kind, node) as data, struck inside the probe that would meet it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from failsoft.errors import ConfigError
from failsoft.training.survival.preflight_host import Write, write_through

if TYPE_CHECKING:
    from failsoft.training.survival.preflight_compute import Flaw


class NodeFaultKind(StrEnum):
    """What is wrong with the node."""

    WRONG_PRODUCT = "wrong_product"
    """One bit of a matrix product is flipped."""
    READ_ONLY_DISK = "read_only_disk"
    FULL_DISK = "full_disk"
    NO_ANSWER = "no_answer"
    """Its probes never come back."""
    WRONG_SUM = "wrong_sum"
    """Its part of an all-reduce arrives as another number."""
    AWAY_FROM_MEETING = "away_from_meeting"
    """Its own probes are fine, and it never comes to an all-reduce."""


@dataclass(frozen=True, kw_only=True)
class NodeFault:
    """One planned fault of one node."""

    kind: NodeFaultKind
    node: str
    """Beginning of Ray's id of it."""
    since: Path | None = None
    """The fault is there once this file is; None: from the beginning."""
    mended: Path | None = None
    """The fault is over when this file is there; None: never."""

    def __post_init__(self) -> None:
        """Refuse a fault that would strike all nodes."""
        if not self.node:
            raise ConfigError("node is empty, which is the beginning of every node's id; name one")

    def strikes(self, node: str) -> bool:
        """Whether this node has it now."""
        begun, over = self.since is None or self.since.exists(), self.mended is not None and self.mended.exists()
        return node.startswith(self.node) and begun and not over


@dataclass(frozen=True, kw_only=True)
class Struck:
    """The faults of one node, as its probes meet them. Without any: what production uses."""

    kinds: frozenset[NodeFaultKind] = frozenset()

    @property
    def flaw(self) -> Flaw | None:
        """What becomes of a right product."""
        if NodeFaultKind.WRONG_PRODUCT not in self.kinds:
            return None
        from failsoft.training.survival.preflight_compute import flip_a_bit  # noqa: PLC0415 -- a config loads no numpy

        return flip_a_bit

    @property
    def write(self) -> Write:
        """What becomes of a file."""
        refusals = {NodeFaultKind.READ_ONLY_DISK: errno.EROFS, NodeFaultKind.FULL_DISK: errno.ENOSPC}
        reason = next((number for kind, number in refusals.items() if kind in self.kinds), None)
        return write_through if reason is None else _refusing(reason)

    @property
    def part(self) -> float | None:
        """What it puts into an all-reduce instead of its own number."""
        return 1e6 if NodeFaultKind.WRONG_SUM in self.kinds else None

    def stand_still(self, *kinds: NodeFaultKind) -> None:
        """For ever, when the node has one of these faults; only the end of the process ends it."""
        if self.kinds & set(kinds):
            threading.Event().wait()


def faults_of(node: str, faults: Iterable[NodeFault]) -> Struck:
    """Those that strike this node now."""
    return Struck(kinds=frozenset(fault.kind for fault in faults if fault.strikes(node)))


def _refusing(number: int) -> Write:
    def write(path: Path, content: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return write
