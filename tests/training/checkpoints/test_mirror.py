"""The training's side of the mirror: one at a time, the newest first, patience, and nothing of it costs a run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.mirror import Mirror, listing_of
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy, MirrorRecord, hopeless
from failsoft.training.checkpoints.withdrawn import note_withdrawn
from failsoft.training.checkpoints.writer_link import Message
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from tests.artifacts.odd_files import Disk
from tests.training.fake_link import BEAT, Dies, FakeLink, Links, refused
from tests.training.here_link import mirror_here

MIRRORED, FAILED, DROPPED = NewsKind.MIRRORED, NewsKind.MIRROR_FAILED, NewsKind.MIRROR_DROPPED
COPIED: Message = {"say": "copied", "folder": "f", "bytes": 10, "removed": [], "unpruned": "", "took_s": 0.5}
STEADY = BackoffPolicy(first_s=10.0, factor=3.0, cap_s=90.0, jitter_fraction=0.0)
POLICY = MirrorPolicy(patience_s=30.0, backoff=STEADY, tries_to_read=2)


def ticket(position: int) -> Ticket:
    return Ticket(name=f"at-{position}", position=position, step=position, meta={"position": position})


class Bench:
    """A mirror, its clock and its links."""

    def __init__(self, folder: Path, *scripts: list[object], policy: MirrorPolicy = POLICY) -> None:
        self.clock = ManualClock()
        self.links = Links(*(FakeLink(self.clock, *script) for script in scripts))  # type: ignore[arg-type]
        store = ArtifactStore(folder / "checkpoints", self.clock, kind="checkpoint")
        self.mirror = Mirror(
            store, "s3://bucket/runs", clock=self.clock, rng=random.Random(1), policy=policy, start=self.links
        )

    def told(self) -> list[tuple[NewsKind, int]]:
        return [(news.kind, news.ticket.position) for _ in range(3) for news in self.mirror.look()]

    @property
    def sent(self) -> list[str]:
        return [order["what"] for link in self.links.started for order in link.orders]


def test_nothing_is_started_before_there_is_something_to_copy(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    assert (bench.told(), bench.links.started, bench.mirror.busy) == ([], [], False)


def test_one_is_copied_one_waits_and_a_newer_one_takes_its_place_and_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    for position in (1, 2, 3, 4):
        bench.mirror.offer(ticket(position))
    assert bench.told() == [(DROPPED, 2), (DROPPED, 3)]
    bench.links.started[0].says += [COPIED, COPIED]
    assert bench.told() == [(MIRRORED, 1), (MIRRORED, 4)]
    assert bench.sent == ["at-1", "at-4"]
    assert (bench.mirror.record.copied, bench.mirror.record.dropped, bench.mirror.busy) == (2, 2, False)


def test_a_failed_copy_is_tried_again_after_waits_that_grow(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("503 Slow Down")])
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(FAILED, 1)]
    for wait_s in (10.0, 30.0, 90.0, 90.0):
        bench.clock.advance(wait_s - 0.1)
        assert bench.told() == []
        bench.clock.advance(0.2)
        bench.links.started[0].says.append(refused("503 Slow Down"))
        assert bench.told() == [(FAILED, 1)]
    assert bench.mirror.record.failures_in_a_row == 5
    bench.clock.advance(91.0)
    bench.links.started[0].says.append(COPIED)
    assert bench.told() == [(MIRRORED, 1)]
    assert bench.mirror.record.failures_in_a_row == 0


def test_after_a_failure_the_newer_one_is_tried_instead_of_the_old_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.mirror.offer(ticket(1))
    bench.mirror.offer(ticket(2))
    bench.links.started[0].says.append(refused("no route to host"))
    assert bench.told() == [(FAILED, 1), (DROPPED, 1)]
    bench.clock.advance(11.0)
    bench.links.started[0].says.append(COPIED)
    assert bench.told() == [(MIRRORED, 2)]


def test_one_that_was_pruned_here_before_its_turn_is_dropped_and_not_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [{"say": "gone", "why": "was removed"}])
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(DROPPED, 1)]
    assert not bench.mirror.busy


def test_a_store_that_hangs_is_killed_and_tried_again_by_another_process(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [], [COPIED])
    bench.mirror.offer(ticket(1))
    bench.clock.advance(29.0)
    assert bench.told() == []
    bench.clock.advance(1.0)
    assert bench.told() == [(FAILED, 1)]
    assert bench.links.started[0].stopped
    bench.clock.advance(11.0)
    assert bench.told() == [(MIRRORED, 1)]


def test_a_slow_store_that_moves_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.mirror.offer(ticket(1))
    for _ in range(10):
        bench.clock.advance(29.0)
        bench.links.started[0].says.append(BEAT)
        assert bench.told() == []
    bench.links.started[0].says.append(COPIED)
    assert bench.told() == [(MIRRORED, 1)]


@pytest.mark.parametrize("script", [[Dies], []], ids=["dies", "takes no order"])
def test_a_process_that_dies_is_started_again(tmp_path: Path, script: list[object]) -> None:
    bench = Bench(tmp_path, script, [COPIED])
    bench.links.waiting[0].deaf = not script
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(FAILED, 1)]
    bench.clock.advance(11.0)
    assert bench.told() == [(MIRRORED, 1)]


def test_where_no_process_can_be_had_training_goes_on_and_it_is_tried_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.mirror.offer(ticket(1))
    assert bench.told() == [(FAILED, 1)]
    assert bench.mirror.busy


def test_trouble_alone_stops_no_run_unless_a_limit_is_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("403 Forbidden")])
    bench.mirror.offer(ticket(1))
    bench.told()
    bench.clock.advance(1e6)
    assert bench.mirror.hopeless() is None


def test_with_a_limit_only_a_long_row_of_failures_stops_a_run() -> None:
    policy = MirrorPolicy(stop_after_s=3600.0)
    fresh = MirrorRecord(copied_at_s=0.0)
    failing = fresh.failed_with("403 Forbidden")
    assert hopeless(fresh, policy, now_s=1e6) is None
    assert hopeless(failing, policy, now_s=3599.0) is None
    said = str(hopeless(failing, policy, now_s=3600.0))
    assert all(words in said for words in ("403 Forbidden", "mend the store", "local checkpoint"))
    assert hopeless(failing, policy, now_s=float("nan")) is not None
    assert hopeless(failing.succeeded(3000.0).failed_with("x"), policy, now_s=3700.0) is None


@pytest.mark.parametrize("field", ["patience_s", "orphan_after_s", "stop_after_s", "wait_at_end_s"])
def test_limits_that_are_none_are_refused(field: str) -> None:
    wrong: dict[str, Any] = {field: float("nan")}
    with pytest.raises(ConfigError, match=field):
        MirrorPolicy(**wrong)


def test_the_end_waits_for_the_last_copy_and_its_tries_but_not_for_ever(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("503"), refused("503"), COPIED])
    bench.mirror.offer(ticket(1))
    assert bench.mirror.drain(within_s=600.0)
    assert bench.told() == [(FAILED, 1), (FAILED, 1), (MIRRORED, 1)]
    bench.mirror.offer(ticket(2))
    begun_s = bench.clock.monotonic_s()
    assert not bench.mirror.drain(within_s=5.0)
    assert 5.0 <= bench.clock.monotonic_s() - begun_s <= 6.0


def test_parting_lets_the_process_finish_and_says_what_is_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.mirror.offer(ticket(1))
    bench.mirror.offer(ticket(2))
    bench.mirror.part()
    assert (bench.links.started[0].parted, bench.links.started[0].stopped) == (True, False)
    assert bench.told() == [(DROPPED, 1), (DROPPED, 2)]
    assert not bench.mirror.busy


def test_a_question_is_tried_again_and_its_last_error_is_the_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [refused("no route"), refused("no route, still")])
    request = bench.mirror.ask_listing()
    assert request.poll(60.0)
    with pytest.raises(OSError, match="still"):
        request.result()
    assert [order["do"] for order in bench.links.started[0].orders] == ["list", "list"]


def test_a_question_can_be_asked_piece_by_piece(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    request = bench.mirror.ask_fetch("f")
    assert not request.poll(5.0)
    bench.links.started[0].says += [BEAT, {"say": "fetched", "name": "at-1", "bytes": 1, "took_s": 0.1}]
    assert request.poll(5.0)
    assert request.result()["name"] == "at-1"


def test_what_is_damaged_is_not_asked_for_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [{"say": "damaged", "why": "bits"}])
    request = bench.mirror.ask_fetch("f")
    assert request.poll(5.0)
    with pytest.raises(DamagedArtifactError, match="bits"):
        request.result()


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
