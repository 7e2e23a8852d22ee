"""Scripts of strangers are really run, broken and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.outcome import Outcome
from failsoft.drills.shrinking import shrink
from failsoft.drills.training.command import TrainCommand
from failsoft.drills.training.leftovers import alive
from failsoft.drills.training.script import ScriptOptions, TrainScript
from failsoft.health.clock import SystemClock
from tests.chaos.training.scripts import CAREFUL, PLAIN, PLANTED, write

Drill = Callable[..., TrainScript]


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Drill]:
    made: list[TrainScript] = []

    def drilled(text: str, *, warm: bool = True) -> TrainScript:
        command = TrainCommand(script=write(tmp_path, text))
        made.append(TrainScript(command, tmp_path / "drill", SystemClock(), ScriptOptions(warm=warm)))
        (tmp_path / "reference").mkdir()
        reference = made[-1].reference(tmp_path / "reference")
        assert reference.good, reference.why
        return made[-1]

    yield drilled
    for one in made:
        one.close()


def fault(kind: DrillFault, phase: Phase = Phase.TRAINING, **more: float) -> PlannedFault:
    return PlannedFault(kind=kind, phase=phase, **more)  # type: ignore[arg-type]


class Trials:
    """Each in a folder of its own."""

    def __init__(self, script: TrainScript, folder: Path) -> None:
        self.script = script
        self.folder = folder
        self.count = 0

    def __call__(self, *faults: PlannedFault) -> Outcome:
        self.count += 1
        return self.script.trial(faults, self.folder / f"trial-{self.count}")


def test_a_script_without_any_guard_shows_what_it_loses_and_what_to_do(drill: Drill, tmp_path: Path) -> None:
    trial = Trials(drill(PLAIN), tmp_path)
    ill = trial(fault(DrillFault.NAN))
    assert ill.word == "lost"
    assert "not finite" in ill.why
    assert "guard" in ill.mend
    killed = trial(fault(DrillFault.KILL_WORKER))
    assert killed.word == "lost"
    assert "nothing of" in killed.why
    assert any("SIGKILL" in line for line in killed.seen)
    assert trial(fault(DrillFault.KILL_WORKER, Phase.SAVING)).word == "not tried"


def test_a_careful_script_survives_and_the_drill_says_at_what_cost(drill: Drill, tmp_path: Path) -> None:
    script = drill(CAREFUL)
    trial = Trials(script, tmp_path)
    refused = trial(fault(DrillFault.NAN))
    assert refused.good, refused.why
    assert "without that batch" in refused.why
    killed = trial(fault(DrillFault.KILL_WORKER, Phase.SAVING))
    assert killed.good, killed.why
    assert 0 < killed.again < 16
    assert script.able(DrillFault.KILL_DRIVER, Phase.TRAINING) is not None


@pytest.mark.drill
def test_every_fault_in_every_phase_of_a_careful_script_ends_in_a_verdict(drill: Drill, tmp_path: Path) -> None:
    script = drill(CAREFUL)
    trial = Trials(script, tmp_path)
    found = {(kind, phase): trial(fault(kind, phase)) for kind in script.kinds for phase in script.phases(kind)}
    assert not [outcome.why for outcome in found.values() if outcome.word == "undecided"]
    assert {kind for (kind, _), outcome in found.items() if outcome.word == "lost"} == {
        DrillFault.SPIKE,  # it knows no usual level
        DrillFault.OUT_OF_MEMORY,  # the same batch kills it each time
        DrillFault.HANG,  # nobody watches it
        DrillFault.TORN_CHECKPOINT,  # it keeps one, and does not look before it loads
        DrillFault.FLIPPED_CHECKPOINT,
        DrillFault.MISSING_CHECKPOINT,
    }
    assert alive("no such trial", ()) == []


@pytest.mark.drill
def test_a_planted_bug_of_two_faults_is_shrunk_from_five_by_real_runs(drill: Drill, tmp_path: Path) -> None:
    trial = Trials(drill(PLANTED), tmp_path)
    five = (
        fault(DrillFault.CLOCK_JUMP, Phase.START),
        fault(DrillFault.NAN, Phase.FIRST_STEP),
        fault(DrillFault.SLOW_DISK),
        fault(DrillFault.KILL_WORKER, at=0.9, seed=5),
        fault(DrillFault.NAN, Phase.VALIDATION),
    )

    def fails(faults: Sequence[PlannedFault]) -> bool:
        return trial(*faults).survived is False

    assert not any(fails([one]) for one in five)
    assert fails(five)
    smallest = shrink(five, fails)
    assert [(one.kind, one.phase) for one in smallest] == [
        (DrillFault.NAN, Phase.FIRST_STEP),
        (DrillFault.KILL_WORKER, Phase.TRAINING),
    ]
    assert (smallest[1].at, smallest[1].seed) == (0.5, 0)


@pytest.mark.drill
def test_a_cold_start_is_struck_as_a_warm_one_is(drill: Drill, tmp_path: Path) -> None:
    outcome = Trials(drill(CAREFUL, warm=False), tmp_path)(fault(DrillFault.INF, Phase.FIRST_STEP))
    assert outcome.good, outcome.why
    assert "without that batch" in outcome.why


@pytest.mark.parametrize(
    ("text", "says"),
    [("raise SystemExit(7)", "exit status 7"), ("print('no torch here')", "no gradients")],
)
def test_a_script_that_is_not_well_without_a_fault_is_told_apart(tmp_path: Path, text: str, says: str) -> None:
    script = TrainScript(TrainCommand(script=write(tmp_path, text)), tmp_path / "drill", SystemClock())
    found = script.reference(tmp_path / "reference")
    script.close()
    assert not found.good
    assert says in found.why
    assert found.mend
