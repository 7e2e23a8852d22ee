"""What the mirror's process does for the training: copy a checkpoint, list what is there, fetch one. Knows no torch.

Orders and answers are plain JSON. ``do`` is ``copy``, ``list``, ``fetch``, ``withdraw``, or, where the ranks share no
storage and their writers bring the shards there themselves, ``tidy`` and ``part``; every answer has ``say``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from failsoft.artifacts.address import hushed
from failsoft.artifacts.manifest import MANIFEST_NAME, read_manifest
from failsoft.artifacts.remote_place import Place, place_on
from failsoft.artifacts.remote_store import RemoteArtifact, RemoteShelf, RemoteStore
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactMissingError, DamagedArtifactError
from failsoft.health.clock import Clock
from failsoft.training.checkpoints.inspection import is_healthy, only, position_of, size_bytes
from failsoft.training.checkpoints.judged import judged
from failsoft.training.checkpoints.mirror_filesystem import unpacked
from failsoft.training.checkpoints.mirror_order import Listed, MirrorOrder
from failsoft.training.checkpoints.retention import Shelved, from_plain, removable
from failsoft.training.checkpoints.withdrawn import withdrawn

Answer = dict[str, Any]
Beat = Callable[[], None]


class MirrorWork:
    """Carries out orders; remembers stores and what it saw unfinished.

    Args:
        place_of: from an address to a place.
        clock: for telling a folder that was left from one that is being written.
    """

    def __init__(self, place_of: Callable[[str], Place], clock: Clock) -> None:
        self._place_of = place_of
        self._clock = clock
        self._stores: dict[str, RemoteStore] = {}
        self._seen_s: dict[str, float] = {}
        self._work: Mapping[str, Callable[[MirrorOrder, Beat], Answer]] = {
            "copy": self._copy,
            "list": self._list,
            "fetch": self._fetch,
            "withdraw": self._withdraw,
            "tidy": self._tidy,
            "part": self._part,
        }

    def answer(self, plain: Mapping[str, Any], beat: Beat) -> Answer:
        """Do one thing and say how it went. Nothing is raised."""
        started_s = self._clock.monotonic_s()
        try:
            order = MirrorOrder.from_plain(plain)
            done = self._work[order.do](order, beat)
        except ArtifactMissingError as error:
            return {"say": "gone", "why": str(error)}
        except DamagedArtifactError as error:
            return {"say": "damaged", "why": str(error)}
        except Exception as error:  # noqa: BLE001 -- each file system raises what it likes, and the process must live on
            return {"say": "refused", "why": hushed(f"{type(error).__name__}: {error}", str(plain.get("url", "")))}
        return done | {"took_s": self._clock.monotonic_s() - started_s}

    def _copy(self, order: MirrorOrder, beat: Beat) -> Answer:
        store, remote = ArtifactStore(Path(order.root), self._clock, kind=order.kind), self._remote(order)
        self._take_back(order, remote)
        path = store.root / order.what
        try:
            artifact = Artifact(name=order.what, path=path, manifest=read_manifest(path))
            folder = remote.put(artifact, beat=beat)
            self._take_back(order, remote)
        except (DamagedArtifactError, FileNotFoundError) as error:
            if path.is_dir():
                raise
            raise ArtifactMissingError(f"{path} was removed here before its turn came") from error
        removed: list[str] = []
        unpruned = self._prune(order, remote, removed)
        size = size_bytes(artifact)
        return {"say": "copied", "folder": folder, "bytes": size, "removed": removed, "unpruned": unpruned}

    def _list(self, order: MirrorOrder, _beat: Beat) -> Answer:
        """Newest first; only what a run may go on from."""
        shelf, gone = self._remote(order).shelf(), withdrawn(Path(order.root))
        good = [one for one in _sound(shelf) if is_healthy(one.manifest) and not _is_in(gone, one)]
        good.sort(key=lambda one: (position_of(one.manifest), one.manifest.created_at_s), reverse=True)
        entries = [asdict(_listed(one)) for one in good]
        return {"say": "listed", "entries": entries, "foreign": " ".join(shelf.foreign.values())}

    def _fetch(self, order: MirrorOrder, beat: Beat) -> Answer:
        store, remote = ArtifactStore(Path(order.root), self._clock, kind=order.kind), self._remote(order)
        found = next((one for one in remote.shelf().there if one.folder == order.what), None)
        if found is None:
            raise ArtifactMissingError(f"{remote.place.shown} has no {order.what} any more")
        try:
            self._adopt(store, remote, found, beat)
        except DamagedArtifactError:  # on the way, perhaps
            try:
                self._adopt(store, remote, found, beat)
            except DamagedArtifactError as error:
                remote.mark_damaged(found.folder, str(error))
                raise
        return {"say": "fetched", "name": found.name, "bytes": sum(e.size_bytes for e in found.manifest.files.values())}

    @staticmethod
    def _adopt(store: ArtifactStore, remote: RemoteStore, found: RemoteArtifact, beat: Beat) -> None:
        store.adopt(found.name, lambda aside: remote.fetch(found, aside, beat=beat), found.manifest)

    def _part(self, order: MirrorOrder, beat: Beat) -> Answer:
        """Some files of a checkpoint there, verified, and its whole manifest beside them."""
        remote, into = self._remote(order), Path(order.into)
        whole = next((one for one in remote.shelf().there if one.folder == order.what), None)
        if whole is None:
            raise ArtifactMissingError(f"{remote.place.shown} has no {order.what} any more")
        part = replace(whole, manifest=only(whole.manifest, order.files))
        into.mkdir(parents=True, exist_ok=True)
        try:
            remote.fetch(part, into, beat=beat)
        except DamagedArtifactError:  # on the way, perhaps
            try:
                remote.fetch(part, into, beat=beat)
            except DamagedArtifactError as error:
                remote.mark_damaged(whole.folder, str(error))
                raise
        (into / MANIFEST_NAME).write_text(whole.manifest.to_json(), "utf-8")
        return {"say": "fetched", "name": whole.name, "bytes": sum(e.size_bytes for e in part.manifest.files.values())}

    def _tidy(self, order: MirrorOrder, _beat: Beat) -> Answer:
        """What follows a copy, of one that its writers brought there themselves."""
        remote = self._remote(order)
        self._take_back(order, remote)
        found = next((one for one in remote.shelf().there if one.name == order.what), None)
        if found is None:
            raise ArtifactMissingError(f"{remote.place.shown} has no {order.what} any more")
        removed: list[str] = []
        unpruned = self._prune(order, remote, removed)
        return {"say": "copied", "folder": found.folder, "bytes": 0, "removed": removed, "unpruned": unpruned}

    def _withdraw(self, order: MirrorOrder, _beat: Beat) -> Answer:
        self._take_back(order, self._remote(order))
        return {"say": "withdrawn"}

    def _remote(self, order: MirrorOrder) -> RemoteStore:
        if order.url not in self._stores:
            place = place_on(unpacked(order.filesystem), order.url) if order.filesystem else self._place_of(order.url)
            self._stores[order.url] = RemoteStore(place, kind=order.kind)
        return self._stores[order.url]

    @staticmethod
    def _take_back(order: MirrorOrder, remote: RemoteStore) -> None:
        """Not the last one there that a run could go on from at all: that goes with the copy of another.

        A machine that has nothing but the remote store would else begin with batch 0, which loses more than the undone
        stretch is worth.
        """
        gone = withdrawn(Path(order.root))
        if not gone:
            return
        shelf = remote.shelf()
        good = [one for one in _sound(shelf) if is_healthy(one.manifest)]
        spared = good[-1:] if all(_is_in(gone, one) for one in good) else []
        for one in shelf.there:
            if _is_in(gone, one) and one not in spared:
                remote.remove(one.folder)

    def _prune(self, order: MirrorOrder, remote: RemoteStore, removed: list[str]) -> str:
        """Returns why not all could be removed. The new copy stands whatever happens here."""
        try:
            shelf = remote.shelf()
            later = judged(Path(order.root))
            known = [Shelved.of(one.folder, one.manifest, later) for one in _sound(shelf)]
            for folder in [*removable(known, from_plain(order.rules)), *self._left(shelf, order.orphan_after_s)]:
                remote.remove(folder)
                removed.append(folder)
        except Exception as error:  # noqa: BLE001 -- as above
            return hushed(f"{type(error).__name__}: {error}", order.url)
        return ""

    def _left(self, shelf: RemoteShelf, after_s: float) -> list[str]:
        """Folders that were seen unfinished for so long by this process: no clock of another machine is asked."""
        now_s = self._clock.monotonic_s()
        self._seen_s = {folder: self._seen_s.get(folder, now_s) for folder in shelf.unfinished}
        return [folder for folder, seen_s in self._seen_s.items() if now_s - seen_s >= after_s]


def _is_in(gone: frozenset[str], one: RemoteArtifact) -> bool:
    return one.manifest.digest in gone or one.folder in gone


def _sound(shelf: RemoteShelf) -> list[RemoteArtifact]:
    return [one for one in shelf.there if one.damage is None]


def _listed(one: RemoteArtifact) -> Listed:
    meta = one.manifest.meta
    return Listed(
        folder=one.folder,
        name=one.name,
        digest=one.manifest.digest,
        position=int(position_of(one.manifest)),
        step=int(meta.get("step", 0)),
    )
