"""Which checkpoint a sharded run goes on from where its ranks share no storage: the newest on the remote store.

Nothing is looked for here: no node holds a whole one. Rank 0 asks what there is; then each rank brings ``state.json``,
which says what lies where, and those shards alone that hold something of what it is to hold now. Every byte that it
reads is verified. What any rank finds damaged is passed over by all; what any rank can't reach ends the start of all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.manifest import MANIFEST_NAME, Manifest, parse_manifest
from failsoft.artifacts.store import Artifact
from failsoft.errors import (
    ArtifactError,
    ArtifactMissingError,
    DamagedArtifactError,
    FailsoftError,
    IncompatibleArtifactError,
)
from failsoft.training.checkpoints.formats import SCALARS
from failsoft.training.checkpoints.inspection import only
from failsoft.training.checkpoints.mirror import Mirror, listing_of
from failsoft.training.checkpoints.mirror_courier import Request
from failsoft.training.checkpoints.mirror_order import Listed
from failsoft.training.checkpoints.remote_note import note_remote
from failsoft.training.checkpoints.restoring import SUCCESSION_S, Finder
from failsoft.training.checkpoints.shard_reading import files_needed
from failsoft.training.checkpoints.writer_succession import until_free
from failsoft.training.ranks import from_rank_zero
from failsoft.training.state import TrainingState
from failsoft.training.together import done_by_all


@dataclass(kw_only=True)
class ApartFinder:
    """One rank's part in the search."""

    finder: Finder
    """For storage that all share; lends what both need."""
    landed: dict[str, int]
    """Positions of what is there, by folder; added to."""

    def newest(self, before_step: int | None, state: TrainingState) -> Artifact | None:
        """The same checkpoint on all ranks, of which this one has what it needs; None when there is none.

        All ranks call it together.

        Args:
            before_step: only consider checkpoints with fewer applied updates.
            state: the live parts, which say what this rank is to hold.

        Raises:
            IncompatibleArtifactError: a newer failsoft has written there; on all ranks.
            ArtifactMissingError: some rank can't get what it needs; on all ranks.
            OSError: the store can't be read just now; on all ranks.
        """
        mirror = self.finder.mirror
        if mirror is None:
            return None
        for one in self._listed(mirror, before_step):
            found = self._brought(mirror, one, state)
            if found is not None:
                if self.finder.ranks.rank:  # rank 0's has more to do
                    mirror.part()
                return found
        return None

    def forget(self) -> None:
        """What was brought is read, or of no use."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        return self.finder.store.root / f".parts-{self.finder.ranks.rank:05d}"

    def _listed(self, mirror: Mirror, before_step: int | None) -> list[Listed]:
        """What there is, newest first, the same on all ranks."""
        leads, store = self.finder.ranks.rank == 0, self.finder.store
        if leads:
            until_free(store.root, self.finder.clock, patience_s=SUCCESSION_S)
            with suppress(OSError):  # for people
                note_remote(store.root, mirror.address or "")
        request = self.finder.met(mirror.ask_listing() if leads else None)
        told: dict[str, Any] = json.loads(from_rank_zero(self.finder.ranks, _said(request, mirror)))
        if told["failure"]:
            raise OSError(told["failure"])
        if told["foreign"] and before_step is None:
            raise IncompatibleArtifactError(told["foreign"])
        entries = [Listed(**entry) for entry in told["entries"]]
        self.landed.update({one.folder: one.position for one in entries})
        return [one for one in entries if before_step is None or one.step < before_step]

    def _brought(self, mirror: Mirror, one: Listed, state: TrainingState) -> Artifact | None:
        """What this rank needs of it; None on all ranks when any of them found damage.

        Raises:
            FailsoftError, OSError: some rank can't take part; on all ranks, in its words.
        """
        rank, world = self.finder.ranks.rank, self.finder.ranks.world
        needed: list[str] = []

        def shards() -> list[str]:
            needed.extend(files_needed(self._folder, self._manifest(), state, rank=rank, world=world))
            return needed

        self.forget()
        if not (self._got(mirror, one, lambda: [SCALARS]) and self._got(mirror, one, shards)):
            return None

        def whole() -> Artifact:
            return Artifact(name=one.name, path=self._folder, manifest=only(self._manifest(), {SCALARS, *needed}))

        return done_by_all(self.finder.ranks, whole)

    def _got(self, mirror: Mirror, one: Listed, files: Callable[[], list[str]]) -> bool:
        """Bring some files, while the other ranks bring theirs; False on all ranks when any of them found damage."""
        finder, request, damage, trouble = self.finder, None, "", ""
        try:
            request = mirror.ask_part(one.folder, files(), self._folder)
        except DamagedArtifactError as error:
            damage = str(error)
        except (FailsoftError, OSError) as error:
            trouble = str(error) or type(error).__name__
        finder.met(request)
        try:
            if request is not None:
                request.result()
        except (DamagedArtifactError, ArtifactMissingError) as error:
            damage = str(error)
        except (FailsoftError, OSError) as error:
            trouble = str(error) or type(error).__name__
        told = [json.loads(text) for text in finder.ranks.gather(json.dumps([damage, trouble]))]
        away = [f"rank {rank}: {why}" for rank, (_, why) in enumerate(told) if why]
        if away:
            raise ArtifactMissingError(
                f"not all ranks can get their shards of {one.name} from {mirror.shown} ({'; '.join(away)}); mend the "
                "store (network, credentials) and start again"
            )
        damaged = [f"rank {rank}: {why}" for rank, (why, _) in enumerate(told) if why]
        if damaged and finder.ranks.rank == 0:
            said = "; ".join(damaged)
            finder.ledger.record("remote_checkpoint_damaged", said, name=one.name, folder=one.folder)
        return not damaged

    def _manifest(self) -> Manifest:
        path = self._folder / MANIFEST_NAME
        return parse_manifest(path.read_bytes(), where=str(path))


def _said(request: Request | None, mirror: Mirror) -> str:
    """Rank 0's word on what is there."""
    failure, foreign = "", ""
    entries: list[dict[str, Any]] = []
    try:
        if request is not None:
            shelf = listing_of(request.result())
            foreign, entries = shelf.foreign, [asdict(one) for one in shelf.entries]
    except (OSError, ArtifactError) as error:
        failure = (
            f"the remote store {mirror.shown}, where alone this run's checkpoints are, can't be read: {error}; mend "
            "the store (network, credentials) and start again"
        )
    return json.dumps({"failure": failure, "foreign": foreign, "entries": entries})
