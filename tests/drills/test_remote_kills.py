"""Copies on a mounted folder, while the process that makes them is killed, or the folder's disk is full."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer_link import MIRROR, ProcessLink
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket

BYTES = 12 * 1024 * 1024


class Run:
    """Publishes here; a real process copies there."""

    def __init__(self, folder: Path, there: Path, *, keep: int = 2) -> None:
        self.links: list[ProcessLink] = []
        self.url = f"file://{there}"
        self.store = ArtifactStore(folder / "here", SystemClock(), kind="checkpoint")
        self.mirror = Mirror(
            self.store,
            self.url,
            clock=SystemClock(),
            rng=random.Random(1),
            policy=MirrorPolicy(backoff=BackoffPolicy(first_s=0.05, cap_s=0.05)),
            rules=(Last(count=keep),),
            start=self.start,
        )

    def start(self) -> ProcessLink:
        self.links.append(ProcessLink(MIRROR))
        return self.links[-1]

    def publish(self, position: int, *, size: int = BYTES) -> None:
        meta = {"position": position, "step": position, "healthy": True}

        def fill(folder: Path) -> None:
            (folder / "weights").write_bytes(position.to_bytes(4, "big") * (size // 4))

        self.store.publish(f"at-{position}", fill, meta=meta)
        self.mirror.offer(Ticket(name=f"at-{position}", position=position, step=position, meta=meta))

    def newest_there(self) -> int:
        """Position of what a fresh machine would go on from; every byte of it is read. 0: nothing."""
        remote = RemoteStore(place_of(self.url), kind="checkpoint")
        there = [one for one in remote.shelf().there if one.damage is None]
        assert [remote.verify(one) for one in there] == [None] * len(there), "a kill made damage visible"
        return max((int(one.manifest.meta["position"]) for one in there), default=0)

    def done(self) -> None:
        self.mirror.part()
        for link in self.links:
            link.process.wait(30)


@pytest.mark.drill
def test_thirty_kills_at_any_moment_of_a_copy_leave_the_old_or_the_new_one_whole(tmp_path: Path) -> None:
    run, rng, newest, unfinished = Run(tmp_path, tmp_path / "there"), random.Random(23), 0, 0
    longest_s = 0.08
    try:
        for position in range(1, 31):
            run.mirror.ask_listing().poll(60.0)  # a process stands ready
            run.publish(position)
            SystemClock().sleep_s(rng.random() * longest_s)
            run.links[-1].process.kill()
            run.links[-1].process.wait(30)
            found = run.newest_there()
            assert found in {newest, position}
            unfinished += found != position
            longest_s *= 1.2 if found != position else 0.8  # so that on any machine some come too late and some do not
            assert run.mirror.drain(within_s=60.0)  # another process does it
            newest = run.newest_there()
            assert newest == position
    finally:
        run.done()
    assert unfinished > 3


@pytest.mark.drill
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_remote_disk_that_is_really_full_keeps_the_old_copy_and_takes_the_new_one_when_there_is_room(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this container may not mount")
    run = Run(tmp_path, disk / "copies", keep=1)
    try:
        run.publish(1)
        assert run.mirror.drain(within_s=60.0)
        run.publish(2)
        news: list[News] = []
        while len(news) < 2:
            assert not run.mirror.drain(within_s=3.0)
            news += run.mirror.look()
        assert news[0].kind is NewsKind.MIRRORED
        assert {one.kind for one in news[1:]} == {NewsKind.MIRROR_FAILED}
        assert "No space left" in news[-1].why
        assert run.newest_there() == 1
        assert run.store.open("at-2").manifest.meta["position"] == 2
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert run.mirror.drain(within_s=60.0)
        assert run.newest_there() == 2
    finally:
        run.done()
        subprocess.run(["umount", "-l", str(disk)], check=True)
