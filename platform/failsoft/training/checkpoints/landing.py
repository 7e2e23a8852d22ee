"""Where the shards of one checkpoint meet on a remote store. Plain data; loads no library of any store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Landing:
    """A folder that was drawn for one checkpoint, the same on all ranks."""

    url: str
    """The remote place of the run's checkpoints."""
    folder: str
    """``<name>.<16 hex digits>``."""
    filesystem: str = ""
    """As in :class:`failsoft.training.checkpoints.mirror_order.MirrorOrder`; may hold secrets: never shown."""

    @property
    def digits(self) -> str:
        """What the manifest repeats."""
        return self.folder.rpartition(".")[2]
