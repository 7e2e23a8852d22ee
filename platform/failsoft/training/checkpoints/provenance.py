"""What a checkpoint is of: the run by a digest, and the code that made it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import failsoft
from failsoft.artifacts.manifest import digest_bytes

_PYTHON = platform.python_version()
"""Taken apart from a text each time it is asked for, which is felt in the stall of a small checkpoint."""


def identity_digest(identity: Mapping[str, Any]) -> str:
    """One digest of what a run is about."""
    return digest_bytes(json.dumps(dict(identity), sort_keys=True).encode())


def versions() -> dict[str, str]:
    """What makes a checkpoint of this process: the libraries, and failsoft's own source text."""
    libraries = {"python": _PYTHON, "torch": torch.__version__, "numpy": np.__version__}
    return libraries | {"failsoft": _source_digest()}


@cache
def _source_digest() -> str:
    sources = sorted(Path(failsoft.__file__).parent.rglob("*.py"))
    return digest_bytes(b"".join(path.read_bytes() for path in sources))
