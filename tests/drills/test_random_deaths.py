"""Twenty deaths at random, of workers, nodes, Ray Train's controller and the driver: the run ends as if of none."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.survival.warmth import SparePolicy
from tests.drills.last_line import last_line
from tests.drills.private_cluster import PrivateCluster, private_cluster, strike, wait_for
from tests.drills.same_history import digest_of_same_history, history_of
from tests.drills.test_elastic import Watched, start
from train_jobs.config import JobConfig, Preset

SEED_VARIABLE = "FAILSOFT_DRILL_SEED"
KILLS = 20
VICTIMS = ("worker", "node", "controller", "driver")
PATIENCE_S = 600.0
EPOCHS = 6
BATCHES_PER_EPOCH = 188
"""Of the embedded corpus."""
MOST_BATCHES_LATER = 15
"""Counted in batches, so that twenty deaths leave also a quick machine room before the end."""


def job(home: Path) -> JobConfig:
    return JobConfig(
        home=home,
        run="deaths",
        preset=Preset.EMBEDDED,
        workers=2,
        snapshot_every_steps=10,
        checkpoint_every_steps=10,
        max_batches=EPOCHS * BATCHES_PER_EPOCH,
        backoff=BackoffPolicy(first_s=0.0, cap_s=0.0),
        record_consumed=True,
        preflight=None,  # has a drill of its own
        spares=SparePolicy(per_worker=0),
        publish=False,
    )


def victims(draw: random.Random) -> Iterator[str]:
    """Each kind equally often, in a drawn order."""
    drawn = list(VICTIMS) * (KILLS // len(VICTIMS))
    draw.shuffle(drawn)
    return iter(drawn)


@dataclass(frozen=True, kw_only=True)
class Struck:
    """One death."""

    victim: str
    at_s: float
    groups: int
    """Groups of workers that had begun before it."""


def report(struck: list[Struck], beginnings: list[Event]) -> str:
    """By kind: deaths, batches repeated, and seconds from each death to the next group of workers at its batch."""
    lines = []
    for victim in VICTIMS:
        ended = [one for one in struck if one.victim == victim]
        begun = [beginnings[one.groups] for one in ended]
        took = " ".join(f"{start.at_s - one.at_s:.1f}" for one, start in zip(ended, begun, strict=True))
        repeated = sum(start.count("repeated_batches", 0) for start in begun)
        lines.append(f"{victim}: {len(ended)} deaths, {repeated} batches repeated, back at work after {took} s")
    return "\n".join(lines)


class Killer:
    """Strikes, and gives the cluster a new node for each that it takes."""

    def __init__(self, cluster: PrivateCluster, watched: Watched, draw: random.Random) -> None:
        self.cluster = cluster
        self.watched = watched
        self.draw = draw
        self.struck: list[Struck] = []
        self.early = False
        """The death to come strikes before a new checkpoint; twice in a row would soon be no progress, and the end."""

    def strike(self, victim: str) -> None:
        """One death; what is to die may be just starting, so it is waited for."""
        at_s, groups = SystemClock().wall_s(), len(self.watched.events("run_started"))
        pids = {"worker": self.cluster.workers, "controller": self.cluster.controllers, "driver": self._driver}
        if victim == "node":
            manned = wait_for(self._manned, "a node with a worker", PATIENCE_S)
            at_s = SystemClock().wall_s()
            self.cluster.kill_node(self.draw.choice(manned))
            self.cluster.add_node()
        else:
            while not strike(self.draw.choice(wait_for(pids[victim], f"a {victim}", PATIENCE_S))):
                continue
        self.struck.append(Struck(victim=victim, at_s=at_s, groups=groups))

    def _driver(self) -> list[int]:
        return [int(event.data["process"]) for event in self.watched.events("driver_started")[-1:]]

    def _manned(self) -> list[object]:
        return [node for node in self.cluster.nodes if self.cluster.workers_of(node)]

    def later(self, groups: int) -> None:
        """Let another group of workers get to a random batch, each second time at least beyond a new checkpoint."""
        early = not self.early and self.draw.random() < 2 / 3
        self.early = early
        wait_for(lambda: self._at_work(groups, early=early), f"group {groups} at work", PATIENCE_S)
        until = self._position() + self.draw.randint(1, MOST_BATCHES_LATER)
        wait_for(lambda: self._position() >= until, f"batch {until}", PATIENCE_S)

    def _at_work(self, groups: int, *, early: bool) -> bool:
        if not early:
            return self.watched.works_with(2, groups=groups)
        begun = self.watched.events("run_started")
        return len(begun) >= groups and self._position() > begun[-1].count("position", 0)

    def _position(self) -> int:
        return self.watched.mark.read() or 0


@pytest.mark.drill
def test_twenty_random_deaths_change_no_bit_of_the_weights_and_each_sample_is_seen_once(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
    print(f"{SEED_VARIABLE}={seed}")
    draw = random.Random(seed)
    config, log = job(tmp_path / "home"), tmp_path / "log"
    watched = Watched(config)
    with private_cluster(nodes=3) as cluster:
        killer = Killer(cluster, watched, draw)
        process = start(config, cluster, log)
        try:
            groups = 1
            for victim in victims(draw):
                killer.later(groups=groups)
                groups = len(watched.events("run_started")) + 1
                killer.strike(victim)
            killer.later(groups=groups)
            assert process.wait(timeout=PATIENCE_S) == 0, log.read_text("utf-8")
            assert len(cluster.cleaners()) <= 1  # of each dead controller, but the last, which Ray may not know yet
        finally:
            process.kill()
            process.wait()
    print(report(killer.struck, watched.events("run_started")))
    assert Counter(one.victim for one in killer.struck) == dict.fromkeys(VICTIMS, KILLS // len(VICTIMS))
    found = verify(watched.home.run(config.run))
    assert found.sound
    assert len(found.epochs) == EPOCHS
    assert all(count == 0 for epoch in found.epochs for fate, count in epoch.counts.items() if fate is not Fate.ONCE)
    assert set(found.worlds) == {2}
    reference = replace(config, home=tmp_path / "reference", record_consumed=False)
    digest = last_line(log.read_text("utf-8"), "blake3:")
    assert digest == digest_of_same_history(reference, history_of(config.home, config.run)), f"seed {seed}"
