"""Forty kills in the middle of writing shards: never half a checkpoint, never a lost one, whichever rank died."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.checkpoints.shard_layout import shard_file
from tests.conftest import ROOT
from tests.drills.shard_victim import NUMBERS, content

WORLD = 3


def start(folder: Path, rank: int, attempt: str, first: int, doom_bytes: int = -1) -> subprocess.Popen[str]:
    words = [str(folder), str(rank), str(WORLD), attempt, str(first), str(doom_bytes)]
    command = [sys.executable, "-m", "tests.drills.shard_victim", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def checked_newest(folder: Path) -> int:
    """What a new attempt finds: every byte of every shard is that of its position; nothing was put aside."""
    damage: list[str] = []
    store = ArtifactStore(folder, SystemClock(), kind="checkpoint")
    newest = newest_healthy(store, on_damage=lambda name, _why: damage.append(name))
    assert damage == [], "a kill made damage visible"
    if newest is None:
        return 0
    position = int(newest.manifest.meta["position"])
    for rank in range(WORLD):
        assert (newest.path / shard_file(rank, WORLD)).read_bytes() == content(rank, position)
    return position


def ended(ranks: list[subprocess.Popen[str]]) -> int:
    """The last position that rank 0 said was published, once all are dead."""
    for rank in ranks:
        rank.kill()
    said = [rank.communicate(timeout=60)[0].split() for rank in ranks]
    return int(said[0][-1]) if said[0] else 0


@pytest.mark.drill
def test_kills_of_any_rank_at_exact_bytes_lose_nothing_that_was_published(tmp_path: Path) -> None:
    rng, newest = random.Random(41), 0
    for turn in range(25):
        struck, doom = rng.randrange(WORLD), rng.randrange(4 * NUMBERS * 3)
        dooms = [doom if rank == struck else -1 for rank in range(WORLD)]
        ranks = [start(tmp_path, rank, f"turn{turn}", newest + 1, dooms[rank]) for rank in range(WORLD)]
        assert ranks[struck].wait(timeout=60) == -9
        said, found = ended(ranks), checked_newest(tmp_path)
        assert found >= max(said, newest)
        newest = found
    assert newest > 5


@pytest.mark.drill
def test_kills_of_all_ranks_at_any_moment_lose_nothing_that_was_published(tmp_path: Path) -> None:
    rng, newest = random.Random(42), 0
    for turn in range(15):
        ranks = [start(tmp_path, rank, f"turn{turn}", newest + 1) for rank in range(WORLD)]
        assert ranks[0].stdout is not None
        first = int(ranks[0].stdout.readline())
        for _ in range(rng.randrange(4)):
            first = int(ranks[0].stdout.readline())
        SystemClock().sleep_s(rng.random() * 0.03)
        said = max(ended(ranks), first)
        found = checked_newest(tmp_path)
        assert found >= said > newest
        newest = found
    assert len(list(tmp_path.glob(".shards-*"))) <= 2  # the last turn's; the next attempt would sweep them
