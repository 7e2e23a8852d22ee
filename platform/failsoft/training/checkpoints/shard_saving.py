"""How the ranks of a sharded state hand a checkpoint over: they agree on it, then each gives its own writer its part.

Whether a checkpoint is begun, and which files hold what, must be the same on all ranks, or rank 0's writer would wait
for shards that never come. So no rank replaces a checkpoint that waits: while one waits anywhere, the new one is left
out on all ranks, and that is told. They meet in the run's folder, or, where not all ranks see it, on the remote store.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from socket import gethostname
from typing import Any

from torch import Tensor

from failsoft.errors import ConfigError
from failsoft.health.ledger import Ledger
from failsoft.training.boxes import Box
from failsoft.training.checkpoints.content import small_part
from failsoft.training.checkpoints.formats import SHARDS
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.shard_layout import Held, ShardLayout, ShardPlace, merged
from failsoft.training.checkpoints.shard_writing import Staging
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from failsoft.training.checkpoints.writer_slot import spec_of
from failsoft.training.ranks import Ranks, any_rank, from_rank_zero
from failsoft.training.rng import capture_rng
from failsoft.training.sharding import Shard
from failsoft.training.state import FlatState

_CROWDED = "two before it are still being written on some rank: the storage is slower than the schedule"


@dataclass(kw_only=True)
class ShardSaving:
    """One rank's side of it."""

    writer: CheckpointWriter
    ranks: Ranks
    identity: Mapping[str, Any]
    ledger: Ledger
    mirror: Mirror | None = None
    """Of the remote store, on which the shards meet where the ranks share no storage."""
    apart: bool = field(default=False, init=False)
    """The ranks share no storage."""
    landed: dict[str, int] = field(default_factory=dict, init=False)
    """Positions of what lies on the remote store alone, by folder."""

    def __post_init__(self) -> None:
        """Nothing is agreed yet."""
        self._attempt = ""
        self._mine: Mapping[str, Held] | None = None
        self._layout: ShardLayout | None = None
        self._failed: dict[str, str] = {}

    def submit(self, flat: FlatState, ticket: Ticket, *, own: frozenset[str], refused: str | None) -> None:
        """Hand this rank's part to its writer, on all ranks or on none. All ranks call it together.

        Args:
            flat: this rank's state.
            ticket: of the moment.
            own: names of the tensors that each rank has its own of (buffers).
            refused: why nothing may be published now; rank 0's word counts.

        Raises:
            ConfigError: on all ranks: they hold different tensors, or together not all of one.
        """
        mine = held(flat, own=own, rank=self.ranks.rank)
        layout = self._layout_of(mine)
        word = {"rng": capture_rng(), "attempt": secrets.token_hex(8), "full": self.writer.full}
        word |= {"refused": refused or "", "failed": self._failed}
        told = [json.loads(text) for text in self.ranks.gather(json.dumps(word))]
        self._attempt = self._attempt or str(told[0]["attempt"])
        place = ShardPlace(rank=self.ranks.rank, world=self.ranks.world, attempt=self._attempt)
        self._pass_on([entry["failed"] for entry in told], place)
        if self.apart and self.mirror is not None:
            folder = f"{ticket.name}.{told[0]['attempt']}"  # drawn anew for each: nobody writes over what may count
            self.landed[folder] = ticket.position
            place = replace(place, landing=self.mirror.landing(folder))
        ticket = replace(ticket, shard=place, meta=dict(ticket.meta) | {SHARDS: summary(layout)})
        if any(entry["full"] for entry in told):
            self.writer.leave_out(ticket, _CROWDED)
        elif told[0]["refused"]:
            self.writer.fail(ticket, told[0]["refused"])
        else:
            generators, shards = [entry["rng"] for entry in told], layout.to_plain()
            scalars = small_part(flat, self.identity, generators, shards=shards) if place.leads else b""
            self.writer.offer(ticket, _written(flat, mine), scalars)

    def find_meeting(self) -> None:
        """Find out at the start of a run whether all ranks see one storage, where their shards are to meet.

        If they do not, the shards meet on the remote store, and the run's folder holds no checkpoints.

        Raises:
            ConfigError: on all ranks, naming those that do not: there is no remote store.
        """
        root, name = self.writer.store.root, from_rank_zero(self.ranks, f".shards-{secrets.token_hex(8)}")
        if self.ranks.rank == 0:
            with suppress(OSError):  # a disk that refuses is told of by the checkpoints
                (root / name).mkdir(parents=True)
        made = from_rank_zero(self.ranks, "yes" if (root / name).is_dir() else "") == "yes"
        told = self.ranks.gather("" if not made or (root / name).is_dir() else gethostname())
        if self.ranks.rank == 0:
            with suppress(OSError):
                (root / name).rmdir()
        apart = [f"rank {rank} on {host}" for rank, host in enumerate(told) if host]
        if apart and self.mirror is None:
            raise ConfigError(
                f"{', '.join(apart)} can't see what rank 0 writes to {root}, and a checkpoint's shards meet there: "
                "put the run's folder (--home) on storage that all nodes share, or give the run a remote store "
                "(--remote s3://…), to which each rank then brings its own"
            )
        self.apart = bool(apart)
        if self.mirror is not None:
            self.mirror.apart = self.apart
        if apart and self.ranks.rank == 0:
            self.ledger.record("shards_meet_remotely", f"{', '.join(apart)} can't see {root}", ranks=len(apart))

    def written(self, flat: FlatState, *, own: frozenset[str]) -> dict[str, Tensor]:
        """The tensors that go into this rank's file; ``own`` as in :meth:`submit`."""
        return _written(flat, held(flat, own=own, rank=self.ranks.rank))

    def look(self) -> None:
        """On other ranks than 0: write down what only this rank knows; the checkpoint's fate is rank 0's to tell."""
        words = {NewsKind.FAILED: "shard_failed", NewsKind.LOST: "shard_writer_lost"}
        for news in self.writer.look():
            ticket, word = news.ticket, words.get(news.kind)
            if news.kind is NewsKind.FAILED:
                self._failed[ticket.name] = news.why
            if word is not None:
                where = {"position": ticket.position, "step": ticket.step, "name": ticket.name}
                self.ledger.record(word, news.why, rank=self.ranks.rank, **where)

    def _layout_of(self, mine: Mapping[str, Held]) -> ShardLayout:
        """Told anew only when it changed on some rank: moments appear in the first step."""
        if self._layout is None or any_rank(self.ranks, mine != self._mine):
            text = json.dumps({name: one.to_plain() for name, one in mine.items()})
            told = [json.loads(other) for other in self.ranks.gather(text)]
            by_rank = [{name: Held.from_plain(plain) for name, plain in entry.items()} for entry in told]
            files = ShardPlace(rank=0, world=self.ranks.world, attempt="").files
            self._layout, self._mine = merged(by_rank, files), mine
        return self._layout

    def _pass_on(self, failures: list[dict[str, str]], place: ShardPlace) -> None:
        """A rank whose disk refuses even a note has told of it now; rank 0's writer need not wait its patience out."""
        self._failed.clear()
        if self.ranks.rank == 0:
            for rank, failed in enumerate(failures):
                for name, why in failed.items():
                    staging = Staging(root=self.writer.store.root, name=name, place=place)
                    if rank and staging.folder.is_dir():
                        staging.note_failure(rank, why)


def held(flat: FlatState, *, own: frozenset[str], rank: int) -> dict[str, Held]:
    """What this rank has of each tensor.

    Args:
        flat: its state.
        own: names of those that each rank has its own of.
        rank: this one.
    """
    found: dict[str, Held] = {}
    for name, tensor in flat.tensors.items():
        spec, plain = spec_of(tensor), flat.shards.get(name)
        if plain is None:
            whole, mine = Box.whole(spec.shape), name in own
            found[name] = Held(spec=spec, box=whole, writes=mine or rank == 0, own=mine)
            continue
        shard = Shard.from_plain(plain)
        found[name] = Held(
            spec=replace(spec, shape=shard.shape),
            box=shard.box,
            writes=shard.first,
            mesh=shard.mesh,
            placements=shard.placements,
        )
    return found


def _written(flat: FlatState, mine: Mapping[str, Held]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in flat.tensors.items() if mine[name].writes and tensor.numel()}


def summary(layout: ShardLayout) -> dict[str, Any]:
    """For the manifest: enough to see how the state was sharded without reading the rest."""
    sharded = [one for one in layout.tensors.values() if one.mesh]
    meshes = sorted({"x".join(map(str, one.mesh)) for one in sharded})
    placements = sorted({",".join(one.placements) for one in sharded})
    return {"files": len(layout.files), "meshes": meshes, "placements": placements, "tensors": len(sharded)}
