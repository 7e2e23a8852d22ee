"""The full training state as a published folder, and back.

A checkpoint holds ``state.safetensors`` (model, buffers, optimizer moments; loading runs no code) and ``state.json``
(positions, scheduler, scaler, breaker, generators of each rank, what the run is about, versions). Its manifest binds
both and says ``position``, ``step``, ``healthy``, ``identity_digest`` and ``parent``. A state that is not finite is
never published, so the newest checkpoint is always one to go back to.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import failsoft
from failsoft.artifacts.manifest import Manifest, digest_bytes
from failsoft.artifacts.store import Artifact, ArtifactStore, Damage
from failsoft.errors import IncompatibleArtifactError
from failsoft.health.ledger import Ledger
from failsoft.training.checkpoints.formats import FORMAT, read_scalars
from failsoft.training.checkpoints.inspection import SCALARS, TENSORS, is_healthy, position_of
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from failsoft.training.checkpoints.writer_succession import until_free
from failsoft.training.ranks import Ranks, any_rank, from_rank_zero
from failsoft.training.rng import capture_rng, restore_rng, seed_all
from failsoft.training.state import FlatState, TrainingState, first_unhealthy, flatten, unflatten

Deliver = Callable[[Path | None, Mapping[str, float]], None]
"""Told of each published checkpoint: called on all ranks together, with its folder on rank 0 and None elsewhere."""
_SUCCESSION_S = 30.0
"""How long a new attempt lets the writer of the one before finish: it may be about to publish what else is repeated."""

_LAST_WAIT_S = 60.0
"""How long a run that ends before its time waits for a checkpoint on its way; a finished run has waited already."""


def deliver_here(_published: Path | None, _metrics: Mapping[str, float]) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """Where a run goes on from."""

    name: str
    position: int
    step: int


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
    position: int | None = field(default=None, init=False)
    """Position of the checkpoint that was published or restored last, as all ranks know it."""
    trouble: str | None = field(default=None, init=False)
    """Why the run must not go on unsaved, once the storage has failed for too long."""
    _prepared: bool = field(default=False, init=False)
    _unshared: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Nothing is opened or started yet."""
        self._writer = self.writer or CheckpointWriter(self.store)

    def publish(self, state: TrainingState, metrics: Mapping[str, float]) -> bool:
        """Publish the state and wait for it; returns whether it is: not when it is ill, nor when the disk refuses.

        In both cases the older checkpoints stand and the ledger says what happened.
        """
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
        flat = flatten(state)
        if not judged:
            ill = first_unhealthy(flat.tensors)
            if any_rank(self.ranks, ill is not None):
                said = f"{ill or 'a tensor of another rank'} is not finite"
                self._tell("checkpoint_withheld", said, flat, tensor=ill)
                return False
        generators = self.ranks.gather(json.dumps(capture_rng()))
        if self.ranks.rank == 0:
            self._writer.offer(self._ticket(flat, metrics), flat.tensors, self._scalars(flat, generators))
            self.look()
        return True

    def look(self) -> None:
        """Write down what happened to checkpoints on their way; cheap enough for every step, and no collective."""
        if self.ranks.rank != 0:
            return
        for news in self._writer.look():
            ticket = news.ticket
            where = {"position": ticket.position, "step": ticket.step, "name": ticket.name}
            self.ledger.record(news.kind, news.why, **where, **news.data)
            if news.kind is NewsKind.PUBLISHED:
                metrics = ticket.meta.get("metrics") or {}
                self._unshared.append({"name": ticket.name, "position": ticket.position, "metrics": metrics})

    def tend(self, state: TrainingState) -> str | None:
        """Let all ranks know what was published since; to be called now and then, between steps.

        Returns:
            Why the run must stop, the same on all ranks; None when it may go on.
        """
        if not self._prepared and self.ranks.rank == 0 and state.optimizer.state:
            flat = flatten(state)
            self._writer.prepare(flat.tensors, scalars_bytes=len(self._scalars(flat, [])))
            self._prepared = True
        self._share()
        return self.trouble

    def settle(self, *, within_s: float | None = None) -> None:
        """Wait until nothing is on its way (or the time is over), and let all ranks know what became of it."""
        if self.ranks.rank == 0:
            self._writer.drain(within_s=within_s)
        self._share()

    def close(self) -> None:
        """Finish what is on its way and give memory and process back; not a collective, so fit for a failing rank."""
        if self.ranks.rank == 0:
            self._writer.drain(within_s=_LAST_WAIT_S)
            self._writer.close()
            self.look()

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
        """
        artifact = self._agree_on_newest(before_step)
        if artifact is None:
            if before_step is None:
                seed_all(seed, rank=self.ranks.rank, position=0)
            return None
        flat, generators = _read(artifact)
        self._refuse_other_run(artifact.name, flat.scalars["identity"])
        unflatten(flat, state, with_breaker=not keep_counts)
        self._tell_versions(flat)
        if len(generators) == self.ranks.world:
            restore_rng(generators[self.ranks.rank])
        else:
            seed_all(
                seed, rank=self.ranks.rank, position=state.position
            )  # another world size: a new, but settled, draw
        self._writer.parent, self.position = artifact.name, state.position
        return Restored(name=artifact.name, position=state.position, step=state.step)

    def _ticket(self, flat: FlatState, metrics: Mapping[str, float]) -> Ticket:
        position, step = int(flat.scalars["position"]), int(flat.scalars["step"])
        meta = {
            "position": position,
            "step": step,
            "healthy": True,
            "identity_digest": identity_digest(self.identity),
            "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        }
        return Ticket(name=f"position-{position:012d}", position=position, step=step, meta=meta)

    def _scalars(self, flat: FlatState, generators: list[str]) -> bytes:
        scalars = flat.scalars | {
            "format": FORMAT,
            "identity": dict(self.identity),
            "rng": [json.loads(text) for text in generators],
            "versions": versions(),
        }
        return json.dumps(scalars).encode()

    def _share(self) -> None:
        said = ""
        if self.ranks.rank == 0:
            self.look()
            news = {"published": self._unshared, "trouble": self._writer.hopeless()}
            said = json.dumps(news) if any(news.values()) else ""
            self._unshared = []
        if not any_rank(self.ranks, bool(said)):
            return
        heard = json.loads(from_rank_zero(self.ranks, said))
        self.trouble = heard["trouble"]
        for entry in heard["published"]:
            self.position = int(entry["position"])
            self.deliver(self.store.root / entry["name"] if self.ranks.rank == 0 else None, entry["metrics"])

    def _agree_on_newest(self, before_step: int | None) -> Artifact | None:
        def accept(manifest: Manifest) -> bool:
            return is_healthy(manifest) and (before_step is None or float(manifest.meta.get("step", 0)) < before_step)

        found, said = None, ["", ""]
        if self.ranks.rank == 0:
            self._writer.drain()  # inside a run: what is on its way may be what one goes back to
            until_free(self.store.root, self._writer.clock, patience_s=_SUCCESSION_S)
            self.store.sweep_orphans()
            found = self.store.newest(order=position_of, accept=accept, on_damage=self._tell_damage)
            said = ["" if found is None else found.name, " ".join(self.store.foreign().values())]
        name, foreign = json.loads(from_rank_zero(self.ranks, json.dumps(said)))
        if foreign and before_step is None:  # going on from an older one would repeat what is done already
            raise IncompatibleArtifactError(foreign)
        return found if found is not None or not name else self.store.open(name)

    def _refuse_other_run(self, name: str, saved: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(dict(self.identity)))
        keys = [key for key in sorted(wanted.keys() | saved.keys()) if wanted.get(key) != saved.get(key)]
        if keys:
            said = "; ".join(f"{key} was {saved.get(key)!r}, now {wanted.get(key)!r}" for key in keys[:8])
            raise IncompatibleArtifactError(
                f"checkpoint {name} belongs to another run: {said}; use the same settings, or another run name to "
                "start afresh"
            )

    def _tell(self, kind: str, why: str, flat: FlatState, **data: Any) -> None:
        if self.ranks.rank == 0:
            self.ledger.record(kind, why, position=flat.scalars["position"], step=flat.scalars["step"], **data)

    def _tell_versions(self, flat: FlatState) -> None:
        """A run that goes on with other code is the same run, but no longer the same bit for bit."""
        then, now = flat.scalars["versions"], versions()
        differ = {part: [then.get(part), now[part]] for part in now if then.get(part) != now[part]}
        if differ:
            self._tell("versions_differ", f"since the checkpoint, {', '.join(differ)} changed", flat, versions=differ)

    def _tell_damage(self, name: str, why: str) -> None:
        self.ledger.record("checkpoint_quarantined", why, name=name)


def identity_digest(identity: Mapping[str, Any]) -> str:
    """One digest of what a run is about."""
    return digest_bytes(json.dumps(dict(identity), sort_keys=True).encode())


def read_tensors(artifact: Artifact) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint by their flat names."""
    return load_file(artifact.path / TENSORS)


def newest_healthy(store: ArtifactStore, *, on_damage: Damage = lambda _name, _why: None) -> Artifact | None:
    """The newest whole and healthy checkpoint by position, for readers outside the run; quarantines damaged ones."""
    return store.newest(order=position_of, accept=is_healthy, on_damage=on_damage)


def versions() -> dict[str, str]:
    """What makes a checkpoint of this process: the libraries, and failsoft's own source text."""
    libraries = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return libraries | {"failsoft": _source_digest()}


@cache
def _source_digest() -> str:
    sources = sorted(Path(failsoft.__file__).parent.rglob("*.py"))
    return digest_bytes(b"".join(path.read_bytes() for path in sources))


def _read(artifact: Artifact) -> tuple[FlatState, list[dict[str, Any]]]:
    path = artifact.path / SCALARS
    scalars = read_scalars(path.read_text("utf-8"), where=str(path))
    flat = FlatState(tensors=read_tensors(artifact), scalars=scalars)
    promised = artifact.manifest.meta["position"]
    if promised != scalars["position"]:
        raise IncompatibleArtifactError(
            f"{artifact.path} binds parts of different steps: its manifest says position {promised}, its state "
            f"{scalars['position']}; remove it and resume from the one before"
        )
    return flat, list(scalars["rng"])
