"""Writers of ranks that share nothing but a remote store, killed at bytes and at moments: a mounted folder, and S3."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.shard_layout import shard_file
from tests.conftest import ROOT
from tests.drills.shard_victim import NUMBERS, content
from tests.s3_server import serving_s3

WORLD = 3
PATIENCE_S = 120.0

pytestmark = pytest.mark.drill


@pytest.fixture(params=["mounted folder", "S3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "mounted folder":
        yield f"file://{tmp_path}/store"
        return
    with serving_s3() as server:
        yield server.url("run")


def start(
    folder: Path, rank: int, attempt: str, first: int, url: str, *, doom_bytes: int = -1
) -> subprocess.Popen[str]:
    words = [str(folder / f"disk-{rank}"), str(rank), str(WORLD), attempt, str(first), str(doom_bytes), url]
    command = [sys.executable, "-m", "tests.drills.remote_shard_victim", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def checked_newest(url: str) -> int:
    """What an empty machine would go on from: every byte of every shard of what counts is that of its position."""
    remote = RemoteStore(place_of(url), kind="checkpoint")
    shelf = remote.shelf()
    newest = 0
    for one in shelf.there:
        assert remote.verify(one) is None, "a kill made damage visible"
        position = int(one.manifest.meta["position"])
        for rank in range(WORLD):
            path = f"{remote.place.root}/{one.folder}/{shard_file(rank, WORLD)}"
            with remote.place.filesystem.open_input_stream(path) as stream:
                assert stream.read() == content(rank, position)
        newest = max(newest, position)
    for folder in [one.folder for one in shelf.there][:-1] + list(shelf.unfinished):
        remote.remove(folder)
    return newest


def ended(ranks: list[subprocess.Popen[str]]) -> int:
    """The last position that rank 0 said counts, once all are dead."""
    for rank in ranks:
        rank.kill()
    said = [rank.communicate(timeout=PATIENCE_S)[0].split() for rank in ranks]
    return int(said[0][-1]) if said[0] else 0


def test_kills_of_any_rank_at_any_byte_of_its_upload_lose_nothing_that_counts(tmp_path: Path, url: str) -> None:
    rng, newest = random.Random(43), 0
    for turn in range(10):
        struck, doom = rng.randrange(WORLD), rng.randrange(4 * NUMBERS * 3)
        ranks = [
            start(tmp_path, rank, f"turn{turn}", newest + 1, url, doom_bytes=doom if rank == struck else -1)
            for rank in range(WORLD)
        ]
        assert ranks[struck].wait(timeout=PATIENCE_S) == -9
        said, found = ended(ranks), checked_newest(url)
        assert found >= max(said, newest)
        newest = found
    assert newest > 3


def test_kills_of_all_ranks_at_any_moment_lose_nothing_that_counts(tmp_path: Path, url: str) -> None:
    rng, newest = random.Random(44), 0
    for turn in range(6):
        ranks = [start(tmp_path, rank, f"turn{turn}", newest + 1, url) for rank in range(WORLD)]
        assert ranks[0].stdout is not None
        first = int(ranks[0].stdout.readline())
        for _ in range(rng.randrange(3)):
            first = int(ranks[0].stdout.readline())
        SystemClock().sleep_s(rng.random() * 0.2)
        said = max(ended(ranks), first)
        found = checked_newest(url)
        assert found >= said > newest
        newest = found
