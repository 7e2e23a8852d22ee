"""What a look that was made up found of a checkpoint that had been published without it.

A published checkpoint never changes, so this lies beside it: one line of JSON for each, in the hidden file ``.judged``
beside the checkpoints, with name, digest of the manifest, and metrics (none, when the look could not compute any).
Rules of keeping and lists add these to what the manifest says. The note goes with the run's folder: a run that goes on
elsewhere from a remote copy alone has the metrics in its ledger, and keeps that copy as one without them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.store import Artifact
from failsoft.health.json_object import is_finite, json_object

_NOTE = ".judged"
Judged = Mapping[str, Mapping[str, float]]
"""Metrics by digest of the manifest."""


def note_judged(root: Path, artifact: Artifact, metrics: Mapping[str, float]) -> None:
    """Write down what was found; durable when this returns.

    Args:
        root: of the local checkpoints.
        artifact: the checkpoint that was looked at.
        metrics: what was found; what is not finite is left out.

    Raises:
        OSError: the disk refused.
    """
    found = {name: value for name, value in metrics.items() if math.isfinite(value)}
    line = json.dumps({"name": artifact.name, "digest": artifact.manifest.digest, "metrics": found}).encode()
    handle = os.open(root / _NOTE, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(handle, b"\n" + line + b"\n")  # whole after a torn one
        os.fsync(handle)
    finally:
        os.close(handle)


def judged(root: Path) -> Judged:
    """What was found later of the checkpoints in a store; empty where there is no note."""
    try:
        lines = (root / _NOTE).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    entries = [entry for entry in map(json_object, lines) if entry is not None and "digest" in entry]
    return {str(entry["digest"]): _numbers(entry.get("metrics")) for entry in entries}


def metrics_of(manifest: Manifest, later: Judged) -> dict[str, float]:
    """What a checkpoint may be judged by: its own words, and what was found of it later."""
    own = dict(manifest.meta.get("metrics") or {})
    return own | dict(later.get(manifest.digest, {})) if later else own


def _numbers(found: object) -> dict[str, float]:
    plain = found if isinstance(found, dict) else {}
    return {str(name): float(value) for name, value in plain.items() if is_finite(value)}
