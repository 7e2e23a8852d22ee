"""A worker that stands still on a real Ray is seen, leaves its stacks, and the run ends as the undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.training.survival.watch_policy import WatchPolicy
from tests.drills.troubled_job import TroubledJob
from tests.drills.troubled_run import attempt, final_digest, told

pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray warns of its own settings


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
def test_a_worker_that_hangs_in_a_step_is_dumped_ended_and_restarted_and_no_bit_of_the_result_differs(
    tmp_path: Path, undisturbed_digest: str
) -> None:
    hanging = TroubledJob(folder=tmp_path / "hanging", for_ever=True)
    assert attempt(hanging) is None
    assert final_digest(hanging.folder) == undisturbed_digest
    left = {event.data["rank"]: event for kind in ("hang_witness", "hang") for event in told(hanging.folder, kind)}
    assert left.keys() == {0, 1}  # whichever gave the alarm
    assert left[1].data["position"] == hanging.position
    assert "_stand_still" in str(left[1].data["stacks"])
    assert "_stand_still" in Path(str(left[1].data["file"])).read_text("utf-8")
    (report,) = told(hanging.folder, "hang_report")
    assert (report.data["suspects"], report.data["silent"]) == ([1], [])
    assert "rank 0: step at batch 17, in a collective" in report.why
    assert len(told(hanging.folder, "run_started")) == 2


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
def test_a_group_whose_watchdogs_are_dead_is_started_again_by_the_controller(
    tmp_path: Path, undisturbed_digest: str
) -> None:
    patient = {"first_step_s": 29.0, "step_s": 29.0, "checkpoint_s": 29.0, "validation_s": 29.0}
    hanging = TroubledJob(folder=tmp_path / "hanging", for_ever=True, blind=True)
    assert attempt(hanging, WatchPolicy(silence_s=30.0, **patient)) is None
    assert final_digest(hanging.folder) == undisturbed_digest
    (hang,) = told(hanging.folder, "hang")
    assert (hang.data["by"], hang.data["position"]) == ("controller", hanging.position)
    assert len(told(hanging.folder, "run_started")) == 2
