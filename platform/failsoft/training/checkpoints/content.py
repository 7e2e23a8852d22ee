"""What a checkpoint says beside its tensors: its ticket, and the small part."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from failsoft.training.checkpoints.formats import FORMAT, SHARDS
from failsoft.training.checkpoints.provenance import identity_digest, versions
from failsoft.training.checkpoints.writer_news import Ticket
from failsoft.training.state import HELD, FlatState
from failsoft.training.state_fit import MOMENTS


def ticket_of(flat: FlatState, metrics: Mapping[str, float], identity: Mapping[str, Any]) -> Ticket:
    """What a checkpoint of this moment is about.

    Args:
        flat: the state.
        metrics: what the rules of keeping may judge by; what is not finite is left out.
        identity: what the run is about.
    """
    position, step = int(flat.scalars["position"]), int(flat.scalars["step"])
    meta = {
        "position": position,
        "step": step,
        "healthy": True,
        "identity_digest": identity_digest(identity),
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
    }
    return Ticket(name=f"position-{position:012d}", position=position, step=step, meta=meta)


def small_part(
    flat: FlatState,
    identity: Mapping[str, Any],
    generators: Sequence[str],
    *,
    shards: str = "null",
) -> bytes:
    """``state.json``.

    Args:
        flat: the state, on rank 0.
        identity: what the run is about.
        generators: of each rank, as JSON already: the ranks tell them to each other so, and here they are copied.
        shards: which file holds what, as JSON; it says null where one file holds all.
    """
    scalars = {name: value for name, value in flat.scalars.items() if name != HELD} | {
        "format": FORMAT,
        "optimizer_tensors": [name for name in flat.tensors if name.startswith(MOMENTS)],
        "identity": dict(identity),
        "versions": versions(),
    }
    text = json.dumps(scalars)
    return f'{text[:-1]}, "rng": [{", ".join(generators)}], "{SHARDS}": {shards}}}'.encode()
