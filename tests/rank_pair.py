"""Two real processes that meet over gloo, for tests and benchmarks of what ranks must agree on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PATIENCE_S = 480
"""Starting Python with torch takes seconds, a minute on a busy machine, and there all takes ten times as long."""


def outputs_of_two(module: str, *arguments: str) -> list[str]:
    """Run ``python -m module RANK arguments…`` for ranks 0 and 1; what each printed. None is left running."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(rank), *arguments],
            cwd=ROOT,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
