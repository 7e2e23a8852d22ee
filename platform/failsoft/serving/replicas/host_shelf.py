"""Releases kept whole in this node's memory, so that a model that gave up its place for another can come back quickly.

A copy lies in a folder of the memory file system, verified byte for byte when it is made and again when it is opened:
memory that was kept for weeks is not believed. Copies are shared by the replicas of a node, survive a restart of one,
and are not more than those that the plan asks for. Where memory is short nothing is kept, which is said, and a release
is read from storage as ever.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from failsoft.artifacts.manifest import digest_bytes
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError
from failsoft.health.clock import Clock

MEMORY = Path("/dev/shm")  # noqa: S108 -- the memory file system of Linux; what lies there is verified before it is used
_SPARE = 1.5
"""So many times a release's bytes must be free: the copy itself, and what the node needs to go on."""


def memory_folder(home: Path, root: Path = MEMORY) -> Path:
    """Where the releases of a home are kept in this node's memory."""
    return root / f"failsoft-releases-{digest_bytes(str(home).encode())[-12:]}"


class HostShelf:
    """Keeps some releases of a store in memory. Every method may block: call it in a thread.

    Args:
        store: where releases are published.
        folder: in the memory file system; made when first needed.
        clock: of the store in memory.
        free_bytes: room that is left there; None or an OSError: there is no such file system.
    """

    def __init__(
        self,
        store: ArtifactStore,
        folder: Path,
        clock: Clock,
        *,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._store = store
        self._memory = ArtifactStore(folder, clock, kind=store.kind)
        self._free_bytes = free_bytes
        self.refusals: dict[str, str] = {}
        """Releases that are not kept, and why."""

    def kept(self) -> list[str]:
        """Names of what is kept, whichever replica of this node put it there."""
        return [artifact.name for artifact in self._memory.listing()]

    def open(self, name: str) -> tuple[Artifact, bool]:
        """A release with every byte verified, and whether it came from memory. A damaged copy is thrown away.

        Raises:
            ArtifactError: storage has no whole one either.
        """
        if name in self.kept():
            try:
                return self._memory.open(name), True
            except ArtifactError as error:
                self.refusals[name] = f"its copy in memory was damaged and is gone: {error}"
                self._memory.remove(name)
        return self._store.open(name), False

    def keep(self, names: Iterable[str]) -> None:
        """Have just these in memory, as far as they fit; what can't be kept is named in :attr:`refusals`."""
        wanted = set(names)
        kept = set(self.kept())
        for name in kept - wanted:
            self._memory.remove(name)
        self.refusals = {name: why for name, why in self.refusals.items() if name in wanted}
        for name in sorted(wanted - kept):
            self._copy(name)

    def forget(self) -> None:
        """Give all of the memory back: the app has stopped on this node."""
        shutil.rmtree(self._memory.root, ignore_errors=True)

    def _copy(self, name: str) -> None:
        try:
            artifact = self._store.open(name)
            needed = _SPARE * sum(entry.size_bytes for entry in artifact.manifest.files.values())
            free = self._free_bytes(self._memory.root.parent)
            if not free >= needed:
                self.refusals[name] = f"{free} bytes of memory are free, {needed:.0f} are needed to keep it"
                return
            self._memory.adopt(name, _copier(artifact), artifact.manifest)
        except (ArtifactError, OSError) as error:
            if name not in self.kept():  # else another replica was first
                self.refusals[name] = f"not kept in memory: {error}"
        else:
            self.refusals.pop(name, None)


def _copier(artifact: Artifact) -> Callable[[Path], None]:
    def write(aside: Path) -> None:
        for name in artifact.manifest.files:
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact.path / name, target)

    return write
