"""Who else is told of published checkpoints (Ray, a tracker), and of what becomes of their remote copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from failsoft.training.checkpoints.writer_news import News, NewsKind

Deliver = Callable[[Path | None, Mapping[str, float]], None]
"""Told of each published checkpoint: on all ranks together; its folder on rank 0, unless it lies remotely alone."""


@runtime_checkable
class FollowsCopies(Protocol):
    """One that also wants to know, on rank 0, when a checkpoint's remote copy is there. Neither call waits."""

    def copy_begun(self, name: str) -> None:
        """A checkpoint of this name is published, and a copy of it is to be made."""
        ...

    def copy_over(self, name: str) -> None:
        """It is there, or will not be."""
        ...


def deliver_here(_published: Path | None, _metrics: Mapping[str, float]) -> None:
    """Tell nobody."""


def tell_of_copy(deliver: object, news: News) -> None:
    """Pass on what happened to a copy, if who is told of checkpoints follows them."""
    if isinstance(deliver, FollowsCopies):
        if news.kind is NewsKind.PUBLISHED:
            deliver.copy_begun(news.ticket.name)
        elif news.kind in {NewsKind.MIRRORED, NewsKind.MIRROR_DROPPED}:
            deliver.copy_over(news.ticket.name)
