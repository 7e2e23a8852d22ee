"""A worker is killed on a real Ray, and the run accounts for all of its time and for every sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.health.ledger import read_ledger
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.accounting.stretches import Part
from failsoft.training.accounting.whereabouts import whereabouts
from failsoft.training.ray_train import RaySettings, run_attempt
from tests.drills.accounted_job import build_accounted
from tests.drills.toy_job import ToyJob

pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray warns of its own settings


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
def test_a_killed_worker_costs_known_times_and_no_sample(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ledger = folder / "ledger.jsonl"
    kill = Fault(kind=FaultKind.KILL_WORKER, position=37, rank=1)
    job = ToyJob(folder=folder, faults=FaultPlan(faults=(kill,)))
    assert run_attempt(build_accounted, job, RaySettings(folder=folder, ledger=ledger, workers=2)) is None
    look = whereabouts(folder, read_ledger(ledger).events, now_s=SystemClock().wall_s())
    time = look.account
    assert time.over
    for part in (Part.PRODUCTIVE, Part.LOST, Part.STALL, Part.DETECT, Part.START, Part.LOAD):
        assert (time.seconds(part) or 0.0) > 0.0, part
    assert time.seconds(Part.UNKNOWN) == time.seconds(Part.UNSPLIT) == 0.0
    assert sum(value for value in time.micros.values() if value is not None) == time.wall_micros
    (incident,) = time.incidents
    assert (incident.kind, incident.batches) == ("restart", 7)
    found = verify(folder)
    assert found.sound
    assert found.repeated_batches == 7
    assert [epoch.counts[Fate.ONCE] for epoch in found.epochs[:7]] == [64] * 7
