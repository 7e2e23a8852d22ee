"""Processes are killed at any moment, also in mid-step and in mid-write, and the world changes each time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.progress import PositionMark
from tests.conftest import ROOT
from tests.drills.recorded_toy import TOTAL

PATIENCE_S = 240.0


def start(folder: Path, world: int, life: int) -> list[subprocess.Popen[bytes]]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.drills.recorded_toy"]
    meeting = folder.parent / f"meeting-{life}"
    return [
        subprocess.Popen(
            [*command, str(rank), str(world), str(folder), str(meeting)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(world)
    ]


def kill_beyond(folder: Path, ranks: list[subprocess.Popen[bytes]], position: int, victim: int) -> None:
    """Wait until the run is beyond a position, then kill one rank; the others follow, as Ray would have it."""
    clock, mark = SystemClock(), PositionMark(folder)
    until_s = clock.monotonic_s() + PATIENCE_S
    while (mark.read() or 0) < position and ranks[victim].poll() is None:
        assert clock.monotonic_s() < until_s, f"the run never came to batch {position}"
        clock.sleep_s(0.0005)
    for rank in (ranks[victim], *ranks):
        rank.kill()
    for rank in ranks:
        rank.wait()


@pytest.mark.drill
def test_runs_killed_at_random_moments_and_resized_each_time_saw_each_sample_once(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    draw, folder = random.Random(seed), tmp_path / "run"
    folder.mkdir()
    worlds = [draw.choice((1, 2)) for _ in range(7)]
    kills = sorted(draw.sample(range(20, TOTAL - 20), len(worlds) - 1))
    for life, (world, position) in enumerate(zip(worlds, kills, strict=False)):
        kill_beyond(folder, start(folder, world, life), position, draw.randrange(world))
    last = start(folder, worlds[-1], len(worlds))
    assert [rank.wait(timeout=PATIENCE_S) for rank in last] == [0] * worlds[-1]
    found = verify(folder)
    assert found.sound, f"seed {seed}"
    assert [epoch.counts[Fate.ONCE] for epoch in found.epochs] == [64] * (TOTAL // 8), f"seed {seed}"
    assert found.reached == TOTAL
    assert found.generations >= len(worlds) - 1  # a kill may strike before a group has begun
