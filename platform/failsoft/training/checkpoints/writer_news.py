"""What became of checkpoints that were handed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from failsoft.training.checkpoints.shard_layout import ShardPlace


class NewsKind(StrEnum):
    """What became of a checkpoint, in the ledger's words."""

    PUBLISHED = "checkpoint_published"
    FAILED = "checkpoint_failed"
    REPLACED = "checkpoint_replaced"
    LOST = "checkpoint_writer_lost"
    MIRRORED = "checkpoint_mirrored"
    """A copy is on the remote store, too."""
    MIRROR_FAILED = "checkpoint_mirror_failed"
    MIRROR_DROPPED = "checkpoint_mirror_dropped"
    """A newer one took its turn, or it was removed here before its turn came."""


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """What a checkpoint is about."""

    name: str
    position: int
    step: int
    meta: Mapping[str, Any]
    """For the manifest, without ``parent``, which is settled when it is written."""
    shard: ShardPlace | None = None
    """Which part of it this rank writes; None: all of it."""


@dataclass(frozen=True, kw_only=True)
class News:
    """Something happened to a checkpoint since one looked last."""

    kind: NewsKind
    why: str
    ticket: Ticket
    data: Mapping[str, Any] = field(default_factory=dict)
