"""The full training state as a published folder, and back.

A checkpoint holds ``state.safetensors`` (model, buffers, optimizer moments; loading runs no code) and ``state.json``
(positions, scheduler, scaler, breaker, generators of each rank, what the run is about, versions). Its manifest binds
both and says ``position``, ``step``, ``healthy``, ``identity_digest`` and ``parent``. A state that is not finite is
never published, so the newest checkpoint is always one to go back to.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import failsoft
from failsoft.artifacts.manifest import Manifest, digest_bytes
from failsoft.artifacts.store import Artifact, ArtifactStore, Damage
from failsoft.errors import IncompatibleArtifactError
from failsoft.health.ledger import Ledger
from failsoft.training.formats import FORMAT, read_scalars
from failsoft.training.inspection import SCALARS, TENSORS, is_healthy, position_of
from failsoft.training.ranks import Ranks, any_rank, from_rank_zero
from failsoft.training.rng import capture_rng, restore_rng, seed_all
from failsoft.training.state import FlatState, TrainingState, first_unhealthy, flatten, unflatten

Write = Callable[[], Path]
"""Publishes the checkpoint and returns its folder (the store's, when the disk refused)."""
Deliver = Callable[[Write | None, Mapping[str, float]], None]
"""How a checkpoint leaves a rank: called on all ranks together, with something to write on rank 0 only."""


def deliver_here(write: Write | None, _metrics: Mapping[str, float]) -> None:
    """Write in this process and tell nobody."""
    if write is not None:
        write()


@dataclass(frozen=True, kw_only=True)
class Restored:
    """Where a run goes on from."""

    name: str
    position: int
    step: int


@dataclass(kw_only=True)
class Checkpoints:
    """Publishes and restores the state of one run. All ranks call its methods together."""

    store: ArtifactStore
    identity: Mapping[str, Any]
    """What must be the same for a resumed run to be the same run: corpus, batch, seed, network, length."""
    ranks: Ranks
    ledger: Ledger
    deliver: Deliver = deliver_here
    keep: int = 3
    """Newest checkpoints kept; all of them are healthy, so the last healthy one is always among them."""
    position: int | None = field(default=None, init=False)
    """Position of the checkpoint that was published or restored last."""
    _parent: str | None = field(default=None, init=False)
    _failed: bool = field(default=False, init=False)

    def publish(self, state: TrainingState, metrics: Mapping[str, float]) -> bool:
        """Publish the state; returns whether it is published: not when it is ill, nor when the disk refuses.

        In both cases the older checkpoints stand and the ledger says what happened.
        """
        flat = flatten(state)
        ill = first_unhealthy(flat.tensors)
        if any_rank(self.ranks, ill is not None):
            self._tell("checkpoint_withheld", f"{ill or 'a tensor of another rank'} is not finite", flat, tensor=ill)
            return False
        generators = self.ranks.gather(json.dumps(capture_rng()))
        self._failed = False
        self.deliver(self._writer(flat, generators) if self.ranks.rank == 0 else None, metrics)
        if any_rank(self.ranks, self._failed):
            return False
        self.position = state.position
        return True

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
        self._parent, self.position = artifact.name, state.position
        return Restored(name=artifact.name, position=state.position, step=state.step)

    def _writer(self, flat: FlatState, generators: list[str]) -> Write:
        def write() -> Path:
            try:
                return self._write(flat, generators)
            except OSError as error:
                self._failed = True
                self._tell("checkpoint_failed", f"{error}; the older checkpoints stand, training goes on", flat)
                return self.store.root

        return write

    def _write(self, flat: FlatState, generators: list[str]) -> Path:
        name = f"position-{flat.scalars['position']:012d}"
        if (self.store.root / name).exists():  # a worker died between publishing and reporting; positions never lie
            return self.store.root / name
        meta = {
            "position": flat.scalars["position"],
            "step": flat.scalars["step"],
            "healthy": True,
            "identity_digest": identity_digest(self.identity),
            "parent": self._parent,
        }
        scalars = flat.scalars | {
            "format": FORMAT,
            "identity": dict(self.identity),
            "rng": [json.loads(text) for text in generators],
            "versions": versions(),
        }
        artifact = self.store.publish(name, lambda folder: _fill(folder, flat, scalars), meta=meta)
        self._parent = name
        size = sum(entry.size_bytes for entry in artifact.manifest.files.values())
        self._tell("checkpoint_published", "on schedule", flat, name=name, bytes=size)
        self._prune()
        return artifact.path

    def _agree_on_newest(self, before_step: int | None) -> Artifact | None:
        def accept(manifest: Manifest) -> bool:
            return is_healthy(manifest) and (before_step is None or float(manifest.meta.get("step", 0)) < before_step)

        found, said = None, ["", ""]
        if self.ranks.rank == 0:
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

    def _prune(self) -> None:
        published = sorted(
            (a for a in self.store.listing() if is_healthy(a.manifest)), key=lambda a: position_of(a.manifest)
        )
        for artifact in published[: -self.keep]:
            self.store.remove(artifact.name)

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


def _fill(folder: Path, flat: FlatState, scalars: dict[str, Any]) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in flat.tensors.items()}
    try:
        save_file(tensors, folder / TENSORS)
    except SafetensorError as error:  # how it says that the disk refused
        raise OSError(str(error)) from error
    (folder / SCALARS).write_text(json.dumps(scalars), "utf-8")


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
