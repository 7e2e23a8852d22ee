"""Writers of several ranks on one disk: all shards, or no checkpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, IncompatibleArtifactError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.training.checkpoints.inspection import newest_healthy
from failsoft.training.checkpoints.retention import Last, to_plain
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import PATIENCE_S, Around, Staging
from failsoft.training.checkpoints.tensor_file import Stamp, TensorSpec, lay_out
from failsoft.training.checkpoints.writer_order import Order, Written, carry_out

WORLD = 3
FILES = [f"shard-0000{rank}-of-00003.safetensors" for rank in range(WORLD)]


def tensors(rank: int, position: int) -> bytes:
    """A rank's tensor file: one tensor, stamped."""
    layout = lay_out({"w": TensorSpec(dtype="U8", shape=(1000,))})
    content = bytearray(layout.header + bytes([rank + position]) * 1000)
    stamp = Stamp(position=position, step=position).to_header()
    content[9 : 9 + len(stamp)] = stamp
    return bytes(content)


class Rank:
    """One rank's writer on its way through checkpoints."""

    def __init__(self, root: Path, rank: int, *, attempt: str = "one", around: Around | None = None) -> None:
        self.store = ArtifactStore(root, SystemClock(), kind="checkpoint")
        self.place = ShardPlace(rank=rank, world=WORLD, attempt=attempt)
        self.around = around or Around(clock=SystemClock())

    def write(self, position: int, *, of: int | None = None, keep: int = 3) -> Written:
        """Write this rank's part; ``of`` is the moment that its memory holds, if another one."""
        content = tensors(self.place.rank, position if of is None else of)
        said = {"position": position if of is None else of, "step": position if of is None else of}
        scalars = json.dumps(said).encode() if self.place.leads else b""
        order = Order(
            root=str(self.store.root),
            kind="checkpoint",
            name=f"position-{position:012d}",
            meta={"healthy": True, "position": position, "step": position},
            tensors_bytes=len(content),
            scalars_bytes=len(scalars),
            rules=tuple(to_plain([Last(count=keep)])),
            shard=self.place,
        )
        return carry_out(order, memoryview(content + scalars), self.store, around=self.around)

    def staging(self, position: int) -> Staging:
        return Staging(root=self.store.root, name=f"position-{position:012d}", place=self.place)


def together(*works: Callable[[], object]) -> list[object]:
    """What each gave or raised, all at once."""
    results: list[object] = [None] * len(works)

    def one(number: int) -> None:
        try:
            results[number] = works[number]()
        except (ArtifactError, OSError) as error:
            results[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def ranks(root: Path, *, attempt: str = "one") -> list[Rank]:
    return [Rank(root, rank, attempt=attempt) for rank in range(WORLD)]


def hidden(root: Path) -> list[str]:
    return [path.name for path in root.glob(".*") if path.is_dir()]


def test_the_shards_of_all_ranks_become_visible_together_under_one_manifest(tmp_path: Path) -> None:
    for position in (1, 2):
        done = together(*(lambda one=one, at=position: one.write(at) for one in ranks(tmp_path)))
        assert all(isinstance(written, Written) for written in done), done
    newest = newest_healthy(ArtifactStore(tmp_path, SystemClock(), kind="checkpoint"))
    assert newest is not None
    assert sorted(newest.manifest.files) == [*FILES, "state.json"]
    assert newest.manifest.meta["parts"] == {file: {"position": 2, "step": 2} for file in [*FILES, "state.json"]}
    assert [(newest.path / file).read_bytes() for file in FILES] == [tensors(rank, 2) for rank in range(WORLD)]
    assert hidden(tmp_path) == []


def test_nothing_is_visible_while_a_shard_is_missing_and_it_is_given_up_when_nothing_moves(tmp_path: Path) -> None:
    clock = ManualClock()
    first, second, _ = ranks(tmp_path)
    first.around = Around(clock=clock)
    second.write(1)
    with pytest.raises(ArtifactMissingError, match=r"shards of ranks \[2\] .* nothing moved .* share this storage"):
        first.write(1)
    assert clock.monotonic_s() >= PATIENCE_S
    assert first.store.listing() == []
    assert hidden(tmp_path) == []


def test_a_shard_that_grows_is_waited_for_however_long_it_takes(tmp_path: Path) -> None:
    first, second, third = ranks(tmp_path)
    clock, growing = ManualClock(), third.staging(1).folder / f".{FILES[2]}"
    second.write(1)

    def beat() -> None:
        if clock.monotonic_s() < 3 * PATIENCE_S:
            clock.advance(PATIENCE_S / 2)
            growing.write_bytes(b"x" * int(clock.monotonic_s()))
        elif growing.exists():
            growing.unlink()
            third.write(1)

    first.around = Around(clock=clock, beat=beat)
    assert first.write(1).size_bytes > 3000
    assert [artifact.name for artifact in first.store.listing()] == ["position-000000000001"]


def test_a_writer_whose_training_is_gone_does_not_keep_the_next_attempt_waiting(tmp_path: Path) -> None:
    clock = ManualClock()
    first = Rank(tmp_path, 0, around=Around(clock=clock, alone=lambda: True))
    with pytest.raises(ArtifactMissingError, match=r"ranks \[1, 2\]"):
        first.write(1)
    assert clock.monotonic_s() < 3.0


def test_a_disk_that_refuses_one_rank_is_known_to_the_first_at_once(tmp_path: Path) -> None:
    first, second, third = ranks(tmp_path)
    (third.staging(1).folder / f".{FILES[2]}").mkdir(parents=True)  # no file can be written there
    with pytest.raises(OSError, match="shard-00002"):
        third.write(1)
    second.write(1)
    with pytest.raises(
        ArtifactError, match=r"rank 2 could not write its shard of position-000000000001: .*shard-00002"
    ):
        first.write(1)
    assert first.store.listing() == []


def test_a_shard_of_another_step_is_refused_whether_memory_or_disk_holds_it(tmp_path: Path) -> None:
    first, second, third = ranks(tmp_path)
    with pytest.raises(IncompatibleArtifactError, match="parts of different steps"):
        second.write(2, of=1)
    second.write(2)
    note = third.staging(2).folder / "rank-00002.json"
    third.write(2)
    note.write_text(json.dumps(json.loads(note.read_text("utf-8")) | {"position": 1, "step": 1}), "utf-8")
    with pytest.raises(IncompatibleArtifactError, match=r"shards of different steps: .* rank 2's says"):
        first.write(2)
    assert first.store.listing() == []


def test_what_a_killed_attempt_left_is_swept_and_never_mixed_in(tmp_path: Path) -> None:
    for left in ranks(tmp_path, attempt="killed")[1:]:
        left.write(1)  # its rank 0 died
    late = Rank(tmp_path, 1)
    late.write(2)  # this attempt's, ahead of its rank 0
    first, second, third = ranks(tmp_path)
    assert all(
        isinstance(one, Written)
        for one in together(lambda: third.write(1), lambda: second.write(1), lambda: first.write(1))
    )
    assert hidden(tmp_path) == [late.staging(2).folder.name]


def test_a_writer_that_takes_over_from_one_killed_after_publishing_does_not_wait_for_shards_again(
    tmp_path: Path,
) -> None:
    together(*(lambda one=one: one.write(1) for one in ranks(tmp_path)))
    clock = ManualClock()
    again = Rank(tmp_path, 0, around=Around(clock=clock)).write(1)  # nobody was told of it
    assert again.removed == ()
    assert clock.monotonic_s() == ManualClock().monotonic_s()
    assert [artifact.name for artifact in ArtifactStore(tmp_path, SystemClock(), kind="checkpoint").listing()] == [
        "position-000000000001"
    ]
    assert hidden(tmp_path) == []


def test_an_older_checkpoint_goes_when_the_new_one_stands_and_not_before(tmp_path: Path) -> None:
    for position in (1, 2):
        together(*(lambda one=one, at=position: one.write(at, keep=1) for one in ranks(tmp_path)))
    first = Rank(tmp_path, 0, around=Around(clock=ManualClock()))
    with pytest.raises(ArtifactMissingError):
        first.write(3, keep=1)
    assert [artifact.name for artifact in first.store.listing()] == ["position-000000000002"]
