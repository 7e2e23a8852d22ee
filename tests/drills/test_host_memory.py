"""Workers are killed again and again, no checkpoint on disk ever comes, and hardly anything is repeated."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.progress import PositionMark
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.conftest import ROOT
from tests.drills.outliving_job import EVERY, OutlivingJob, build_outliving

pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray warns of its own settings
PATIENCE_S = 240.0
MOST = 2 * EVERY
"""Batches that a death may cost. The note of a snapshot is written behind the training, which a toy's batches of a
millisecond may leave far behind; but the next snapshot waits for it."""


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in the host's real memory."""
    folder = Path("/dev/shm") / f"failsoft-drill-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


def digest(folder: Path) -> str:
    last = newest_healthy(ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint"))
    assert last is not None
    return last.manifest.files["state.safetensors"].digest


def beginnings(folder: Path) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == "run_started"]


def left_behind(memory: Path) -> list[str]:
    return [path.name for path in memory.rglob("*") if path.is_file()]


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize("place", [SnapshotPlace.EACH_RANK, SnapshotPlace.SHARDED])
def test_workers_killed_on_ray_repeat_no_more_than_since_their_last_whole_snapshot(
    place: SnapshotPlace, tmp_path: Path, memory: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    draw = random.Random(seed)
    positions = sorted(draw.sample(range(MOST, 120), 4))
    kills = [Fault(kind=FaultKind.KILL_WORKER, position=at, rank=draw.randrange(2)) for at in positions]

    def run(job: OutlivingJob) -> str:
        settings = RaySettings(
            folder=job.folder, ledger=job.folder / "ledger.jsonl", workers=2, immediate_retries=len(kills)
        )
        assert run_attempt(build_outliving, job, settings) is None
        return digest(job.folder)

    undisturbed = run(OutlivingJob(folder=tmp_path / "undisturbed", memory=None, place=place))
    job = OutlivingJob(folder=tmp_path / "killed", memory=memory, faults=FaultPlan(faults=tuple(kills)), place=place)
    assert run(job) == undisturbed, f"seed {seed}"
    groups = beginnings(job.folder)
    assert len(groups) == len(kills) + 1, f"seed {seed}"
    repeated = [event.count("repeated_batches") for event in groups]
    assert max(repeated) <= MOST, f"seed {seed}: {repeated}"
    assert all(event.count("position") >= EVERY for event in groups[1:]), f"seed {seed}"
    assert_each_once(job.folder, epochs=120 // 8, seed=seed)
    assert left_behind(memory) == []


@pytest.mark.drill
@pytest.mark.parametrize("place", [SnapshotPlace.EACH_RANK, SnapshotPlace.RANK_ZERO, SnapshotPlace.SHARDED])
def test_ranks_killed_at_any_moment_also_in_mid_copy_lose_next_to_nothing(
    place: SnapshotPlace, tmp_path: Path, memory: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    draw, folder = random.Random(seed), tmp_path / "run"
    for life, position in enumerate(sorted(draw.sample(range(20, 580), 6))):
        kill_beyond(folder, start(folder, memory, place, life), position, draw)
    for quiet in (folder, tmp_path / "quiet"):
        last = start(quiet, memory, place, 99)
        ends = [rank.wait(timeout=PATIENCE_S) for rank in last]
        assert ends == [0, 0], f"seed {seed}: {(tmp_path / 'words.log').read_text('utf-8')[-2000:]}"
    assert digest(folder) == digest(tmp_path / "quiet"), f"seed {seed}"
    repeated = [event.count("repeated_batches") for event in beginnings(folder)]
    assert max(repeated) <= MOST, f"seed {seed}: {repeated}"
    assert_each_once(folder, epochs=600 // 8, seed=seed)
    assert left_behind(memory) == []


def assert_each_once(folder: Path, *, epochs: int, seed: int) -> None:
    found = verify(folder)
    assert found.sound, f"seed {seed}"
    assert [epoch.counts[Fate.ONCE] for epoch in found.epochs] == [64] * epochs, f"seed {seed}"


def start(folder: Path, memory: Path, place: SnapshotPlace, life: int) -> list[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    meeting = folder.parent / f"meeting-{folder.name}-{life}"
    command = [sys.executable, "-m", "tests.drills.outliving_job"]
    with (folder.parent / "words.log").open("ab") as words:
        return [
            subprocess.Popen(
                [*command, str(rank), str(folder), str(memory), str(meeting), str(place)],
                cwd=ROOT,
                env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
                stderr=words,
            )
            for rank in range(2)
        ]


def kill_beyond(folder: Path, ranks: list[subprocess.Popen[bytes]], position: int, draw: random.Random) -> None:
    """Kill one rank some moment after a position; the other follows, as Ray would have it."""
    clock, mark = SystemClock(), PositionMark(folder)
    until_s = clock.monotonic_s() + PATIENCE_S
    victim = draw.choice(ranks)
    while (mark.read() or 0) < position and victim.poll() is None:
        assert clock.monotonic_s() < until_s, f"the run never came to batch {position}"
        clock.sleep_s(0.0005)
    clock.sleep_s(draw.uniform(0.0, 0.02))
    for rank in (victim, *ranks):
        rank.kill()
    for rank in ranks:
        rank.wait()
