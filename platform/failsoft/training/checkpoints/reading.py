"""From a verified folder back to a state; whether its parts are of one moment, and of this run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import torch
from safetensors.torch import load_file

from failsoft.artifacts.store import Artifact
from failsoft.errors import IncompatibleArtifactError
from failsoft.training.checkpoints.formats import SCALARS, TENSORS, read_scalars
from failsoft.training.checkpoints.inspection import is_in_shards, tensor_files
from failsoft.training.checkpoints.parts import refuse_mixed, stamps_of
from failsoft.training.checkpoints.shard_reading import ShardReader, read_here
from failsoft.training.ranks import Ranks
from failsoft.training.sharding import has_shards, settled
from failsoft.training.state import HELD, FlatState, TrainingState


def read_tensors(artifact: Artifact) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint by their flat names, whole, also where they lie in shards."""
    if not is_in_shards(artifact.manifest):
        return load_file(artifact.path / TENSORS)
    with closing(ShardReader(artifact.path, rank=0, world=1)) as reader:
        return {name: reader.read(name) for name in reader.layout.tensors}


def read_state(artifact: Artifact, state: TrainingState, ranks: Ranks, *, convert: bool = False) -> FlatState:
    """What this rank is to hold of a checkpoint.

    Args:
        artifact: verified.
        state: the live parts, which say what this rank holds of what is sharded; not changed.
        ranks: of the readers. No collective.
        convert: another dtype of the model is no misfit.

    Raises:
        IncompatibleArtifactError: its parts are of different steps, it has a newer form, or it is of another model.
        DamagedArtifactError: ``state.json`` is no state of a run, or a shard lacks what it should hold.
    """
    path, files = artifact.path / SCALARS, tensor_files(artifact.manifest)
    refuse_mixed(artifact.manifest.meta, stamps_of(artifact.path, files), where=str(artifact.path))
    scalars = read_scalars(path.read_bytes(), where=str(path))
    if not (is_in_shards(artifact.manifest) or has_shards(state.model)):
        return FlatState(tensors=read_tensors(artifact), scalars=scalars)
    settled(state.model, state.ema)
    with closing(ShardReader(artifact.path, rank=ranks.rank, world=ranks.world)) as reader:
        tensors, shards = read_here(reader, state, convert=convert)
    return FlatState(tensors=tensors, scalars=scalars | {HELD: shards})


def refuse_other_run(name: str, saved: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another run.

    Raises:
        IncompatibleArtifactError: naming what differs.
    """
    wanted = json.loads(json.dumps(dict(identity)))
    keys = [key for key in sorted(wanted.keys() | saved.keys()) if wanted.get(key) != saved.get(key)]
    if keys:
        said = "; ".join(f"{key} was {saved.get(key)!r}, now {wanted.get(key)!r}" for key in keys[:8])
        raise IncompatibleArtifactError(
            f"checkpoint {name} belongs to another run: {said}; use the same settings, or another run name to "
            "start afresh"
        )
