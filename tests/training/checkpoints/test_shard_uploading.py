"""Writers of ranks that share nothing but a remote store: all shards, or no checkpoint."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints import shard_uploading
from failsoft.training.checkpoints.landing import Landing
from failsoft.training.checkpoints.mirror_filesystem import packed
from failsoft.training.checkpoints.mirror_work import MirrorWork
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import PATIENCE_S, Around
from failsoft.training.checkpoints.withdrawn import note_withdrawn
from failsoft.training.checkpoints.writer_order import Order, Written, carry_out
from tests.artifacts.odd_files import Dies, Disk, Plan, as_planned
from tests.training.checkpoints.test_shard_writing import FILES, WORLD, tensors

URL = "odd://root/run"
DIGITS = "0123456789abcdef"


class Group:
    """Ranks whose writers upload, each on a disk of its own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, atomic: bool = True) -> None:
        self.root = root
        self.disk = Disk()
        self.clock = ManualClock()
        self.atomic = atomic
        self.plan: Plan = as_planned
        monkeypatch.setattr(shard_uploading, "place_of", lambda _url: self.disk.place(self.plan, atomic=atomic))

    def write(self, rank: int, position: int, *, of: int | None = None, plan: Plan = as_planned) -> Written:
        """One rank's part; ``of`` is the moment that its memory holds, if another one."""
        self.plan = plan
        moment = position if of is None else of
        content, name = tensors(rank, moment), f"position-{position:012d}"
        scalars = json.dumps({"position": moment, "step": moment}).encode() if rank == 0 else b""
        landing = Landing(url=URL, folder=f"{name}.{DIGITS}")
        store = ArtifactStore(self.root / f"disk-{rank}", self.clock, kind="checkpoint")
        order = Order(
            root=str(store.root),
            kind="checkpoint",
            name=name,
            meta={"healthy": True, "position": moment, "step": moment, "shards": {"files": WORLD}},
            tensors_bytes=len(content),
            scalars_bytes=len(scalars),
            shard=ShardPlace(rank=rank, world=WORLD, attempt="one", landing=landing),
        )
        order = Order.from_plain(json.loads(json.dumps(order.to_plain())))
        return carry_out(order, memoryview(content + scalars), store, around=Around(clock=self.clock))

    def there(self) -> list[int]:
        """Positions of what counts; every byte of it is read."""
        remote = RemoteStore(self.disk.place(), kind="checkpoint")
        shelf = remote.shelf()
        assert [remote.verify(one) for one in shelf.there] == [None] * len(shelf.there)
        return sorted(int(one.manifest.meta["position"]) for one in shelf.there)

    def files(self, position: int) -> dict[str, bytes]:
        inside = f"root/run/position-{position:012d}.{DIGITS}/"
        return {path.removeprefix(inside): one for path, one in self.disk.files.items() if path.startswith(inside)}

    def ask(self, do: str, what: str = "", **more: Any) -> dict[str, Any]:
        """Of rank 0's mirror."""
        work = MirrorWork(lambda _url: self.disk.place(), self.clock)
        order = {"do": do, "url": URL, "root": str(self.root / "disk-0"), "kind": "checkpoint", "what": what}
        return work.answer(order | {"rules": [{"rule": "last", "count": 2}], "files": []} | more, lambda: None)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    return Group(tmp_path, monkeypatch)


def test_the_shards_of_all_ranks_become_visible_together_and_no_local_disk_is_touched(group: Group) -> None:
    for rank in (2, 1):
        group.write(rank, 1)
        assert group.there() == []
    written = group.write(0, 1)
    assert group.there() == [1]
    files = group.files(1)
    assert {name: files[name] for name in FILES} == {file: tensors(rank, 1) for rank, file in enumerate(FILES)}
    assert sorted(files) == sorted([*FILES, "manifest.json", "state.json"])
    assert written.size_bytes == sum(len(files[name]) for name in (*FILES, "state.json"))
    assert not list(group.root.glob("disk-*"))


@pytest.mark.parametrize("atomic", [True, False], ids=["object store", "mounted folder"])
@pytest.mark.parametrize("struck", [0, 1])
def test_a_writer_that_dies_at_any_operation_leaves_nothing_visible_or_all_of_it_and_another_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, struck: int, *, atomic: bool
) -> None:
    died = 0
    for at in itertools.count(1):
        group, death = Group(tmp_path, monkeypatch, atomic=atomic), Dies(at)
        for rank in (1, 2, 0):
            try:
                group.write(rank, 1, plan=death if rank == struck else as_planned)
            except (ArtifactError, OSError):
                assert rank in {0, struck}
        assert group.there() in ([], [1])
        died += group.there() == []
        for rank in (1, 2, 0):  # writers are started again with the same work
            group.write(rank, 1)
            assert group.there() in ([], [1])
        assert group.there() == [1]
        if death.seen < at:  # it came through
            break
    assert died > 5


def test_what_counts_is_never_written_over_by_a_writer_that_comes_back(group: Group) -> None:
    for rank in (1, 2, 0):
        group.write(rank, 1)
    before = group.files(1)
    for rank in (0, 1, 2):
        group.write(rank, 1, plan=_nothing_again)
    assert group.files(1) == before
    assert group.there() == [1]


def _nothing_again(_number: int, kind: str, path: str) -> None:
    assert kind != "create", f"{path} counts already: who is killed while writing it again leaves it torn"


def test_a_shard_that_does_not_come_is_given_up_in_time(group: Group) -> None:
    group.write(1, 1)
    with pytest.raises(ArtifactMissingError, match=r"shards of ranks \[2\] did not come to odd://.* write there"):
        group.write(0, 1)
    assert group.clock.monotonic_s() >= PATIENCE_S
    assert group.there() == []


def test_a_rank_that_the_store_refuses_tells_the_one_that_waits(group: Group) -> None:
    def full(_number: int, kind: str, path: str) -> None:
        if kind == "write" and path.endswith(FILES[2]):
            raise OSError("507 Insufficient Storage")

    group.write(1, 1)
    with pytest.raises(OSError, match="507"):
        group.write(2, 1, plan=full)
    with pytest.raises(ArtifactError, match=r"rank 2 could not write its shard .* 507"):
        group.write(0, 1)
    assert group.clock.monotonic_s() < PATIENCE_S


def test_shards_of_different_steps_are_never_bound(group: Group) -> None:
    group.write(1, 2, of=1)
    group.write(2, 2)
    with pytest.raises(IncompatibleArtifactError, match="different steps"):
        group.write(0, 2)
    assert group.there() == []


def test_a_store_that_keeps_less_than_it_took_is_noticed_before_anything_counts(group: Group) -> None:
    group.write(1, 1)
    group.write(2, 1)
    path = next(path for path in group.disk.files if path.endswith(FILES[2]))
    group.disk.files[path] = group.disk.files[path][:-1]
    with pytest.raises(DamagedArtifactError, match=f"{FILES[2]} has .* bytes"):
        group.write(0, 1)
    assert group.there() == []


def test_only_a_process_that_may_be_killed_uploads(group: Group) -> None:
    place = ShardPlace(rank=1, world=WORLD, attempt="one", landing=Landing(url=URL, folder=f"x.{DIGITS}"))
    content = tensors(1, 1)
    order = Order(
        root="/nowhere",
        kind="checkpoint",
        name="x",
        meta={"position": 1, "step": 1},
        tensors_bytes=len(content),
        scalars_bytes=0,
        shard=place,
    )
    store = ArtifactStore(group.root, group.clock, kind="checkpoint")
    with pytest.raises(ArtifactError, match="must not wait for a store"):
        carry_out(order, memoryview(content), store, around=Around(clock=group.clock, apart=False))


def test_a_file_system_that_only_the_job_has_is_spoken_to_as_well(tmp_path: Path, group: Group) -> None:
    (tmp_path / "store").mkdir()
    landing = Landing(url=str(tmp_path / "store"), folder=f"x.{DIGITS}", filesystem=packed(fs.LocalFileSystem()))
    place = ShardPlace(rank=0, world=1, attempt="one", landing=landing)
    content, scalars = tensors(0, 1), json.dumps({"position": 1, "step": 1}).encode()
    order = Order(
        root=str(tmp_path),
        kind="checkpoint",
        name="x",
        meta={"position": 1, "step": 1},
        tensors_bytes=len(content),
        scalars_bytes=len(scalars),
        shard=place,
    )
    store = ArtifactStore(tmp_path, group.clock, kind="checkpoint")
    carry_out(order, memoryview(content + scalars), store, around=Around(clock=group.clock))
    assert sorted(path.name for path in (tmp_path / "store" / f"x.{DIGITS}").iterdir()) == [
        "manifest.json",
        "shard-00000-of-00001.safetensors",
        "state.json",
    ]


def published(group: Group, *positions: int) -> None:
    for position in positions:
        group.clock.advance(1.0)
        for rank in (1, 2, 0):
            group.write(rank, position)


def test_the_rules_of_keeping_hold_there_too(group: Group) -> None:
    published(group, 1, 2, 3)
    answer = group.ask("tidy", "position-000000000003")
    assert answer["removed"] == [f"position-000000000001.{DIGITS}"]
    assert group.there() == [2, 3]
    assert group.ask("tidy", "position-000000000001")["say"] == "gone"


def test_what_was_undone_is_not_listed_and_goes_at_the_next_chance(group: Group) -> None:
    published(group, 1, 2, 3)
    undone = f"position-000000000003.{DIGITS}"
    note_withdrawn(group.root / "disk-0", [], [undone])
    assert [one["position"] for one in group.ask("list")["entries"]] == [2, 1]
    assert group.ask("withdraw")["say"] == "withdrawn"
    assert group.there() == [1, 2]


def test_part_of_a_checkpoint_is_brought_verified_and_nothing_else(group: Group, tmp_path: Path) -> None:
    published(group, 1)
    folder, into = f"position-000000000001.{DIGITS}", tmp_path / "parts"
    answer = group.ask("part", folder, files=[FILES[1]], into=str(into))
    assert (answer["say"], answer["bytes"]) == ("fetched", len(tensors(1, 1)))
    assert sorted(path.name for path in into.iterdir()) == ["manifest.json", FILES[1]]
    assert (into / FILES[1]).read_bytes() == tensors(1, 1)
    path = next(path for path in group.disk.files if path.endswith(FILES[2]))
    group.disk.files[path] = group.disk.files[path][:-1] + b"\x00"
    assert group.ask("part", folder, files=[FILES[2]], into=str(into))["say"] == "damaged"
    assert group.ask("list")["entries"] == []
    assert group.ask("part", folder, files=["other"], into=str(into))["say"] == "damaged"


def test_a_folder_can_not_pass_for_another_by_its_name(group: Group) -> None:
    published(group, 1)
    for name, content in group.files(1).items():
        group.disk.files[f"root/run/position-000000000001.{DIGITS[::-1]}/{name}"] = content
    assert group.there() == [1]
    assert len(RemoteStore(group.disk.place(), kind="checkpoint").shelf().unfinished) == 1


def test_a_place_comes_back_from_plain_data_as_it_was() -> None:
    place = ShardPlace(rank=1, world=2, attempt="a", landing=Landing(url=URL, folder="x.y", filesystem="z"))
    assert ShardPlace.from_plain({**vars(place), "landing": vars(place.landing)}) == place
    assert ShardPlace.from_plain(vars(replace(place, landing=None))).landing is None
