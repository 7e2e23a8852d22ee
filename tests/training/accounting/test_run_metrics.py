"""A run's metrics from what it leaves behind: events count once, ages are of one clock, sums are those of the CLI."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.health import training_metrics as table
from failsoft.health.clock import ManualClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.health.ledger import Ledger, Side
from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook
from failsoft.training.accounting.run_metrics import RunMetrics
from failsoft.training.accounting.stretches import Part
from failsoft.training.checkpoints.writer_news import NewsKind
from failsoft.training.degradation import DegradationKind
from failsoft.training.memory.rungs import ORDER
from failsoft.training.progress import Phase, PositionMark, Progress, ProgressFile
from failsoft.training.verdict import Refusal
from tests.health.recorded_sink import RecordedSink
from tests.training.toys import toy_loop


@dataclass
class Scene:
    """A run's files, and the drivers that look at them."""

    root: Path
    clock: ManualClock = field(default_factory=ManualClock)
    sink: RecordedSink = field(default_factory=RecordedSink)

    def __post_init__(self) -> None:
        self.folder = self.root / "runs" / "night"
        self.folder.mkdir(parents=True)
        self.looking = ExitStack()
        self.ledger = Ledger(self.root / "ledger.jsonl", self.clock, side=Side.TRAINING, subject="night")
        self.driver()

    def driver(self) -> None:
        """A new driver process: another book, the same exporter behind it."""
        self.book = MetricBook()
        one = RunMetrics(self.folder, self.ledger.path, self.book, self.clock)
        self.metrics = self.looking.enter_context(closing(one))

    def at(self, position: int, **progress: Any) -> None:
        told = Progress(phase=Phase.TRAINING, position=position, total=1000)
        ProgressFile(self.folder, self.clock).write(replace(told, **progress))
        with PositionMark(self.folder).open() as mark:
            mark(position)

    def look(self, after_s: float = 0.0) -> None:
        self.clock.advance(after_s)
        self.metrics.look()
        for _ in self.book.drain(self.sink):
            pass

    def gauge(self, metric: Metric, *labels: str) -> float:
        return self.sink.gauges[metric.name, ("night", *labels)]

    def counter(self, metric: Metric, *labels: str) -> float:
        return self.sink.counters[metric.name, ("night", *labels)]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    with made.looking:
        yield made


def test_values_of_labels_are_those_of_the_code() -> None:
    assert set(table.PHASES) == set(Phase)
    assert set(table.REASONS) == {refusal.name.lower() for refusal in Refusal} | {"passed_over"}
    assert set(table.PARTS) == {part.name.lower() for part in Part}
    assert set(table.DEGRADATIONS) == set(DegradationKind)
    assert tuple(rung.name.lower() for rung in ORDER) == table.RUNGS
    told = {kind.removeprefix("checkpoint_") for kind in NewsKind}
    assert told - set(table.CHECKPOINTS) == {"writer_lost", "mirror_dropped"}


def test_a_run_that_has_not_begun_is_no_trouble_and_no_good_news(scene: Scene) -> None:
    scene.look()
    assert (table.PHASE.name, ("night", "training")) not in scene.sink.gauges
    assert math.isnan(scene.gauge(table.ETTR))


def test_progress_is_told(scene: Scene) -> None:
    scene.at(50, step=48, loss=0.5, refused=2, loss_scale=1024.0, snapshot_s=0.01, attempt=1)
    scene.look()
    assert scene.gauge(table.PHASE, "training") == 1.0
    assert scene.gauge(table.PHASE, "stopped") == 0.0
    assert [scene.gauge(one) for one in (table.POSITION, table.PLANNED, table.STEPS)] == [50.0, 1000.0, 48.0]
    assert [scene.gauge(one) for one in (table.LOSS, table.SCALE, table.SNAPSHOT_TIME)] == [0.5, 1024.0, 0.01]
    assert scene.gauge(table.DROPS) == 0.04


def test_throughput_is_that_between_two_looks_and_unknown_where_the_run_went_back(scene: Scene) -> None:
    scene.at(50)
    scene.look()
    assert math.isnan(scene.gauge(table.RATE))
    scene.at(100)
    scene.look(after_s=5.0)
    assert scene.gauge(table.RATE) == 10.0
    assert scene.gauge(table.STEP_TIME) == 0.1
    scene.at(20)
    scene.look(after_s=5.0)
    assert math.isnan(scene.gauge(table.RATE))


def test_a_run_that_stands_still_grows_old_by_the_drivers_own_clock(scene: Scene) -> None:
    scene.at(50)
    scene.look()
    scene.clock.jump_wall(7200.0)
    scene.look(after_s=30.0)
    assert scene.gauge(table.PROGRESS_AGE) == 30.0
    assert scene.gauge(table.RATE) == 0.0
    assert math.isnan(scene.gauge(table.STEP_TIME))
    scene.at(51)
    scene.look(after_s=1.0)
    assert scene.gauge(table.PROGRESS_AGE) == 0.0


def test_refusals_are_counted_by_reason(scene: Scene) -> None:
    scene.look()
    assert scene.counter(table.REFUSED, "loss") == 0.0
    for reason in (str(Refusal.LOSS), str(Refusal.LOSS), str(Refusal.OUT_OF_MEMORY), "refused in two passes"):
        scene.ledger.record("batch_refused", reason, reason=reason, position=3)
    scene.look()
    counted = {reason: scene.counter(table.REFUSED, reason) for reason in table.REASONS}
    assert {reason: count for reason, count in counted.items() if count} == {
        "loss": 2.0,
        "out_of_memory": 1.0,
        "passed_over": 1.0,
    }


def test_each_event_counts_once_however_many_drivers_there_were(scene: Scene) -> None:
    scene.ledger.record("run_started", "", attempt=1, world=2)
    scene.ledger.record("rolled_back", "", undone_steps=40)
    scene.look()
    scene.ledger.record("driver_lost", "killed")
    scene.driver()
    scene.ledger.record("run_started", "", attempt=2, world=1, repeated_batches=13)
    scene.look()
    scene.look()
    assert scene.counter(table.ROLLBACKS) == 1.0
    assert scene.counter(table.UNDONE) == 40.0
    assert scene.counter(table.DEATHS, "driver_lost") == 1.0
    assert scene.counter(table.RESTARTS) == 1.0
    assert scene.counter(table.REPEATED) == 13.0
    assert scene.gauge(table.WORKERS) == 1.0


@pytest.mark.parametrize("cut", ["all", "the oldest"])
def test_what_comes_after_a_ledger_was_cut_counts_in_the_next_driver_too(scene: Scene, cut: str) -> None:
    for undone in (1, 2, 3, 4):
        scene.ledger.record("rolled_back", "", undone_steps=undone)
    scene.look()
    lines = scene.ledger.path.read_bytes().splitlines(keepends=True)
    scene.ledger.path.write_bytes(b"" if cut == "all" else b"".join(lines[2:]))
    scene.ledger.record("rolled_back", "", undone_steps=5)
    scene.driver()
    scene.look()
    assert (scene.counter(table.ROLLBACKS), scene.counter(table.UNDONE)) == (5.0, 15.0)


def test_what_holds_is_known_to_the_next_driver_too(scene: Scene) -> None:
    scene.ledger.record("run_started", "", attempt=1, world=4)
    scene.ledger.record("snapshot_memory", "", held_bytes=1000)
    scene.look()
    scene.driver()
    scene.sink.gauges.clear()
    scene.look()
    assert scene.gauge(table.WORKERS) == 4.0
    assert scene.gauge(table.SNAPSHOT_BYTES) == 1000.0


def test_a_disk_that_takes_no_count_is_no_trouble(scene: Scene) -> None:
    scene.look()
    (scene.folder / "metrics_seen.aside").mkdir()
    scene.ledger.record("rolled_back", "", undone_steps=1)
    scene.look()
    assert scene.counter(table.ROLLBACKS) == 1.0


def test_a_checkpoint_is_as_old_as_the_driver_has_seen_no_newer_one(scene: Scene) -> None:
    scene.look()
    scene.look(after_s=40.0)
    assert scene.gauge(table.CHECKPOINT_AGE) == 40.0
    scene.ledger.record("checkpoint_published", "", name="step-1", took_s=0.2)
    scene.ledger.record("checkpoint_handed_over", "", stall_s=0.004)
    scene.look(after_s=1.0)
    assert scene.gauge(table.CHECKPOINT_AGE) == 0.0
    assert scene.counter(table.CHECKPOINT_EVENTS, "published") == 1.0
    assert scene.sink.observed[table.CHECKPOINT_WRITE.name, ("night",)] == [0.2]
    assert scene.sink.observed[table.CHECKPOINT_STALL.name, ("night",)] == [0.004]


def test_goodput_and_degradations_are_those_of_the_command_line(scene: Scene) -> None:
    scene.ledger.record("attempt_began", "")
    scene.clock.advance(4.0)
    scene.ledger.record("workers_up", "")
    scene.clock.advance(1.0)
    scene.ledger.record("run_started", "", position=0, world=2, attempt=1)
    data = {"degradation": "memory_rung", "name": "", "level": "2 micro-batches", "rung": "micro-batches"}
    scene.ledger.record("degradation_began", "out of memory", **data)
    slow = {"degradation": "slow_rank", "name": "rank 1", "level": "share 16/16", "rank": 1, "host": "b", "factor": 1.7}
    scene.ledger.record("degradation_began", "slow", **slow)
    scene.clock.advance(10.0)
    scene.ledger.record("checkpoint_handed_over", "", stall_s=0.0, position=20)
    scene.look(after_s=0.0)
    assert scene.gauge(table.GOODPUT, "start") == 4.0
    assert scene.gauge(table.GOODPUT, "load") == 1.0
    assert scene.gauge(table.ETTR) == pytest.approx(10.0 / 15.0)
    assert [kind for kind in table.DEGRADATIONS if scene.gauge(table.DEGRADED, kind)] == ["memory_rung", "slow_rank"]
    assert [rung for rung in table.RUNGS if scene.gauge(table.RUNG, rung)] == ["micro_batches"]
    assert scene.gauge(table.STRAGGLER) == 1.7


def test_events_of_others_are_none_of_this_run(scene: Scene) -> None:
    Ledger(scene.ledger.path, scene.clock, side=Side.TRAINING, subject="day").record("rolled_back", "")
    Ledger(scene.ledger.path, scene.clock, side=Side.SERVING, subject="night").record("rolled_back", "")
    scene.look()
    assert scene.counter(table.ROLLBACKS) == 0.0


def test_a_torn_line_is_passed_over(scene: Scene) -> None:
    scene.ledger.record("rolled_back", "")
    with scene.ledger.path.open("ab") as ledger:
        ledger.write(b'{"v":1,"at_s":12')
    scene.look()
    scene.ledger.record("rolled_back", "")
    scene.look()
    assert scene.counter(table.ROLLBACKS) == 2.0


def test_a_real_loop_leaves_what_is_told_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    toy_loop(folder, faults=FaultPlan(faults=(Fault(kind=FaultKind.NAN_BATCH, position=5),))).run()
    book, sink = MetricBook(), RecordedSink()
    with closing(RunMetrics(folder, folder / "ledger.jsonl", book, ManualClock())) as run:
        run.look()
    for _ in book.drain(sink):
        pass
    told = {name: value for (name, labels), value in sink.gauges.items() if labels == ("toy",)}
    assert (told[table.POSITION.name], told[table.STEPS.name], told[table.WORKERS.name]) == (24.0, 23.0, 1.0)
    assert told[table.SNAPSHOT_TIME.name] >= 0.0
    assert told[table.SNAPSHOT_BYTES.name] > 0.0
    assert sink.counters[table.REFUSED.name, ("toy", "loss")] == 1.0
    assert sink.counters[table.CHECKPOINT_EVENTS.name, ("toy", "published")] >= 2.0
    assert len(sink.observed[table.CHECKPOINT_WRITE.name, ("toy",)]) >= 2


def test_a_driver_that_begins_holds_no_more_of_the_ledger_than_a_file_at_a_time(tmp_path: Path) -> None:
    """A year of other runs lies before this one's events; here each file is small."""
    scene = Scene(tmp_path)
    line = scene.ledger.record("run_started", "x" * 300, world=1).to_line()
    others = line.replace(b"night", b"other") * 400
    for number in range(1, 81):
        (tmp_path / f"ledger-{number:06d}.jsonl").write_bytes(others)
    tracemalloc.start()
    try:
        scene.look()
        _now, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    scene.looking.close()
    assert peak_bytes < 10 * len(others)
