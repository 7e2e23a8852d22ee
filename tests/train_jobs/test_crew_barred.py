"""A run that waits for workers looks at nodes again: one may have come, or been mended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.survival.preflight import NodeReport, failed
from failsoft.training.survival.preflight_record import Record, write_record
from failsoft.training.survival.room import NodeRoom, WorkerNeed, WorkerRange
from train_jobs.crew import Crew, CrewPlan
from train_jobs.result import JobResult


def room(node: str) -> NodeRoom:
    return NodeRoom(node=node, name=f"host/{node}", free={"CPU": 1.0}, total={"CPU": 1.0})


@dataclass(kw_only=True)
class Cluster:
    """Stands in for a driver: nodes come, are unfit, and are mended, at given times."""

    clock: ManualClock
    comes_s: dict[str, float]
    unfit_until_s: dict[str, float]
    looks: int = 0
    began: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    wished: int = 0
    """Workers, as Ray was told last."""
    wished_at_looks: list[int] = field(default_factory=list)

    def start(self) -> None:
        pass

    def excluded(self) -> frozenset[str]:
        self.looks += 1
        self.wished_at_looks.append(self.wished)
        now_s = self.clock.monotonic_s()
        return frozenset(node for node, until_s in self.unfit_until_s.items() if until_s > now_s)

    def rooms(self) -> tuple[NodeRoom, ...]:
        now_s = self.clock.monotonic_s()
        return tuple(room(node) for node, from_s in self.comes_s.items() if from_s <= now_s)

    def wish(self, workers: int, excluded: frozenset[str]) -> None:
        self.wished = workers

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        self.began.append((workers, excluded))
        return None

    def finish(self) -> JobResult:
        raise NotImplementedError


def run_once(cluster: Cluster, folder: Path, workers: int = 2) -> list[str]:
    said: list[str] = []
    ledger = Ledger(folder / "ledger.jsonl", cluster.clock, side=Side.TRAINING, subject="run")
    plan = CrewPlan(workers=WorkerRange.of(workers), need=WorkerNeed(), folder=folder, ledger=ledger)
    assert Crew(cluster, plan, clock=cluster.clock, say=said.append).run_once() is None
    return said


def test_a_spare_takes_the_place_of_an_unfit_node_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    cluster = Cluster(clock=clock, comes_s={"a1": 0.0, "b2": 0.0, "c3": 0.0}, unfit_until_s={"b2": 1e9})
    assert run_once(cluster, tmp_path) == []
    assert cluster.began == [(2, frozenset({"b2"}))]
    assert cluster.looks == 1


def test_too_few_fit_nodes_start_nothing_until_one_is_mended_and_the_wait_names_node_and_reason(
    tmp_path: Path,
) -> None:
    bad = NodeReport(node="b2", host="host/b2", findings=(failed("matmul", "core 3 is wrong"),))
    write_record(tmp_path, Record().after([bad], passes_to_return=2)[0])
    clock = ManualClock()
    cluster = Cluster(clock=clock, comes_s={"a1": 0.0, "b2": 0.0}, unfit_until_s={"b2": 100.0})
    (said,) = run_once(cluster, tmp_path)
    assert "host/b2 is excluded" in said
    assert "host/b2: matmul: core 3 is wrong. Mend or replace" in said
    assert 100.0 <= clock.monotonic_s() < 140.0
    assert cluster.began == [(2, frozenset())]
    (waited,) = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "workers_awaited"]
    assert "core 3 is wrong" in waited.why


def test_a_node_that_comes_while_a_run_waits_is_looked_at_before_it_gets_a_worker(tmp_path: Path) -> None:
    clock = ManualClock()
    cluster = Cluster(clock=clock, comes_s={"a1": 0.0, "b2": 5.0, "c3": 9.0}, unfit_until_s={"b2": 1e9})
    run_once(cluster, tmp_path)
    assert cluster.began == [(2, frozenset({"b2"}))]
    assert cluster.looks == 3


def test_a_look_at_a_node_that_came_finds_nothing_held_by_the_wish_that_it_came_for(tmp_path: Path) -> None:
    cluster = Cluster(clock=ManualClock(), comes_s={"a": 0.0, "b": 60.0, "c": 90.0}, unfit_until_s={})
    run_once(cluster, tmp_path, workers=3)
    assert cluster.wished_at_looks == [0, 0, 0]
    assert cluster.wished == 0
