"""The job without Ray and without faults, with given numbers of workers on given stretches: the reference of drills.

``python -m … CONFIG RANK WORLD UNTIL MEETING``: one rank of one stretch, which leaves before batch ``UNTIL``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.errors import PreemptedError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints.checkpoint import deliver_here, newest_healthy
from failsoft.training.ranks import ranks_here
from tests.conftest import ROOT
from train_jobs.build import build_loop
from train_jobs.config import JobConfig
from train_jobs.job import weights_digest
from train_jobs.workload import prepare

PATIENCE_S = 600.0


@dataclass(frozen=True)
class Stretch:
    """Batches up to ``until`` by so many workers."""

    world: int
    until: int


def history_of(home: Path, run: str) -> list[Stretch]:
    """Which numbers of workers the batches that stand were trained by, from the run's ledger."""
    events = [event for event in read_ledger(Home.find(home).ledger).events if event.subject == run]
    starts = [event for event in events if event.kind == "run_started"]
    ends = [*(int(start.data["position"]) for start in starts[1:]), int(starts[-1].data["total_batches"])]
    stretches: list[Stretch] = []
    for start, until in zip(starts, ends, strict=True):
        begin = int(start.data["position"])
        stretches = [one for one in (replace(one, until=min(one.until, begin)) for one in stretches) if one.until]
        stretches.append(Stretch(world=int(start.data["world"]), until=until))
    merged: list[Stretch] = []
    for one in stretches:
        if merged and one.until <= merged[-1].until:
            continue
        if merged and merged[-1].world == one.world:
            merged.pop()
        merged.append(one)
    return merged


def digest_of_same_history(config: JobConfig, stretches: Sequence[Stretch]) -> str:
    """Digest of the final state of a run that was never disturbed, but resized at the same batches."""
    prepare(config)
    folder = Home.find(config.home).run(config.run)
    for number, stretch in enumerate(stretches):
        _walk(config, stretch, folder / f"meeting-{number}")
    final = newest_healthy(Home.find(config.home).checkpoints(config.run, SystemClock()))
    assert final is not None
    assert final.manifest.meta["position"] == stretches[-1].until
    return weights_digest(final)


def _walk(config: JobConfig, stretch: Stretch, meeting: Path) -> None:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    given = TypeAdapter(JobConfig).dump_json(config).decode()
    command = [sys.executable, "-m", "tests.drills.same_history", given]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(stretch.world), str(stretch.until), str(meeting)], cwd=ROOT, env=environment
        )
        for rank in range(stretch.world)
    ]
    assert [rank.wait(timeout=PATIENCE_S) for rank in ranks] == [0] * stretch.world


def main(config: JobConfig, rank: int, world: int, until: int, meeting: Path) -> None:
    torch.set_num_threads(config.threads_per_worker)
    if world > 1:
        limit = timedelta(seconds=120)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=limit)
    loop = build_loop(config, ranks_here(), deliver_here)
    loop.told = lambda: "the stretch is over" if loop.state.position >= until else None
    try:
        loop.run()
    except PreemptedError:
        return


if __name__ == "__main__":
    asked = TypeAdapter(JobConfig).validate_json(sys.argv[1])
    main(asked, int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
