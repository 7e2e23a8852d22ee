"""The full training state as a published folder, and back.

A checkpoint holds ``state.safetensors`` (model, buffers, optimizer moments; loading runs no code) and ``state.json``
(positions, scheduler, scaler, breaker, generators of each rank, what the run is about, versions). A state whose tensors
lie in shards on all ranks (FSDP2) is written by the writers of all, each its own file. The manifest binds all files and
says ``position``, ``step``, ``healthy``, ``identity_digest`` and ``parent``. A state that is not finite is never
published, so the newest checkpoint is always one to go back to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.health.ledger import Ledger
from failsoft.training.checkpoints.content import ticket_of
from failsoft.training.checkpoints.delivering import Deliver, deliver_here, tell_of_copy
from failsoft.training.checkpoints.inspection import newest_healthy, position_of
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.provenance import identity_digest, versions
from failsoft.training.checkpoints.reading import read_state, read_tensors, refuse_other_run
from failsoft.training.checkpoints.restored import Instead, Restored
from failsoft.training.checkpoints.restoring import Finder
from failsoft.training.checkpoints.restoring_apart import ApartFinder
from failsoft.training.checkpoints.shard_saving import ShardSaving
from failsoft.training.checkpoints.storage_trouble import StorageTrouble
from failsoft.training.checkpoints.whole_saving import WholeSaving
from failsoft.training.checkpoints.withdrawn import Withdrawal
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket
from failsoft.training.ranks import Ranks, any_rank, from_rank_zero
from failsoft.training.rng import restore_rng, seed_all
from failsoft.training.sharding import has_shards
from failsoft.training.state import FlatState, TrainingState, own_names, unflatten
from failsoft.training.state_fit import refuse_missing_moments
from failsoft.training.together import done_by_all, judged_together, keepable, taken_apart

__all__ = [
    "Checkpoints",
    "Deliver",
    "Restored",
    "deliver_here",
    "identity_digest",
    "newest_healthy",
    "read_tensors",
    "versions",
]

_LAST_WAIT_S = 60.0
"""How long a run that ends before its time waits for a checkpoint on its way; a finished run has waited already."""


@dataclass(kw_only=True)
class Checkpoints:
    """Publishes and restores the state of one run. All ranks call its methods together, but for :meth:`look`."""

    store: ArtifactStore
    identity: Mapping[str, Any]
    """What must be the same for a resumed run to be the same run: corpus, batch, seed, network, length."""
    ranks: Ranks
    ledger: Ledger
    deliver: Deliver = deliver_here
    writer: CheckpointWriter | None = None
    """Writes for rank 0; None writes within :meth:`submit`, as small runs and tests may."""
    mirror: Mirror | None = None
    """Copies what is published to a remote store, and fetches from there; on all ranks, or on none."""
    convert: bool = False
    """Take a state of another dtype on, in the live model's; without it such a checkpoint is refused."""
    instead: Instead = lambda _newest: None
    """Asked at the start of a run for something newer than the newest checkpoint."""
    position: int | None = field(default=None, init=False)
    """Position of the checkpoint that was published or restored last, as all ranks know it."""
    trouble: str | None = field(default=None, init=False)
    """Why the run must not go on unsaved, once the storage has failed for too long."""
    restored: Artifact | None = field(default=None, init=False)
    """The checkpoint that the state was read from last; None: it was from none."""
    _prepared: bool = field(default=False, init=False)
    _unshared: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Nothing is opened or started yet."""
        self._writer = self.writer or CheckpointWriter(self.store)
        self._shards = ShardSaving(
            writer=self._writer, ranks=self.ranks, identity=self.identity, ledger=self.ledger, mirror=self.mirror
        )
        self._whole = WholeSaving(writer=self._writer, ranks=self.ranks, identity=self.identity)
        self._trouble = StorageTrouble(ledger=self.ledger)
        self._withdrawal = Withdrawal(
            self.store, self.ledger, mirrored=self.mirror is not None, landed=self._shards.landed
        )
        self._finder = Finder(
            store=self.store, ranks=self.ranks, ledger=self.ledger, clock=self._writer.clock, mirror=self.mirror
        )
        self._apart = ApartFinder(finder=self._finder, landed=self._shards.landed)

    def publish(self, state: TrainingState, metrics: Mapping[str, float]) -> bool:
        """Publish the state and wait for it; returns whether it is: not when it is ill, nor when the disk refuses.

        In both cases the older checkpoints stand and the ledger says what happened.
        """
        if has_shards(state.model):
            self.settle()  # whoever waits for this one waits for those before it, which would leave it out
        if not self.submit(state, metrics):
            return False
        self.settle()
        return self.position == state.position

    def submit(self, state: TrainingState, metrics: Mapping[str, float], *, judged: bool = False) -> bool:
        """Copy the state for the writer; it is published when a later :meth:`tend` or :meth:`settle` learns so.

        Args:
            state: what to publish, as it is now.
            metrics: what the rules of keeping may judge by.
            judged: the caller knows, on all ranks, that the state is finite: a snapshot of this moment was just taken.

        Returns:
            False when the state is ill on any rank and is withheld; the ledger says so.
        """
        flat, ill = (keepable(self.ranks, state), None) if judged else judged_together(self.ranks, state)
        if ill is not None:
            self._tell("checkpoint_withheld", f"{ill} is not finite", flat, tensor=ill)
            return False
        ticket = ticket_of(flat, metrics, self.identity)
        refused = self._withdrawal.refused() if self.ranks.rank == 0 else None
        if flat.shards:
            self._shards.submit(flat, ticket, own=own_names(state), refused=refused)
        else:
            self._whole.submit(flat, ticket, refused=refused)
        self.look()
        return True

    def look(self) -> None:
        """Write down what happened to checkpoints on their way; cheap enough for every step, and no collective."""
        if self.ranks.rank != 0:
            self._shards.look()
            return
        for news in self._writer.look():
            self._record(news)
            if news.kind is NewsKind.PUBLISHED:
                ticket = news.ticket
                metrics = ticket.meta.get("metrics") or {}
                self._unshared.append({"name": ticket.name, "position": ticket.position, "metrics": metrics})
                if self.mirror is not None:
                    tell_of_copy(self.deliver, news)
                    self.mirror.offer(ticket)
        for news in [] if self.mirror is None else self.mirror.look():
            self._record(news)
            tell_of_copy(self.deliver, news)

    def tend(self, state: TrainingState) -> str | None:
        """Let all ranks know what was published since; to be called now and then, between steps.

        Returns:
            Why the run must stop, the same on all ranks; None when it may go on.
        """
        if not self._prepared and state.optimizer.state:
            self._prepare(state)
            self._prepared = True
        self._share()
        return self.trouble

    def _prepare(self, state: TrainingState) -> None:
        flat, _problem = taken_apart(state)  # a problem is told by the first checkpoint, on all ranks
        if flat is not None and flat.shards:
            self._shards.prepare(flat, own=own_names(state))
        elif flat is not None:
            self._whole.prepare(flat)

    def settle(self, *, within_s: float | None = None) -> None:
        """Wait until nothing is on its way (or the time is over), and let all ranks know what became of it."""
        self._writer.drain(within_s=within_s)
        self._share()

    def finish(self, *, within_s: float | None = None) -> None:
        """At the end of a run: give the last checkpoint time to reach the remote store, if there is one.

        Args:
            within_s: None takes the policy's time for a finished run. Not a collective.
        """
        if self.mirror is not None and self.ranks.rank == 0:
            self.look()
            self.mirror.drain(within_s=self.mirror.policy.wait_at_end_s if within_s is None else within_s)
            self.look()

    def leave(self) -> None:
        """The same for a run that was told to leave: only so long as it may have."""
        if self.mirror is not None:
            self.finish(within_s=self.mirror.policy.wait_when_told_s)

    def withdraw(self, *, after: int) -> list[str]:
        """Take back what was published beyond position ``after``: its stretch of the run is undone. Rank 0 calls it.

        Returns:
            Names of those that are removed here; their copies on a remote store count no more, and go as soon as it
            can be reached.
            A disk that refuses is told of, and asked again before anything else is published.
        """
        gone = self._withdrawal.begin(after)
        if gone and self.mirror is not None:
            self.mirror.take_back(Ticket(name="what was undone", position=after, step=0, meta={}))
        return gone

    def close(self) -> None:
        """Finish what is on its way and give memory and process back; not a collective, so fit for a failing rank."""
        self._writer.drain(within_s=_LAST_WAIT_S)
        self._writer.close()
        self.look()
        if self.mirror is not None:
            self.mirror.part()
            self.look()
        self.ledger.settle(within_s=_LAST_WAIT_S)  # a worker that Ray ends loses what is not written yet

    def restore(
        self, state: TrainingState, *, seed: int, before_step: int | None = None, keep_counts: bool = False
    ) -> Restored | None:
        """Load the newest checkpoint that is whole and healthy; None when there is none (the start of a run).

        Args:
            state: the live parts to load into.
            seed: seeds the generators where the checkpoint can't.
            before_step: only consider checkpoints with fewer applied updates; for going back inside a run.
            keep_counts: leave the breaker's counts as they are (inside a run what was refused, was).

        Raises:
            IncompatibleArtifactError: it belongs to another run or another model.
            ConfigError: the model is in shards, and not all ranks see the storage where they meet.
        """
        self._writer.drain()  # inside a run: what is on its way may be what one goes back to
        if before_step is None and has_shards(state.model):
            self._shards.find_meeting()
        apart = self._shards.apart
        artifact = self._apart.newest(before_step, state) if apart else self._finder.newest(before_step)
        newer = self.instead(artifact) if before_step is None else None
        if newer is not None:
            self._writer.parent = None if artifact is None else artifact.name
            self.position = None if artifact is None else int(position_of(artifact.manifest))
            self._finder.catch_up(artifact)
            return newer
        if artifact is None:
            if before_step is None:
                seed_all(seed, rank=self.ranks.rank, position=0)
            return None
        flat = done_by_all(self.ranks, lambda: self._taken_on(artifact, state, keep_counts=keep_counts))
        self._apart.forget()
        generators = flat.scalars["rng"]
        self._tell_versions(flat)
        if len(generators) == self.ranks.world:
            restore_rng(generators[self.ranks.rank])
        else:
            # another world size: a new, but settled, draw
            seed_all(seed, rank=self.ranks.rank, position=state.position)
        self._writer.parent, self.position, self.restored = artifact.name, state.position, artifact
        self._finder.catch_up(artifact)
        return Restored(name=artifact.name, position=state.position, step=state.step)

    def _taken_on(self, artifact: Artifact, state: TrainingState, *, keep_counts: bool) -> FlatState:
        """Read by this rank alone, and put into the live parts."""
        flat = read_state(artifact, state, self.ranks, convert=self.convert)
        refuse_other_run(artifact.name, flat.scalars["identity"], self.identity)
        refuse_missing_moments(state.optimizer, flat.tensors, promised=flat.scalars["optimizer_tensors"])
        unflatten(flat, state, with_breaker=not keep_counts, convert=self.convert)
        return flat

    def _share(self) -> None:
        self.look()
        news = {"published": self._unshared, "trouble": self._hopeless() if self.ranks.rank == 0 else None}
        said, self._unshared = json.dumps(news) if any(news.values()) else "", []
        if not any_rank(self.ranks, bool(said)):
            return
        heard = json.loads(from_rank_zero(self.ranks, said))
        self.trouble = heard["trouble"]
        for entry in heard["published"]:
            self.position = int(entry["position"])
            here = self.ranks.rank == 0 and not self._shards.apart
            self.deliver(self.store.root / entry["name"] if here else None, entry["metrics"])

    def _hopeless(self) -> str | None:
        return self._writer.hopeless() or (None if self.mirror is None else self.mirror.hopeless())

    def _record(self, news: News) -> None:
        ticket = news.ticket
        where = {"position": ticket.position, "step": ticket.step, "name": ticket.name}
        self.ledger.record(news.kind, news.why, **where, **news.data)
        self._trouble.heard(news)

    def _tell(self, kind: str, why: str, flat: FlatState, **data: Any) -> None:
        if self.ranks.rank == 0:
            self.ledger.record(kind, why, position=flat.scalars["position"], step=flat.scalars["step"], **data)

    def _tell_versions(self, flat: FlatState) -> None:
        """A run that goes on with other code is the same run, but no longer the same bit for bit."""
        then, now = flat.scalars["versions"], versions()
        differ = {part: [then.get(part), now[part]] for part in now if then.get(part) != now[part]}
        if differ:
            self._tell("versions_differ", f"since the checkpoint, {', '.join(differ)} changed", flat, versions=differ)
