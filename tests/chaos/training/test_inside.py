"""What runs inside a drilled process: counting, striking, and disks that refuse."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.training.inside.course import Course, key_of
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.inside.numbers import BoundFaults, outputs_of, rows_to_nan, with_inf_gradient
from failsoft.drills.training.inside.orders import (
    ATTEMPT_VARIABLE,
    ORDERS_VARIABLE,
    Event,
    Orders,
    Strike,
    Trigger,
    read_orders,
)
from failsoft.drills.training.inside.trouble import DiskTrouble
from failsoft.health.clock import ManualClock


def strike(kind: DrillFault, event: Event = Event.FORWARD, count: int = 0, **more: object) -> Strike:
    fault = PlannedFault(kind=kind, phase=Phase.TRAINING, **more)  # type: ignore[arg-type]
    return Strike(fault=fault, trigger=Trigger(event=event, count=count), name=f"0-{kind}")


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    (tmp_path / "marks").mkdir()
    return Marks(tmp_path / "marks")


def orders(marks: Marks, *strikes: Strike) -> Orders:
    return Orders(run=marks.folder.parent / "run", marks=marks.folder, strikes=strikes)


def test_orders_come_back_from_their_file_and_nothing_is_ordered_without_one(
    marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = orders(marks, strike(DrillFault.SPIKE, count=3, arguments={"factor": 10.0}))
    given.write(marks.file("orders.json"))
    assert read_orders() is None
    monkeypatch.setenv(ORDERS_VARIABLE, str(marks.file("orders.json")))
    assert read_orders() == given


def test_a_strike_falls_once_at_its_count_and_counts_go_on_in_the_next_start(
    marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = orders(marks, strike(DrillFault.NAN, count=5))
    first = Course(given, marks)
    for _ in range(3):
        assert list(first.met_forward()) == []
        first.met_backward()
    monkeypatch.setenv(ATTEMPT_VARIABLE, "2")
    second = Course(given, marks)
    second.met_backward()
    assert (second.backwards, list(second.met_forward())) == (4, [])
    second.met_backward()
    assert [one.name for one in second.met_forward()] == ["0-nan"]
    assert list(second.met_forward()) == []
    assert marks.before(3, "backwards") == 5


def test_only_rank_0_is_struck(marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert list(Course(orders(marks, strike(DrillFault.NAN)), marks).met_forward()) == []


def test_a_save_is_known_again_without_its_numbers(tmp_path: Path) -> None:
    one = key_of("rename", tmp_path / "ckpt" / "step-000120" / "w-9fa3c01b.pt", tmp_path)
    assert one == key_of("rename", tmp_path / "ckpt" / "step-7" / "w-00ab12ff.pt", tmp_path)


def test_nan_and_spike_change_only_what_is_floating() -> None:
    change = outputs_of([strike(DrillFault.NAN)])
    assert change is not None
    found = change({"logits": torch.ones(2), "ids": torch.ones(2, dtype=torch.long)})
    assert found["logits"].isnan().all()
    assert found["ids"].tolist() == [1, 1]
    larger = outputs_of([strike(DrillFault.SPIKE, arguments={"factor": 7.0})])
    assert larger is not None
    assert larger(torch.ones(1)).item() == 7.0
    assert outputs_of([]) is None


def test_one_entry_of_one_gradient_becomes_inf_and_the_loss_stays() -> None:
    model = nn.Linear(3, 2)
    loss = model(torch.ones(1, 3)).sum()
    struck = with_inf_gradient(loss, model)
    assert struck.item() == loss.item()
    struck.backward()
    assert [int(one.grad.isinf().sum()) for one in model.parameters() if one.grad is not None] == [1, 0]


def test_a_poisoned_sample_is_met_again_in_any_order_and_by_the_next_process(marks: Marks) -> None:
    poison = strike(DrillFault.POISONED_SAMPLE, seed=1)
    batch = torch.arange(12.0).reshape(4, 3)
    bound = BoundFaults(marks, [poison])
    assert bound.meet((batch,)) == ((batch,), None)
    assert bound.begin(poison, (batch,))
    (seen,), rows = BoundFaults(marks, [poison]).meet((batch.flip(0),))
    assert rows is None
    assert seen.isnan().any(1).tolist() == [False, False, True, False]
    assert not batch.isnan().any()


def test_a_poisoned_sample_of_token_ids_makes_its_row_of_the_output_nan(marks: Marks) -> None:
    poison = strike(DrillFault.POISONED_SAMPLE, seed=0)
    ids = torch.tensor([[1, 2], [3, 4]])
    bound = BoundFaults(marks, [poison])
    bound.begin(poison, (ids,))
    (seen,), rows = bound.meet((ids,))
    assert seen is ids
    assert rows is not None
    assert rows_to_nan(torch.ones(2, 5), rows).isnan().any(1).tolist() == [True, False]


def test_memory_runs_out_for_a_batch_until_half_of_it_goes_in(marks: Marks) -> None:
    short = strike(DrillFault.OUT_OF_MEMORY)
    batch = torch.arange(16.0).reshape(8, 2)
    bound = BoundFaults(marks, [short])
    bound.begin(short, (batch,))
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            bound.meet((batch,))
    assert bound.meet((batch[:4],))[1] is None
    assert bound.meet((batch + 100.0,))[1] is None
    assert not bound.begin(short, ("no tensor",))


@pytest.mark.parametrize(
    ("kind", "number"), [(DrillFault.FULL_DISK, errno.ENOSPC), (DrillFault.READ_ONLY_DISK, errno.EROFS)]
)
def test_a_disk_refuses_for_its_time_and_then_no_more(marks: Marks, kind: DrillFault, number: int) -> None:
    clock, one = ManualClock(), strike(kind, arguments={"lasts_s": 5.0})
    trouble = DiskTrouble(marks, orders(marks, one), clock)
    trouble.meet()
    trouble.begin(one)
    with pytest.raises(OSError) as refused:  # noqa: PT011 -- its number is looked at
        trouble.meet()
    assert refused.value.errno == number
    if kind is DrillFault.FULL_DISK:
        trouble.meet(makes=False)  # removing makes room
    clock.advance(5.1)
    trouble.meet()


def test_a_slow_disk_takes_longer_for_each_call(marks: Marks) -> None:
    clock, one = ManualClock(), strike(DrillFault.SLOW_DISK, arguments={"slow_s": 2.0, "lasts_s": 100.0})
    trouble = DiskTrouble(marks, orders(marks, one), clock)
    trouble.begin(one)
    began_s = clock.monotonic_s()
    trouble.meet()
    assert clock.monotonic_s() - began_s == 2.0


_HOOKED = """
import os, pathlib, sys, time
from failsoft.drills.training.inside.arrive import arrive
arrive()
run = pathlib.Path(sys.argv[1])
before = time.time()
for number in range(3):
    (run / f"state-{number}.tmp").write_bytes(b"whole")
    os.replace(run / f"state-{number}.tmp", run / f"state-{number}")
print("survived", time.time() - before < -1000)
"""


@pytest.mark.parametrize(
    ("kind", "status", "left"),
    [
        (DrillFault.KILL_WORKER, -signal.SIGKILL, ["state-0", "state-1.tmp"]),
        (DrillFault.FULL_DISK, 1, ["state-0", "state-1.tmp"]),
        (DrillFault.CLOCK_JUMP, 0, ["state-0", "state-1", "state-2"]),
    ],
)
def test_a_process_is_struck_between_a_file_and_its_rename(
    marks: Marks, kind: DrillFault, status: int, left: list[str]
) -> None:
    run = marks.folder.parent / "run"
    run.mkdir()
    at = Trigger(event=Event.SAVE, count=1, key="rename state-#")
    one = Strike(fault=PlannedFault(kind=kind, phase=Phase.SAVING), trigger=at, name="0")
    orders(marks, one).write(marks.file("orders.json"))
    environment = os.environ | {ORDERS_VARIABLE: str(marks.file("orders.json"))}
    done = subprocess.run(
        [sys.executable, "-c", _HOOKED, str(run)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert sorted(path.name for path in run.iterdir()) == left
    assert ("survived True" in done.stdout) == (kind is DrillFault.CLOCK_JUMP)
    assert [mark["name"] for mark in marks.read() if mark["what"] == "struck"] == ["0"]
