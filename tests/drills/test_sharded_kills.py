"""A sharded run whose ranks are killed again and again, in the middle of a write too, ends as the undisturbed one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE
from tests.conftest import ROOT
from tests.training.sharded_toys import differing

PATIENCE_S = 240.0
LAST_WORDS = 4000
"""Characters of what a rank said on stderr."""


class Group:
    """The ranks of one attempt."""

    def __init__(self, folder: Path, attempt: int, *, world: int = 2, host: str = "off") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        meeting = folder / f"meeting-{attempt}"
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.drills.sharded_rank"]
        environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", HOST_MEMORY_VARIABLE: host}
        self.said = [folder.with_name(f"{folder.name}-said-{attempt}-{rank}") for rank in range(world)]
        self.ranks = []
        for rank, path in enumerate(self.said):
            with path.open("wb") as said:
                one = [*command, str(rank), str(world), str(folder), str(meeting)]
                self.ranks.append(subprocess.Popen(one, cwd=ROOT, env=os.environ | environment, stderr=said))

    def finish(self) -> None:
        """Wait for all; none may end but well, and one that does has its last words shown."""
        try:
            for rank in self.ranks:
                rank.wait(timeout=PATIENCE_S)
        finally:
            self.kill()
        ends = [rank.returncode for rank in self.ranks]
        said = [path.read_text("utf-8", "replace")[-LAST_WORDS:] for path in self.said]
        assert not any(ends), f"the ranks ended with {ends}\n" + "\n".join(
            f"rank {rank}: {words}" for rank, words in enumerate(said)
        )

    def kill(self, first: int = 0) -> None:
        """One, then the others: without a fellow no rank goes on."""
        for rank in [self.ranks[first], *self.ranks]:
            rank.kill()
        for rank in self.ranks:
            rank.wait()

    def write_begins(self, clock: SystemClock, *, beyond: set[str]) -> bool:
        """Wait until shards are being written that were not there; False when the run ended before."""
        return self._sees(clock, lambda: bool(self.staged() - beyond))

    def publishes(self, clock: SystemClock, *, beyond: set[str]) -> bool:
        """Wait until a checkpoint is there that was not; False when the run ended before."""
        return self._sees(clock, lambda: bool(self.published() - beyond))

    def _sees(self, clock: SystemClock, what: Callable[[], bool]) -> bool:
        deadline_s = clock.monotonic_s() + PATIENCE_S
        while clock.monotonic_s() < deadline_s and all(rank.poll() is None for rank in self.ranks):
            if what():
                return True
            clock.sleep_s(0.001)
        return False

    def published(self) -> set[str]:
        """Checkpoints that are there."""
        return {path.name for path in (self.folder / "checkpoints").glob("position-*")}

    def staged(self) -> set[str]:
        """Checkpoints whose shards are being written, or were when somebody was killed."""
        return {path.name for path in (self.folder / "checkpoints").glob(".shards-*-position-*")}


def ends_of(folder: Path, world: int = 2) -> list[dict[str, torch.Tensor]]:
    return [torch.load(folder / f"end-{rank}.pt", weights_only=True) for rank in range(world)]


def events(folder: Path, *kinds: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind in kinds]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("drill") / "whole"
    Group(folder, 0).finish()
    return ends_of(folder)


@pytest.mark.drill
@pytest.mark.parametrize("memory", [False, True], ids=["by disk", "by memory of the host"])
def test_ranks_killed_in_mid_write_end_bit_for_bit_as_the_undisturbed_run(
    tmp_path: Path, undisturbed: list[dict[str, torch.Tensor]], memory: bool
) -> None:
    rng, clock, folder = random.Random(7 + memory), SystemClock(), tmp_path / "killed"
    (tmp_path / "host").mkdir()
    kills = 0
    for attempt in range(6):
        group = Group(folder, attempt, host=str(tmp_path / "host") if memory else "off")
        before = group.staged()
        alive = group.write_begins(clock, beyond=before)
        if alive and rng.random() < 0.5:  # the next write instead of the first of this attempt
            alive = group.write_begins(clock, beyond=before | group.staged())
        if alive:
            clock.sleep_s(rng.random() * 0.03)
            kills += group.ranks[0].poll() is None
        group.kill(rng.randrange(2))
    Group(folder, 99, host=str(tmp_path / "host") if memory else "off").finish()
    assert kills >= 4
    assert [differing(*pair) for pair in zip(ends_of(folder), undisturbed, strict=True)] == [[], []]
    assert events(folder, "checkpoint_quarantined") == []
    sources = {str(event.data["source"]) for event in events(folder, "restored")}
    assert ("memory of the host" in sources) is memory


@pytest.mark.drill
def test_a_run_killed_at_two_ranks_goes_on_at_one_and_ends_at_two(tmp_path: Path) -> None:
    clock, folder = SystemClock(), tmp_path / "resized"
    for attempt, world in enumerate((2, 1)):
        group = Group(folder, attempt, world=world)
        assert group.publishes(clock, beyond=group.published())
        group.kill()
    Group(folder, 2).finish()
    started = [(int(one.data["position"]), int(one.data["world"])) for one in events(folder, "run_started")]
    assert [world for _, world in started] == [2, 1, 2]
    assert 0 < started[1][0] < started[2][0] < 60
    assert len(events(folder, "run_finished")) == 1
