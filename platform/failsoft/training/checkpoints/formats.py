"""The form of ``state.json``: its number, and the way from each older form to today's.

1: no number. Position, step, parts of the state, identity, generators of each rank, versions.
2: says ``format``; may hold ``guard`` (the guard's windows), absent in 1.
3: holds ``optimizer_tensors``, the names of all moments there were; the tensor file beside it says its position and
   step in its header (``__metadata__``), so that parts of different steps can be told.
4: may hold ``shards``, which files hold which pieces of which tensors (:mod:`.shard_layout`), beside files of that many
   ranks; None where one file holds all.

A change of the form adds a number, one line here, one step to :data:`MIGRATIONS` and a file of the old form to the
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from failsoft.errors import DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.json_object import json_value

TENSORS = "state.safetensors"
"""All tensors of a checkpoint that is not sharded."""
SCALARS = "state.json"
SHARDS = "shards"
"""In ``state.json``, and (how many there are) in the manifest's ``meta``."""
FORMAT = 4
"""The form that this code writes."""

Scalars = dict[str, Any]


def _from_1(scalars: Scalars) -> Scalars:
    return {"guard": None} | scalars | {"format": 2}


def _from_2(scalars: Scalars) -> Scalars:
    return {"optimizer_tensors": None} | scalars | {"format": 3}


def _from_3(scalars: Scalars) -> Scalars:
    return {SHARDS: None} | scalars | {"format": 4}


MIGRATIONS: Mapping[int, Callable[[Scalars], Scalars]] = {1: _from_1, 2: _from_2, 3: _from_3}
"""From each older form to the next one."""


def read_scalars(text: str | bytes, *, where: str) -> Scalars:
    """The content of a ``state.json`` in today's form, whichever form it was written in.

    Args:
        text: the file.
        where: its path, for messages.

    Raises:
        IncompatibleArtifactError: written in a newer form.
        DamagedArtifactError: not a form at all.
    """
    try:
        scalars: Scalars = {} | json_value(text)
        number = int(scalars.get("format", 1))
    except (ValueError, TypeError) as error:
        raise DamagedArtifactError(f"{where} is no state of a run: {error}") from error
    if number > FORMAT:
        raise IncompatibleArtifactError(
            f"{where} has format {number}, this failsoft reads up to {FORMAT}; go on with the failsoft that wrote it "
            "(or a newer one), or use another run name to start afresh"
        )
    while number < FORMAT:
        if number not in MIGRATIONS:
            raise DamagedArtifactError(f"{where} has format {number}, which no failsoft has written")
        scalars, number = MIGRATIONS[number](scalars), number + 1
    return scalars
