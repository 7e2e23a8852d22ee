"""A node goes and the run goes on with fewer workers; a node comes and it grows, without a batch lost or repeated."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.accounting.exactness import verify
from failsoft.training.progress import PositionMark
from failsoft.training.survival.growth import ResizePolicy
from failsoft.training.survival.warmth import SparePolicy
from tests.conftest import ROOT
from tests.drills.last_line import last_line
from tests.drills.private_cluster import PrivateCluster, private_cluster, strike, wait_for
from tests.drills.same_history import digest_of_same_history, history_of
from train_jobs.config import JobConfig, Preset

PATIENCE_S = 600.0
SECOND = 0.1
"""Back-off of 10, 30 and 90 s, ten times as fast."""


def job(home: Path) -> JobConfig:
    return JobConfig(
        home=home,
        run="elastic",
        preset=Preset.EMBEDDED,
        workers=(1, 2),
        snapshot_every_steps=10,
        checkpoint_every_steps=10,
        max_batches=900,  # so many that a node which is slow to come still finds the run at work
        backoff=BackoffPolicy(first_s=10 * SECOND, cap_s=90 * SECOND, jitter_fraction=0.0),
        resize=ResizePolicy(look_s=0.5, steady_s=2.0),
        record_consumed=True,
        preflight=None,  # has a drill of its own
        spares=SparePolicy(per_worker=0),
        publish=False,
    )


def start(config: JobConfig, cluster: PrivateCluster, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.drills.supervised_job", TypeAdapter(JobConfig).dump_json(config).decode()]
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=ROOT, env=cluster.environment(), stdout=output, stderr=subprocess.STDOUT)


class Watched:
    """What the run says of itself."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.home = Home.find(config.home)
        self.mark = PositionMark(self.home.run(config.run))
        self._read_bytes = -1
        self._events: tuple[Event, ...] = ()

    def events(self, *kinds: str) -> list[Event]:
        """Of this run; the ledger is read anew only when it has grown, for whoever waits asks 20 times a second."""
        size = self.home.ledger.stat().st_size if self.home.ledger.exists() else 0
        if size != self._read_bytes:
            self._events, self._read_bytes = read_ledger(self.home.ledger).events, size
        return [event for event in self._events if event.subject == self.config.run and event.kind in kinds]

    def works_with(self, world: int, groups: int) -> bool:
        """Whether the ``groups``-th group of workers is at work, with so many, and beyond a new checkpoint."""
        starts = self.events("run_started")
        if len(starts) < groups or starts[-1].data["world"] != world:
            return False
        begun = int(starts[-1].data["position"])
        published = [int(event.data["position"]) for event in self.events("checkpoint_published")]
        return max(published, default=0) > begun


def disturb(cluster: PrivateCluster, watched: Watched) -> None:
    """Take a node, give one, and kill three groups of workers: the first for Ray's own retry, the next for ours."""
    wait_for(lambda: watched.works_with(2, groups=1), "training with two workers")
    at_s = SystemClock().wall_s()
    cluster.kill_node(cluster.nodes[0])
    wait_for(lambda: watched.works_with(1, groups=2), "training with the one that is left")
    shrunk_s = watched.events("run_started")[-1].at_s - at_s
    at_s = SystemClock().wall_s()
    cluster.add_node()
    wait_for(lambda: watched.works_with(2, groups=3), "training with two again")
    print(f"node lost to first batch with one: {shrunk_s:.1f} s; ", end="")
    print(f"node added to first batch with two: {watched.events('run_started')[-1].at_s - at_s:.1f} s")
    for groups in (4, 5, 6):
        strike(wait_for(cluster.workers, "a worker")[0])
        wait_for(lambda groups=groups: len(watched.events("run_started")) >= groups, "another group")


@pytest.mark.drill
def test_a_lost_node_shrinks_the_run_and_a_new_one_grows_it_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    config, log = job(tmp_path / "home"), tmp_path / "log"
    watched = Watched(config)
    with private_cluster(nodes=2) as cluster:
        process = start(config, cluster, log)
        try:
            disturb(cluster, watched)
            assert process.wait(timeout=PATIENCE_S) == 0, log.read_text("utf-8")
        finally:
            process.kill()
            process.wait()
    (asked,) = watched.events("resize_asked")
    assert (asked.data["workers"], asked.data["to"]) == (1, 2)
    waits = [event.data["wait_s"] for event in watched.events("attempt_failed")]
    assert waits[:2] == [0.0, 0.0], "neither the first loss of a node nor a resize waits"
    assert set(waits[2:]) <= {10 * SECOND, 30 * SECOND}
    assert 10 * SECOND in waits
    grown = next(event for event in watched.events("run_started") if event.at_s > asked.at_s)
    assert grown.data["repeated_batches"] == 0, "a checkpoint goes before a planned resize"
    found = verify(watched.home.run(config.run))
    assert found.sound
    assert set(found.worlds) == {1, 2}
    reference = replace(config, home=tmp_path / "reference", record_consumed=False)
    digest = last_line(log.read_text("utf-8"), "blake3:")
    assert digest == digest_of_same_history(reference, history_of(config.home, config.run))
