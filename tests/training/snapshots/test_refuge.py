"""The parts of snapshots in memory of the host: checksum, note, folder, lock and sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.training.ranks import SoloRank
from failsoft.training.rng import capture_rng
from failsoft.training.snapshots.refuge import Refuge
from failsoft.training.snapshots.refuge_folder import RefugeFolder
from failsoft.training.snapshots.refuge_note import Moment, Note, Owner, checksum, parts_as_json, read_note
from failsoft.training.snapshots.refuge_opening import open_refuge
from failsoft.training.snapshots.snapshot import RamSnapshots, SnapshotPolicy
from failsoft.training.snapshots.snapshot_layout import divide, parts_of
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.snapshots.snapshot_restore import put_back
from failsoft.training.state import TrainingState, flatten
from failsoft.training.succession import SAVED, agreed

OWNER = Owner(run="00000000000000aa", rank=0, world=2, bound="blake3:11")
_HOLDS = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); input()"


def tensors() -> dict[str, torch.Tensor]:
    return {"model/w": torch.arange(6.0).reshape(2, 3).t(), "model/n": torch.tensor(3), "optimizer/0/m": torch.ones(5)}


def note(*, place: SnapshotPlace = SnapshotPlace.SHARDED, body: str = "body-01") -> Note:
    return Note(
        owner=OWNER,
        moment=Moment(group="g", number=1, position=12, step=11),
        body=body,
        size_bytes=64,
        checksum="x",
        place=place,
        parts=parts_as_json(parts_of(tensors(), own=frozenset({"model/n"}))),
        scalars={"position": 12, "step": 11, "scale": float("inf")},
        rng=capture_rng(),
        beside={"epoch": 1},
    )


@given(
    size=st.one_of(st.integers(1, 300), st.integers(65_530, 65_545), st.integers(131_000, 131_100)),
    data=st.data(),
)
@settings(max_examples=60)
def test_no_changed_byte_and_no_cut_escapes_the_checksum(size: int, data: st.DataObject) -> None:
    numbers = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    before, at = checksum(numbers), data.draw(st.integers(0, size - 1))
    assert checksum(numbers[:at]) != before
    assert checksum(numbers.copy()) == before
    numbers[at] ^= data.draw(st.integers(1, 255))
    assert checksum(numbers) != before


@pytest.mark.parametrize("place", list(SnapshotPlace))
def test_a_note_tells_the_next_worker_what_lies_where(place: SnapshotPlace, tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_bytes(note(place=place).as_bytes())
    found = read_note(path)
    assert found == note(place=place)
    assert found is not None
    parts = parts_of(tensors(), own=frozenset({"model/n"}))
    assert found.division(torch.device("cpu")) == divide(parts, place, 2)


@given(data=st.data())
@settings(max_examples=60)
def test_a_note_that_is_cut_or_changed_anywhere_is_none(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content, path = bytearray(note().as_bytes()), tmp_path_factory.mktemp("notes") / "note"
    at = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:at])
    assert read_note(path) is None
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert read_note(path) is None
    assert read_note(path.with_name("absent")) is None


def opened(root: Path, owner: Owner = OWNER) -> RefugeFolder:
    folder = RefugeFolder(root, owner)
    folder.open(ManualClock(), patience_s=1.0)
    return folder


@contextmanager
def held_elsewhere(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds a folder, as a worker does."""
    command = [sys.executable, "-c", _HOLDS, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_has_one_process_and_is_free_when_that_is_killed(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.close()
    with held_elsewhere(folder.path / "lock") as worker:
        with pytest.raises(TimeoutError, match="has not ended yet"):
            opened(tmp_path)
        worker.kill()
        worker.wait()
        opened(tmp_path).close()


def test_numbers_and_notes_outlive_the_folder_that_made_them_and_are_this_users_alone(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    body = folder.new_body(64, max_fraction=0.5)
    body.numbers[:] = 7
    folder.write_note(note(body=body.path.name))
    folder.write_note(replace(note(body="body-02"), owner=replace(OWNER, bound="another run")))
    folder.close()
    again = opened(tmp_path)
    assert [found.body for found in again.notes()] == [body.path.name]
    assert again.old_body(body.path.name, 64).numbers.tolist() == [7] * 64
    assert {path.stat().st_mode & 0o777 for path in again.path.iterdir()} == {0o600}
    with pytest.raises(OSError, match="not of 65 bytes"):
        again.old_body(body.path.name, 65)


@pytest.mark.parametrize("trap", ["open to others", "a link elsewhere"])
def test_a_folder_that_somebody_else_could_have_prepared_is_refused(trap: str, tmp_path: Path) -> None:
    top = tmp_path / f"failsoft-{os.getuid()}"
    if trap == "open to others":
        top.mkdir()
        top.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        top.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="remove it"):
        opened(tmp_path)


def test_the_sweep_takes_what_nobody_comes_back_for_and_nothing_else(tmp_path: Path) -> None:
    owners = {
        "mine": OWNER,
        "fellow": replace(OWNER, rank=1),
        "fellow that is on another host now": replace(OWNER, rank=2),
        "other shape": replace(OWNER, world=3),
        "orphan": replace(OWNER, run="00000000000000bb"),
        "at work": replace(OWNER, run="00000000000000cc"),
    }
    folders = {name: opened(tmp_path, owner) for name, owner in owners.items()}
    for folder in folders.values():
        folder.close()
    mine = opened(tmp_path)
    now_s = max(path.stat().st_mtime for path in tmp_path.rglob("*"))
    with held_elsewhere(folders["at work"].path / "lock"), held_elsewhere(folders["fellow"].path / "lock"):
        gone = {folders[name].path for name in ("other shape", "fellow that is on another host now")}
        assert set(mine.sweep(now_s + 50.0, orphan_after_s=60.0)) == gone
        assert mine.sweep(now_s + 70.0, orphan_after_s=60.0) == [folders["orphan"].path]
    there = {name for name, folder in folders.items() if folder.path.exists()}
    assert there == {"mine", "fellow", "at work"}


def offer(position: int, *, saved: int = -1, group: str = "g") -> dict[str, object]:
    return {"group": group, "number": position, "position": position, "step": position, SAVED: saved}


@pytest.mark.parametrize(
    ("first", "second", "newest", "damaged", "positions"),
    [
        ([offer(4), offer(8)], [offer(4), offer(8)], -1, [], [8, 4]),
        ([offer(4), offer(8)], [offer(4)], -1, [], [4]),
        ([offer(4), offer(8)], [], -1, [], []),
        ([offer(8)], [offer(8, group="an older group")], -1, [], []),
        ([offer(4), offer(8)], [offer(4), offer(8)], 4, [], [8]),
        ([offer(8)], [offer(8)], 8, [], []),
        ([offer(8, saved=6)], [offer(8, saved=6)], 2, [], []),
        ([offer(8, saved=6)], [offer(8, saved=6)], 2, [6], [8]),
    ],
)
def test_ranks_go_on_from_the_newest_moment_that_all_of_them_hold(
    first: list[dict[str, object]],
    second: list[dict[str, object]],
    newest: int,
    damaged: list[int],
    positions: list[int],
) -> None:
    assert [moment.position for moment in agreed([first, second], newest=newest, damaged=damaged)] == positions


@pytest.mark.cuda
def test_a_state_on_a_gpu_outlives_its_worker_in_pinned_memory(tmp_path: Path) -> None:
    model = torch.nn.Linear(300, 300, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    model(torch.ones(2, 300, device="cuda")).sum().backward()
    optimizer.step()
    state = TrainingState(model=model, optimizer=optimizer)
    policy = SnapshotPolicy(host_folder=tmp_path)

    def arrive() -> Refuge:
        run, ranks, clock = tmp_path / "run", SoloRank(), ManualClock()
        refuge, refusal = open_refuge(policy, run_folder=run, bound="b", ranks=ranks, clock=clock)
        assert refuge is not None, refusal
        return refuge

    first, snapshots = arrive(), RamSnapshots(state)
    snapshots.room = first
    assert snapshots.take() is None
    first.close()
    assert first.refusal is None
    before = {name: tensor.clone() for name, tensor in flatten(state).tensors.items()}
    with torch.no_grad():
        model.weight.zero_()
    optimizer.state.clear()
    second = arrive()
    held = second.held(second.notes()[-1], torch.device("cuda"))
    assert held is not None
    put_back(held, flatten(state).tensors, state, SoloRank(), with_counts=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in flatten(state).tensors.items())
    second.remove()


@pytest.mark.parametrize("fraction", [0.0, 1.1, float("nan")])
def test_a_share_of_the_hosts_memory_is_a_fraction(fraction: float) -> None:
    with pytest.raises(ConfigError, match="max_host_fraction"):
        SnapshotPolicy(max_host_fraction=fraction)
