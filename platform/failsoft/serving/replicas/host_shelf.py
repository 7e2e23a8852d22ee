"""Releases kept whole in this node's memory, so that a model that gave up its place for another can come back quickly.

A copy lies in a folder of the memory file system, verified byte for byte when it is made and again when it is opened:
memory that was kept for weeks is not believed, nor is a copy of another release that once had the same name, nor what
another user put there. Copies are shared by the replicas of a node, survive a restart of one, and are not more than
those that the plan asks for. Where memory is short nothing is kept, which is said, and a release is read from storage
as ever.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from failsoft.artifacts.manifest import Manifest, digest_bytes, read_manifest
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError
from failsoft.health.clock import Clock
from failsoft.serving.pacing import LoadingPolicy, Pace

MEMORY = Path("/dev/shm")  # noqa: S108 -- the memory file system of Linux; what lies there is verified before it is used
_SPARE = 1.5
"""So many times a release's bytes must be free: the copy itself, and what the node needs to go on."""
_PIECE_BYTES = 512 * 1024
_COPYING = LoadingPolicy(pauses_at_most_s=60.0)
"""The process that copies is the one whose model answers, and nobody waits for a copy."""
_ABANDONED_S = 600.0
"""A copy that nobody has written to for so long is what a killed replica left; a live one grows all the time."""


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
        self._clock, self._free_bytes = clock, free_bytes
        self.refusals: dict[str, str] = {}
        """Releases that are not kept, and why."""

    def kept(self) -> list[str]:
        """Names of what is kept, whichever replica of this node put it there."""
        return [artifact.name for artifact in self._memory.listing()] if self._is_ours() else []

    def open(self, name: str) -> tuple[Artifact, bool]:
        """A release with every byte verified, and whether it came from memory. A damaged copy is thrown away.

        Raises:
            ArtifactError: storage has no whole one either.
        """
        if name in self.kept():
            try:
                return self._open_copy(name), True
            except (ArtifactError, OSError) as error:
                self.refusals[name] = f"its copy in memory was damaged and is gone: {error}"
                self._memory.remove(name)
        return self._store.open(name), False

    def _open_copy(self, name: str) -> Artifact:
        copy = self._memory.open(name)
        if self._is_of_another(copy.manifest, name):
            raise ArtifactError(f"it is of another release that had the name {name}")
        return copy

    def _is_of_another(self, copy: Manifest, name: str) -> bool:
        """Whether storage holds something else under this name, as after a home was made anew in the same place.

        Storage that can't be read says nothing: the copy is what there is to go on with.
        """
        try:
            return read_manifest(self._store.root / name, kind="release").digest != copy.digest
        except ArtifactError:
            return False

    def _is_ours(self) -> bool:
        """Whether the folder was made by this user: anyone may make one by this name in the memory file system."""
        try:
            found = self._memory.root.lstat()
        except OSError:
            return False
        return self._memory.root.is_dir() and not self._memory.root.is_symlink() and found.st_uid == os.geteuid()

    def keep(self, names: Iterable[str]) -> None:
        """Have just these in memory, as far as they fit; what can't be kept is named in :attr:`refusals`."""
        wanted = set(names)
        try:
            self._clear_out(wanted)
        except OSError as error:
            self.refusals = dict.fromkeys(wanted, f"memory can't be looked through: {error}")
            return
        missing = wanted - set(self.kept())
        self.refusals = {name: why for name, why in self.refusals.items() if name in missing}
        for name in sorted(missing):
            self._copy(name)

    def forget(self) -> None:
        """Give all of the memory back: the app has stopped on this node."""
        shutil.rmtree(self._memory.root, ignore_errors=True)

    def _clear_out(self, wanted: set[str]) -> None:
        """Give back what nobody wants, what is of another release by now, and what a killed replica began."""
        if not self._is_ours():
            return
        for copy in self._memory.listing():
            if copy.name not in wanted or self._is_of_another(copy.manifest, copy.name):
                self._memory.remove(copy.name)
        for unusable in self._memory.foreign():  # its key was retired, say: signed anew, it is copied anew
            self._memory.remove(unusable)
        for begun in self._memory.root.glob(".aside-*"):
            if self._clock.wall_s() - _last_written_s(begun) > _ABANDONED_S:
                shutil.rmtree(begun, ignore_errors=True)

    def _copy(self, name: str) -> None:
        """Room is looked at first: where it is short this is tried again and again, and must cost next to nothing."""
        try:
            manifest = read_manifest(self._store.root / name, kind="release")
            needed = _SPARE * sum(entry.size_bytes for entry in manifest.files.values())
            free = self._free_bytes(self._memory.root.parent)
            if not free >= needed:
                self.refusals[name] = f"{free} bytes of memory are free, {needed:.0f} are needed to keep it"
                return
            with suppress(FileExistsError):
                self._memory.root.mkdir(mode=0o700)
            if not self._is_ours():
                self.refusals[name] = f"{self._memory.root} belongs to another user; remove it to have releases kept"
                return
            beat = Pace(_COPYING, self._clock, spare=lambda: True, on_hurry=lambda _why: None).beat
            artifact = self._store.open(name, beat=beat)
            self._memory.adopt(name, _copier(artifact, beat), artifact.manifest, beat=beat)
        except (ArtifactError, OSError) as error:
            if name not in self.kept():  # else another replica was first
                self.refusals[name] = f"not kept in memory: {error}"
        else:
            self.refusals.pop(name, None)


def _copier(artifact: Artifact, beat: Callable[[], None]) -> Callable[[Path], None]:
    def write(aside: Path) -> None:
        for name in artifact.manifest.files:
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(artifact.path / name, target, beat)

    return write


def _copy_file(source: Path, target: Path, beat: Callable[[], None]) -> None:
    piece = memoryview(bytearray(_PIECE_BYTES))
    with source.open("rb", buffering=0) as given, target.open("wb") as taken:
        while count := given.readinto(piece):
            taken.write(piece[:count])
            beat()


def _last_written_s(folder: Path) -> float:
    """Wall time of the newest write below a folder; now, as it were, for one that is going away."""
    newest_s = float("inf")
    with suppress(OSError):  # it was finished, or removed, by another replica while it is walked through
        newest_s = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    return newest_s
