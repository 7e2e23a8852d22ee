"""From a verified folder back to a state; whether its parts are of one moment, and of this run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file

from failsoft.artifacts.store import Artifact
from failsoft.errors import IncompatibleArtifactError
from failsoft.training.checkpoints.formats import read_scalars
from failsoft.training.checkpoints.inspection import SCALARS, TENSORS
from failsoft.training.checkpoints.parts import refuse_mixed, stamps_of
from failsoft.training.state import FlatState


def read_tensors(artifact: Artifact) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint by their flat names."""
    return load_file(artifact.path / TENSORS)


def read_state(artifact: Artifact) -> tuple[FlatState, list[dict[str, Any]]]:
    """The state, and the generators of each rank.

    Raises:
        IncompatibleArtifactError: its parts are of different steps, or it has a newer form.
        DamagedArtifactError: ``state.json`` is no state of a run.
    """
    path = artifact.path / SCALARS
    refuse_mixed(artifact.manifest.meta, stamps_of(artifact.path), where=str(artifact.path))
    scalars = read_scalars(path.read_text("utf-8"), where=str(path))
    return FlatState(tensors=read_tensors(artifact), scalars=scalars), list(scalars["rng"])


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
