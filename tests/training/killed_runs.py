"""Toy runs with a place in memory of the host, and what their ledger tells of where they began."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from failsoft.health.faults import FaultPlan
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.snapshots.snapshot import SnapshotPolicy
from tests.training.toys import toy_loop

PLAN = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=1000)


def run_of(folder: Path, *, plan: LoopPlan = PLAN, faults: FaultPlan | None = None) -> TrainLoop:
    policy = SnapshotPolicy()  # reads the variable now
    return toy_loop(folder, plan=replace(plan, snapshots=policy), faults=faults)


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def began(folder: Path) -> list[tuple[int, int]]:
    """Position and repeated batches of each group of workers."""
    return [(int(e.data["position"]), int(e.data["repeated_batches"])) for e in told(folder, "run_started")]


def left_in(host_memory: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in host_memory.rglob("*") if path.is_file()}


def files(host_memory: Path, kind: str) -> list[Path]:
    return sorted(host_memory.rglob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns)


def undisturbed(folder: Path, *, plan: LoopPlan = PLAN, faults: FaultPlan | None = None) -> TrainLoop:
    loop = run_of(folder, plan=plan, faults=faults)
    loop.run()
    return loop


def published(folder: Path) -> set[int]:
    return {int(event.data["position"]) for event in told(folder, "checkpoint_published")}


def goes_by_disk(folder: Path, loop: TrainLoop, *, to: int) -> None:
    loop.run()
    assert began(folder)[-1][0] == to
    assert all(event.data["source"] == "disk" for event in told(folder, "restored"))
