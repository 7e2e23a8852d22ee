"""Which checkpoint a run goes on from: the newest whole and healthy one, here or on the remote store, for all ranks.

Rank 0 chooses; a remote one that is newer is fetched first. Of a sharded one each rank verifies its share of the files,
and what any of them finds damaged is put aside for all. Every other rank must then hold the very same bytes: from
the storage that it shares, or from a copy of its own that it fetches. Either all ranks get it, or all of them raise
the same error, which names the hosts that have not. Whoever waits for a long fetch meets the others now and then, so
that no collective runs out of time.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.checkpoints.inspection import is_healthy, is_in_shards, position_of
from failsoft.training.checkpoints.mirror import Mirror, listing_of
from failsoft.training.checkpoints.mirror_courier import Request
from failsoft.training.checkpoints.mirror_order import Listed
from failsoft.training.checkpoints.remote_note import note_remote
from failsoft.training.checkpoints.shard_verifying import damage_in_shards
from failsoft.training.checkpoints.shard_writing import sweep_left
from failsoft.training.checkpoints.writer_news import Ticket
from failsoft.training.checkpoints.writer_succession import until_free
from failsoft.training.ranks import Ranks, any_rank, from_rank_zero

SUCCESSION_S = 30.0
"""How long a new attempt lets the writer of the one before finish: it may be about to publish what else is repeated."""
MEET_EVERY_S = 15.0


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """What rank 0 tells the others."""

    name: str = ""
    """Of the checkpoint; empty: there is none."""
    digest: str = ""
    """Of its manifest, so that nobody takes another of the same name."""
    folder: str = ""
    """Where it lies on the remote store; empty: not there, as far as is known."""
    foreign: str = ""
    """What lies there in a newer format."""
    failure: str = ""
    """Why there is no answer."""


@dataclass(kw_only=True)
class _Search:
    """What rank 0 has found so far."""

    artifact: Artifact | None = None
    remote: list[Listed] = field(default_factory=list)
    foreign: str = ""
    unreadable: str = ""
    """Why the remote store told nothing, or did not give what it has."""
    failure: str = ""

    @property
    def position(self) -> float:
        return -1.0 if self.artifact is None else position_of(self.artifact.manifest)

    def choice(self) -> _Choice:
        if self.artifact is None:
            return _Choice(foreign=self.foreign, failure=self.failure)
        digest = self.artifact.manifest.digest
        folder = next((one.folder for one in self.remote if one.digest == digest), "")
        return _Choice(
            name=self.artifact.name, digest=digest, folder=folder, foreign=self.foreign, failure=self.failure
        )


@dataclass(kw_only=True)
class Finder:
    """One rank's part in the search."""

    store: ArtifactStore
    ranks: Ranks
    ledger: Ledger
    clock: Clock
    mirror: Mirror | None = None
    """On all ranks, or on none."""
    uncopied: bool = field(default=False, init=False)
    """The start of the run found one that is not known to be on the remote store."""
    _damaged: set[str] = field(default_factory=set, init=False)

    def newest(self, before_step: int | None) -> Artifact | None:
        """The same checkpoint on all ranks, verified on each; None when there is none. All ranks call it together.

        Args:
            before_step: only consider checkpoints with fewer applied updates; then the remote store is only asked when
                none is here.

        Raises:
            IncompatibleArtifactError: a newer failsoft has written here; on all ranks.
            ArtifactMissingError: some rank can't get what rank 0 chose; on all ranks, naming hosts, paths and the mend.
            OSError: the storage can't be read just now; on all ranks.
        """
        while True:
            search = self._here(before_step) if self._leads else _Search()
            if self.mirror is not None:
                self._there(search, self.mirror, before_step)
            choice = self._told(search.choice())
            if choice.failure:
                raise OSError(choice.failure)
            if choice.foreign and before_step is None:  # going on from an older one would repeat what is done already
                raise IncompatibleArtifactError(choice.foreign)
            self.uncopied = bool(choice.name) and not choice.folder and before_step is None
            found = self._everywhere(choice, search.artifact) if choice.name else None
            damage = "" if found is None else damage_in_shards(found, self.ranks)
            if not damage:
                return found
            if self._leads:  # with the next round it is out of the way, also where the disk refuses to move it
                self._damaged.add(choice.digest)
                self.store.put_aside(choice.name, damage, on_damage=self._tell_damage)

    def catch_up(self, artifact: Artifact | None) -> None:
        """Have it copied if the remote store is not known to have it, whatever the run goes on from."""
        if artifact is not None and self.uncopied and self.mirror is not None and self._leads:
            meta, position = artifact.manifest.meta, int(position_of(artifact.manifest))
            self.mirror.offer(Ticket(name=artifact.name, position=position, step=int(meta.get("step", 0)), meta=meta))

    @property
    def _leads(self) -> bool:
        return self.ranks.rank == 0

    def _told(self, choice: _Choice) -> _Choice:
        return _Choice(**json.loads(from_rank_zero(self.ranks, json.dumps(asdict(choice)))))

    def _here(self, before_step: int | None) -> _Search:
        search = _Search()
        try:
            until_free(self.store.root, self.clock, patience_s=SUCCESSION_S)
            self.store.sweep_orphans()
            if before_step is None:
                sweep_left(self.store.root)
            search.artifact = self.store.newest(
                order=position_of,
                accept=_acceptable(float("inf") if before_step is None else before_step, self._damaged),
                on_damage=self._tell_damage,
                unread=is_in_shards,
            )
            search.foreign = " ".join(self.store.foreign().values())
        except (OSError, ArtifactError) as error:
            search.failure = f"the checkpoints in {self.store.root} can't be read: {error}"
        return search

    def _there(self, search: _Search, mirror: Mirror, before_step: int | None) -> None:
        """Bring a newer one here, if the remote store has it. All ranks; only rank 0 asks."""
        if self._leads and mirror.address is not None:
            with suppress(OSError):  # the note is for people; a disk that refuses it will be told of by the checkpoints
                note_remote(self.store.root, mirror.address)
        asks = self._leads and not search.failure and (before_step is None or search.artifact is None)
        if not any_rank(self.ranks, asks):
            return
        candidates = self._listed(self.met(mirror.ask_listing() if self._leads else None), search, before_step)
        while any_rank(self.ranks, bool(candidates)):
            wanted = candidates.pop(0) if candidates else None
            request = self.met(None if wanted is None else mirror.ask_fetch(wanted.folder))
            if wanted is not None and self._fetched(request, wanted, search):
                candidates.clear()
        if search.unreadable:
            self._judge_unreadable(search, mirror)

    def _listed(self, request: Request | None, search: _Search, before_step: int | None) -> list[Listed]:
        """What there is newer than ours, newest first."""
        if request is None:
            return []
        try:
            shelf = listing_of(request.result())
        except (OSError, ArtifactError) as error:
            search.unreadable = str(error)
            return []
        search.remote = list(shelf.entries)
        search.foreign = f"{search.foreign} {shelf.foreign}".strip()
        fit = [one for one in shelf.entries if before_step is None or one.step < before_step]
        return [one for one in fit if one.position > search.position]

    def _fetched(self, request: Request | None, wanted: Listed, search: _Search) -> bool:
        """Whether the search is over: it is here now, or nothing can be had; not over when this one is damaged."""
        if request is None:
            return True
        try:
            took_s = float(request.result()["took_s"])
            search.artifact = self.store.open(wanted.name)
        except (DamagedArtifactError, ArtifactMissingError) as error:
            self.ledger.record("remote_checkpoint_damaged", str(error), name=wanted.name, folder=wanted.folder)
            return False
        except (OSError, ArtifactError) as error:
            search.unreadable = str(error)
            return True
        where = {"name": wanted.name, "folder": wanted.folder, "position": wanted.position}
        self.ledger.record("checkpoint_fetched", "the remote store has a newer one", **where, took_s=round(took_s, 3))
        return True

    def _judge_unreadable(self, search: _Search, mirror: Mirror) -> None:
        """With a checkpoint here the run goes on from that; without one, to begin anew would be a silent disaster."""
        if search.artifact is not None:
            why = f"{search.unreadable}; the run goes on from what is here, which may be older"
            self.ledger.record("remote_unreadable", why, remote=mirror.shown)
            return
        search.failure = (
            f"no checkpoint is in {self.store.root}, and the remote store {mirror.shown} can't be read: "
            f"{search.unreadable}; it may hold this run's checkpoints, so the run does not begin anew: mend the store "
            "(network, credentials), or leave --remote out to begin anew"
        )

    def _everywhere(self, choice: _Choice, found: Artifact | None) -> Artifact:
        artifact, troubles = self._got(choice, found)
        if any(troubles) and self.mirror is not None and not choice.folder:
            choice = self._copied_now(choice, self.mirror)
            if choice.folder:
                artifact, troubles = self._got(choice, artifact)
        if artifact is None or any(troubles):
            raise ArtifactMissingError(self._missing(choice, troubles))
        return artifact

    def _got(self, choice: _Choice, found: Artifact | None) -> tuple[Artifact | None, list[str]]:
        """This rank's own, and everybody's trouble."""
        trouble = ""
        if found is None:
            found, trouble = self._open(choice)
        if self.mirror is not None and choice.folder:
            request = self.met(self._own_copy(self.mirror, choice, trouble) if found is None else None)
            if request is not None:
                found, trouble = self._opened_after(request, choice)
                self.mirror.part()
        return found, self.ranks.gather(trouble)

    def _open(self, choice: _Choice) -> tuple[Artifact | None, str]:
        here = f"rank {self.ranks.rank} on {socket.gethostname()}"
        try:
            artifact = self.store.open(choice.name, unread=is_in_shards)
        except (OSError, ArtifactError) as error:
            return None, f"{here}: {error}"
        if artifact.manifest.digest == choice.digest:
            return artifact, ""
        return None, f"{here}: {artifact.path} is another checkpoint of that name"

    def _own_copy(self, mirror: Mirror, choice: _Choice, trouble: str) -> Request:
        if (self.store.root / choice.name).exists():  # damaged, or of an undone stretch
            self.store.put_aside(choice.name, trouble, on_damage=self._tell_damage)
        return mirror.ask_fetch(choice.folder)

    def _opened_after(self, request: Request, choice: _Choice) -> tuple[Artifact | None, str]:
        """A fellow on this host may have been faster, so what counts is whether it is here."""
        found, trouble = self._open(choice)
        if found is None:
            try:
                request.result()
            except (OSError, ArtifactError) as error:
                return None, f"{trouble}; fetching a copy failed: {error}"
        return found, trouble

    def _copied_now(self, choice: _Choice, mirror: Mirror) -> _Choice:
        """A rank can't see it, so it is brought where that rank can."""
        request = self.met(mirror.ask_copy(choice.name) if self._leads else None)
        answer: dict[str, Any] = {}
        if request is not None:
            try:
                answer = dict(request.result())
            except (OSError, ArtifactError) as error:
                self.ledger.record("checkpoint_mirror_failed", str(error), name=choice.name, remote=mirror.shown)
        copied = _Choice(name=choice.name, digest=choice.digest, folder=str(answer.get("folder", "")))
        return self._told(copied)

    def _missing(self, choice: _Choice, troubles: list[str]) -> str:
        said = "; ".join(trouble for trouble in troubles if trouble)
        if self.mirror is None:
            mend = "or give the run a remote store (--remote s3://…), from which each node fetches a copy of its own"
        else:
            mend = f"or mend the remote store {self.mirror.shown}, from which each node fetches a copy of its own"
        return (
            f"rank 0 goes on from {choice.name}, which other ranks can't read ({said}); put the run's folder (--home) "
            f"on storage that all nodes share, {mend}"
        )

    def met(self, request: Request | None) -> Request | None:
        """Wait for it together with all ranks, also those that have none."""
        while any_rank(self.ranks, request is not None and not request.poll(MEET_EVERY_S)):
            continue
        return request

    def _tell_damage(self, name: str, why: str) -> None:
        self.ledger.record("checkpoint_quarantined", why, name=name)


def _acceptable(below: float, damaged: set[str]) -> Callable[[Manifest], bool]:
    def accept(manifest: Manifest) -> bool:
        return is_healthy(manifest) and manifest.digest not in damaged and float(manifest.meta.get("step", 0)) < below

    return accept
