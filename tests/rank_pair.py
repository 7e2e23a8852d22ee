"""Two real processes that meet over gloo, for tests and benchmarks of what ranks must agree on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

ROOT = Path(__file__).resolve().parents[1]

PATIENCE_S = 480
"""Starting Python with torch takes seconds, a minute on a busy machine, and there all takes ten times as long."""


def outputs_of_two(module: str, *arguments: str) -> list[str]:
    """Run ``python -m module RANK arguments…`` for ranks 0 and 1; what each printed. None is left running."""
    return ends_of_two(module, *arguments)[1]


def ends_of_two(module: str, *arguments: str) -> tuple[list[int], list[str]]:
    """The same, with the exit status of each.

    They print into files: a pipe that is full stops its writer, and the other rank would wait for it.
    """
    with ExitStack() as files:
        said = [files.enter_context(TemporaryFile("w+")) for _ in range(2)]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", module, str(rank), *arguments],
                cwd=ROOT,
                env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
                stdout=said[rank],
                text=True,
            )
            for rank in range(2)
        ]
        try:
            for rank in ranks:
                rank.wait(timeout=PATIENCE_S)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        return [rank.returncode for rank in ranks], [_all_of(file) for file in said]


def heard_from(ranks: Sequence[subprocess.Popen[str]], *, patience_s: float = PATIENCE_S) -> list[str]:
    """What each of these printed until it ended, by rank.

    All are heard at the same time: a pipe that is full stops its writer, and the other ranks would wait for it.
    """
    with ThreadPoolExecutor(len(ranks)) as ears:
        return list(ears.map(lambda rank: rank.communicate(timeout=patience_s)[0], ranks))


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
