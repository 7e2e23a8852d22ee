from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from failsoft.errors import DriverLostError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.training.progress import PositionMark
from failsoft.training.survival.growth import ResizePolicy
from failsoft.training.survival.notice import drop_notice, drop_resize, read_notice, read_resize
from failsoft.training.survival.room import NodeRoom, NodeState, WorkerNeed, WorkerRange
from train_jobs.crew import Crew, CrewPlan
from train_jobs.result import JobResult

QUICK = ResizePolicy(look_s=0.01, steady_s=0.0, settle_s=5.0)


def node(name: str, free: float, total: float = 1.0, state: NodeState = NodeState.READY) -> NodeRoom:
    return NodeRoom(node=name, name=name, free={"CPU": free}, total={"CPU": total}, state=state)


class FakeDriver:
    """Answers what the test says: the rooms at each asking (the last for ever), and what an attempt does."""

    def __init__(self, *rooms: Iterable[NodeRoom] | None, during: Callable[[], str | None] = lambda: None) -> None:
        self.script = list(rooms)
        self.during = during
        self.barred: frozenset[str] = frozenset()
        self.attempts: list[tuple[int, frozenset[str]]] = []
        self.wishes: list[tuple[int, frozenset[str]]] = []

    def start(self) -> None:
        pass

    def excluded(self) -> frozenset[str]:
        return self.barred

    def rooms(self) -> tuple[NodeRoom, ...] | None:
        now = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return None if now is None else tuple(now)

    def wish(self, workers: int, excluded: frozenset[str]) -> None:
        self.wishes.append((workers, excluded))

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        self.attempts.append((workers, excluded))
        return self.during()

    def finish(self) -> JobResult:
        raise NotImplementedError


class Bridge:
    """A crew, its ledger and its clock."""

    def __init__(self, root: Path, driver: FakeDriver, workers: tuple[int, int], policy: ResizePolicy = QUICK) -> None:
        self.clock, self.folder, self.said = ManualClock(), root / "run", list[str]()
        self.ledger = Ledger(root / "ledger.jsonl", self.clock, side=Side.TRAINING, subject="run")
        plan = CrewPlan(
            workers=WorkerRange.of(workers),
            need=WorkerNeed(),
            folder=self.folder,
            ledger=self.ledger,
            resize=policy,
        )
        self.crew = Crew(driver, plan, clock=self.clock, told=self.told, say=self.said.append)

    def told(self) -> bool:
        return read_notice(self.folder) is not None

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_ledger(self.ledger.path).events if event.kind == kind]


def test_an_attempt_gets_as_many_workers_as_fit_at_once(tmp_path: Path) -> None:
    driver = FakeDriver([node("a", 1.0), node("b", 1.0), node("c", 1.0)])
    bridge = Bridge(tmp_path, driver, (1, 2))
    assert bridge.crew.run_once() is None
    assert driver.attempts == [(2, frozenset())]
    assert bridge.clock.monotonic_s() == 0.0


def test_nodes_that_do_not_answer_are_kept_out_of_rays_reach_too(tmp_path: Path) -> None:
    driver = FakeDriver([node("a", 1.0), node("b", 1.0, state=NodeState.SILENT), node("c", 1.0)])
    driver.barred = frozenset({"c"})
    Bridge(tmp_path, driver, (1, 3)).crew.run_once()
    assert driver.attempts == [(1, frozenset({"b", "c"}))]


def test_what_the_workers_before_still_hold_is_waited_for_a_moment(tmp_path: Path) -> None:
    held, freed = [node("a", 1.0), node("b", 0.0)], [node("a", 1.0), node("b", 1.0)]
    driver = FakeDriver(held, held, held, freed)
    bridge = Bridge(tmp_path, driver, (1, 2))
    bridge.crew.run_once()
    assert driver.attempts[0][0] == 2
    assert 0.0 < bridge.clock.monotonic_s() < 1.0


def test_what_others_hold_for_longer_is_gone_without(tmp_path: Path) -> None:
    driver = FakeDriver([node("a", 1.0), node("b", 0.0)])
    bridge = Bridge(tmp_path, driver, (1, 2))
    bridge.crew.run_once()
    assert driver.attempts[0][0] == 1
    assert bridge.clock.monotonic_s() == pytest.approx(QUICK.settle_s, abs=0.3)


def test_too_little_room_is_waited_for_in_words_that_are_said_once(tmp_path: Path) -> None:
    full = [node("a", 0.0)]
    driver = FakeDriver(*[full] * 60, [node("a", 1.0)])
    bridge = Bridge(tmp_path, driver, (1, 1))
    bridge.crew.run_once()
    assert bridge.said == ["waits for 1 worker: 0 of 1 CPU free on a"]
    assert [event.why for event in bridge.events("workers_awaited")] == bridge.said


def test_who_waits_for_workers_says_so_to_the_autoscaler_until_they_are_there(tmp_path: Path) -> None:
    driver = FakeDriver(*[[node("a", 0.0), node("b", 1.0)]] * 40, [node("a", 1.0), node("b", 1.0), node("c", 1.0)])
    driver.barred = frozenset({"b"})
    Bridge(tmp_path, driver, (2, 3)).crew.run_once()
    assert driver.wishes[-1] == (0, frozenset())
    assert set(driver.wishes[:-1]) == {(2, frozenset({"b"}))}
    assert driver.attempts == [(2, frozenset({"b"}))]


def test_a_wish_does_not_outlast_the_wait_where_the_cluster_stops_saying_what_it_has(tmp_path: Path) -> None:
    driver = FakeDriver(*[[node("a", 0.0)]] * 40, None)
    Bridge(tmp_path, driver, (1, 2)).crew.run_once()
    assert driver.wishes[0] == (1, frozenset())
    assert driver.wishes[-1] == (0, frozenset())
    assert driver.attempts == [(2, frozenset())]


def test_a_wish_does_not_outlast_a_run_that_is_told_to_leave(tmp_path: Path) -> None:
    class Told(FakeDriver):
        def wish(self, workers: int, excluded: frozenset[str]) -> None:
            super().wish(workers, excluded)
            drop_notice(tmp_path / "run", "the machine is wanted elsewhere")

    driver = Told([node("a", 0.0)])
    Bridge(tmp_path, driver, (1, 1)).crew.run_once()
    assert driver.wishes == [(1, frozenset()), (0, frozenset())]
    assert driver.attempts == []


def test_who_finds_room_at_once_asks_for_none(tmp_path: Path) -> None:
    driver = FakeDriver([node("a", 1.0)])
    Bridge(tmp_path, driver, (1, 1)).crew.run_once()
    assert driver.wishes == []


def test_storage_that_refuses_just_then_costs_an_attempt_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: Path) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr("train_jobs.crew.withdraw_resize", refuse)
    driver = FakeDriver([node("a", 1.0)])
    assert Bridge(tmp_path, driver, (1, 1)).crew.run_once() == "[Errno 116] Stale file handle"
    assert driver.attempts == []


def test_a_cluster_that_does_not_say_what_it_has_is_left_to_ray(tmp_path: Path) -> None:
    driver = FakeDriver(None)
    Bridge(tmp_path, driver, (1, 4)).crew.run_once()
    assert driver.attempts == [(4, frozenset())]


def test_a_run_that_is_told_to_leave_while_it_waits_starts_no_workers(tmp_path: Path) -> None:
    driver = FakeDriver([node("a", 0.0)])
    bridge = Bridge(tmp_path, driver, (1, 1))
    bridge.folder.mkdir()
    (bridge.folder / "leave.json").write_text('{"why": "preStop"}', "utf-8")
    assert bridge.crew.run_once() == "told to leave while it waited for workers"
    assert driver.attempts == []


def at_work(bridge: list[Bridge], waits_for: Callable[[Bridge], bool]) -> Callable[[], str | None]:
    """An attempt whose workers set a position, and which lasts until something holds."""

    def during() -> None:
        pause = threading.Event()
        with PositionMark(bridge[0].folder).open() as set_position:
            set_position(3)
            for _ in range(1000):
                if waits_for(bridge[0]):
                    return
                pause.wait(0.01)

    return during


def test_a_run_with_fewer_workers_than_it_may_have_is_asked_to_leave_once_there_is_room(tmp_path: Path) -> None:
    bridge: list[Bridge] = []
    one, two = [node("a", 1.0)], [node("a", 0.0), node("b", 1.0)]
    driver = FakeDriver(one, two, during=at_work(bridge, lambda here: read_resize(here.folder) is not None))
    bridge.append(Bridge(tmp_path, driver, (1, 2)))
    bridge[0].folder.mkdir()
    bridge[0].crew.run_once()
    (asked,) = bridge[0].events("resize_asked")
    assert (asked.why, asked.data) == ("planned resize from 1 to 2 workers", {"workers": 1, "to": 2})
    word = read_resize(bridge[0].folder)
    assert word is not None
    assert not word.whole_run


def test_a_resize_that_was_asked_for_is_over_when_the_next_workers_start(tmp_path: Path) -> None:
    bridge = Bridge(tmp_path, FakeDriver([node("a", 1.0)]), (1, 1))
    drop_resize(bridge.folder, "planned resize from 1 to 2 workers")
    bridge.crew.run_once()
    assert read_resize(bridge.folder) is None


def test_workers_that_do_not_work_yet_are_not_asked_to_make_room(tmp_path: Path) -> None:
    """Until then the cluster shows what they were given as free."""
    looks = threading.Event()

    class Looked(FakeDriver):
        def rooms(self) -> tuple[NodeRoom, ...] | None:
            if self.attempts:
                looks.set()
            return super().rooms()

    driver = Looked([node("a", 2.0, 2.0)], [node("a", 1.0, 2.0)])
    driver.during = lambda: None if not looks.wait(0.3) else "asked the cluster before the first batch"
    driver.script = [[node("a", 1.0, 1.0)]]
    assert Bridge(tmp_path, driver, (1, 2)).crew.run_once() is None


def test_a_driver_that_is_lost_ends_the_attempt_and_not_the_run(tmp_path: Path) -> None:
    def lost() -> None:
        raise DriverLostError("the driver process 7 was killed by SIGKILL")

    bridge = Bridge(tmp_path, FakeDriver([node("a", 1.0)], during=lost), (1, 1))
    assert bridge.crew.run_once() == "the driver process 7 was killed by SIGKILL"
