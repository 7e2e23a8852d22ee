"""Fifty kills in the middle of writing: what comes after finds a whole checkpoint, and loses none it was told of."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer_order import Order, carry_out
from tests.conftest import ROOT
from tests.drills.ckpt_victim import SCALARS_BYTES, TENSORS_BYTES, content

WHOLE_BYTES = TENSORS_BYTES + SCALARS_BYTES


def start(folder: Path, first: int, doom_bytes: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.drills.ckpt_victim", str(folder), str(first), str(doom_bytes)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def checked_newest(folder: Path) -> int:
    """What a new attempt does: sweep, then the newest whole one; its bytes must be those of its position."""
    damage: list[str] = []
    store = ArtifactStore(folder, SystemClock(), kind="checkpoint")
    store.sweep_orphans()
    newest = newest_healthy(store, on_damage=lambda name, _why: damage.append(name))
    assert damage == [], "a kill made damage visible"
    assert list(folder.glob(".aside-*")) == []
    if newest is None:
        return 0
    position = int(newest.manifest.meta["position"])
    written = (newest.path / "state.safetensors").read_bytes() + (newest.path / "state.json").read_bytes()
    assert written == content(position)
    return position


def told(process: subprocess.Popen[str]) -> int:
    """The last position that the killed process said it had published; 0 for none."""
    lines = process.communicate(timeout=60)[0].split()
    assert process.returncode == -9
    return int(lines[-1]) if lines else 0


@pytest.mark.drill
def test_thirty_kills_at_exact_bytes_of_a_write_lose_nothing_that_was_published(tmp_path: Path) -> None:
    rng, newest = random.Random(23), 0
    for _ in range(30):
        said = told(start(tmp_path, newest + 1, rng.randrange(2 * WHOLE_BYTES)))
        found = checked_newest(tmp_path)
        assert found >= max(said, newest)
        newest = found
    assert newest > 5


@pytest.mark.drill
def test_twenty_kills_at_any_moment_lose_nothing_that_was_published(tmp_path: Path) -> None:
    rng, newest = random.Random(24), 0
    for _ in range(20):
        process = start(tmp_path, newest + 1, -1)
        assert process.stdout is not None
        first = int(process.stdout.readline())
        for _ in range(rng.randrange(4)):  # a random publication, then a random moment of the next
            first = int(process.stdout.readline())
        SystemClock().sleep_s(rng.random() * 0.02)
        process.kill()
        said = max(told(process), first)
        found = checked_newest(tmp_path)
        assert found >= said > newest
        newest = found


@pytest.mark.drill
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_on_a_disk_that_is_really_full_the_only_checkpoint_stands(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        store = ArtifactStore(disk / "checkpoints", SystemClock(), kind="checkpoint")
        publish(store, 1)
        with pytest.raises(OSError, match="No space left"):
            publish(store, 2)
        assert checked_newest(store.root) == 1
        with pytest.raises(OSError, match="No space left"):
            publish(store, 3)
        assert store.open("position-1").manifest.meta["position"] == 1
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(OSError, match="Read-only"):
            publish(store, 4)
        subprocess.run(["mount", "-o", "remount,rw,size=4m", str(disk)], check=True)
        publish(store, 5)
        with pytest.raises(ArtifactError):
            store.open("position-1")  # kept until the new one was safe, then removed by the rule of one
        assert checked_newest(store.root) == 5
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def publish(store: ArtifactStore, position: int) -> None:
    order = Order(
        root=str(store.root),
        kind="checkpoint",
        name=f"position-{position}",
        meta={"position": position, "healthy": True},
        tensors_bytes=TENSORS_BYTES,
        scalars_bytes=SCALARS_BYTES,
        rules=({"rule": "last", "count": Last(count=1).count},),
    )
    carry_out(order, memoryview(content(position)), store)
