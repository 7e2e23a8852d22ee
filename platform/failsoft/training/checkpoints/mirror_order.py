"""What the training may ask of the process that copies, in plain data. Loads no library of any store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class MirrorOrder:
    """One thing to do."""

    do: str
    url: str
    """The remote place of this run's checkpoints."""
    root: str
    """The local store's folder."""
    kind: str
    what: str = ""
    """``copy``, ``tidy``: the checkpoint's name here; ``fetch``, ``part``: its folder there."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """Rules of keeping there, as JSON."""
    orphan_after_s: float = 3600.0
    files: tuple[str, ...] = ()
    """``part``: these files alone."""
    into: str = ""
    """``part``: the folder that they are brought to."""
    filesystem: str = ""
    """A pickled file system that ``url`` is a path on; empty: ``url`` is an address. May hold secrets: never shown."""

    def to_plain(self) -> dict[str, Any]:
        """Plain data that :meth:`from_plain` reads back, also after a way through JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> MirrorOrder:
        """An order from plain data."""
        return cls(**(dict(plain) | {"rules": tuple(plain["rules"]), "files": tuple(plain["files"])}))


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One checkpoint that is on the remote store, in the words of its manifest."""

    folder: str
    name: str
    digest: str
    position: int
    step: int
