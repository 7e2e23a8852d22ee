"""What the mirror leaves on the remote store: by the rules of keeping, and nothing of what was taken back here."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.artifacts.remote_place import Place
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.mirror import listing_of
from failsoft.training.checkpoints.mirror_order import MirrorOrder
from failsoft.training.checkpoints.mirror_work import MirrorWork
from failsoft.training.checkpoints.withdrawn import note_withdrawn
from tests.artifacts.odd_files import Disk
from tests.training.checkpoints.test_mirror import COPIED, MIRRORED, POLICY, Bench, ticket
from tests.training.fake_link import refused
from tests.training.here_link import mirror_here


class Shop:
    """A local store and a mirror that works at once, on a disk of the test's."""

    def __init__(self, folder: Path, disk: Disk, *, keep: int = 2) -> None:
        self.clock = ManualClock()
        self.store = ArtifactStore(folder / "checkpoints", self.clock, kind="checkpoint")
        self.disk = disk
        self.mirror = mirror_here(self.store, disk.place(), clock=self.clock, keep=keep)

    def publish(self, position: int) -> None:
        meta = {"position": position, "step": position, "healthy": True}
        self.clock.advance(1.0)
        self.store.publish(f"at-{position}", lambda folder: _put(folder, position), meta=meta)
        self.mirror.offer(ticket(position))
        self.mirror.look()

    def there(self) -> list[int]:
        request = self.mirror.ask_listing()
        request.poll(1.0)
        return [entry.position for entry in listing_of(request.result()).entries]


def _put(folder: Path, position: int) -> None:
    (folder / "state").write_text(str(position), "utf-8")


def test_the_remote_store_keeps_by_the_same_rules(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk())
    for position in (1, 2, 3, 4):
        shop.publish(position)
    assert shop.there() == [4, 3]
    assert {path.split("/")[2].split(".")[0] for path in shop.disk.files} == {"at-3", "at-4"}


def test_a_marked_one_does_not_count_so_the_last_good_one_stays(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk(), keep=1)
    shop.publish(1)
    shop.publish(2)
    (folder,) = {path.split("/")[2] for path in shop.disk.files}
    shop.disk.files[f"root/run/{folder}/damaged.txt"] = b"bits"
    shop.publish(3)
    assert shop.there() == [3]


def test_what_was_taken_back_is_not_listed_and_goes_with_the_next_copy(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk(), keep=9)
    for position in (1, 2, 3):
        shop.publish(position)
    note_withdrawn(shop.store.root, [shop.store.open("at-2"), shop.store.open("at-3")])
    for name in ("at-2", "at-3"):
        shop.store.remove(name)
    assert shop.there() == [1]
    shop.publish(2)
    assert shop.there() == [2, 1]
    assert len({path.split("/")[2] for path in shop.disk.files}) == 2


def test_what_was_taken_back_goes_at_once_so_that_a_fresh_machine_never_finds_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk(), keep=9)
    for position in (1, 2, 3):
        shop.publish(position)
    note_withdrawn(shop.store.root, [shop.store.open("at-3")])
    shop.store.remove("at-3")
    shop.mirror.take_back(ticket(2))
    shop.mirror.look()
    assert not shop.mirror.busy
    assert {path.split("/")[2].split(".")[0] for path in shop.disk.files} == {"at-1", "at-2"}


def test_the_only_ones_a_fresh_machine_could_go_on_from_are_taken_back_when_another_is_there(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk(), keep=1)  # the one before was never copied: the remote store was too slow for both
    shop.publish(3)
    note_withdrawn(shop.store.root, [shop.store.open("at-3")])
    shop.store.remove("at-3")
    shop.mirror.take_back(ticket(2))
    shop.mirror.look()
    assert not shop.mirror.busy
    assert shop.there() == []  # this machine never goes on from it
    assert {path.split("/")[2].split(".")[0] for path in shop.disk.files} == {"at-3"}
    shop.publish(2)
    assert shop.there() == [2]
    assert {path.split("/")[2].split(".")[0] for path in shop.disk.files} == {"at-2"}


def test_a_damaged_copy_is_none_that_anybody_could_go_on_from(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk(), keep=9)
    for position in (1, 2, 3):
        shop.publish(position)
    (damaged,) = {path.split("/")[2] for path in shop.disk.files if path.split("/")[2].startswith("at-1.")}
    shop.disk.files[f"root/run/{damaged}/damaged.txt"] = b"bits"
    note_withdrawn(shop.store.root, [shop.store.open("at-2"), shop.store.open("at-3")])
    shop.mirror.take_back(ticket(1))
    shop.mirror.look()
    assert {path.split("/")[2].split(".")[0] for path in shop.disk.files} == {"at-1", "at-3"}


def test_a_store_that_is_away_is_asked_again_to_take_back_and_before_anything_is_copied(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("away"), {"say": "withdrawn", "took_s": 0.1}, COPIED])
    bench.mirror.take_back(ticket(1))
    bench.mirror.look()
    bench.mirror.offer(ticket(2))
    assert bench.mirror.busy
    bench.clock.advance(11.0)
    kinds = [news.kind for _ in range(4) for news in bench.mirror.look()]
    assert kinds == [MIRRORED]
    assert [order["do"] for order in bench.links.started[0].orders] == ["withdraw", "withdraw", "copy"]
    assert not bench.mirror.busy


def test_a_question_lets_what_is_to_be_taken_back_wait_and_not_be_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [], [{"say": "listed", "entries": [], "foreign": ""}, {"say": "withdrawn", "took_s": 0.1}])
    bench.mirror.take_back(ticket(1))
    request = bench.mirror.ask_listing()
    assert request.poll(5.0)
    bench.mirror.look()
    bench.mirror.look()
    assert not bench.mirror.busy
    bench.mirror.part()
    assert bench.mirror.look() == []


def test_a_folder_that_nobody_finished_goes_after_its_time_and_not_before(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Disk())
    shop.disk.files["root/run/at-0.0123456789abcdef/state"] = b"half"
    shop.publish(1)
    shop.clock.advance(3000.0)
    shop.publish(2)
    assert "root/run/at-0.0123456789abcdef/state" in shop.disk.files
    shop.clock.advance(700.0)
    shop.publish(3)
    assert "root/run/at-0.0123456789abcdef/state" not in shop.disk.files


def test_any_error_of_a_file_system_is_an_answer(tmp_path: Path) -> None:
    def broken(_number: int, _kind: str, _path: str) -> None:
        raise RuntimeError("a library's own kind of error")

    store = ArtifactStore(tmp_path, ManualClock(), kind="checkpoint")
    request = mirror_here(store, Disk().place(broken), policy=POLICY).ask_listing()
    assert request.poll(100.0)
    with pytest.raises(OSError, match="RuntimeError: a library's own kind"):
        request.result()


def test_an_answer_holds_no_secret_of_the_address() -> None:
    def away(url: str) -> Place:
        raise OSError(f"{url} is away")

    order = MirrorOrder(do="list", url="abfs://c@acct/x?sig=sesame", root="/nowhere", kind="checkpoint")
    answer = MirrorWork(away, ManualClock()).answer(order.to_plain(), lambda: None)
    assert answer == {"say": "refused", "why": "OSError: abfs://c@acct/x?sig=… is away"}
