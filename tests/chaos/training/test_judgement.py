from __future__ import annotations

import math
from dataclasses import replace

import pytest

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.attempt import Attempt
from failsoft.drills.training.exactness import Exactness
from failsoft.drills.training.judgement import Allowance, Evidence, judge
from failsoft.drills.training.mends import mend_of

WELL = Attempt(status=0, seconds=1.0, backwards=100, passes=100, hung=False, left=(), last_words="")
KILLED = replace(WELL, status=-9, backwards=60, passes=60)
SOUND = Evidence(
    kinds=frozenset({DrillFault.NAN}),
    struck=frozenset({"0-nan"}),
    planned=1,
    attempts=(WELL,),
    due=100,
    torn=(),
    exact=Exactness(),
    is_finite=True,
    distance=0.0,
    without_batch=0.02,
    allowance=Allowance(noise=0.0, batch=0.02),
)


def test_the_weights_of_the_quiet_run_or_of_one_without_the_batch_have_survived() -> None:
    assert judge(SOUND).survived is True
    assert "the same weights" in judge(SOUND).why
    without = judge(replace(SOUND, distance=0.02, without_batch=0.0))
    assert (without.survived, without.why) == (True, "the weights of the quiet run without that batch")
    near = judge(replace(SOUND, distance=0.05, without_batch=0.03))
    assert near.survived is True
    assert "0.05" in near.why


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attempts": (replace(WELL, status=1),)}, "does not finish"),
        ({"attempts": (replace(WELL, hung=True, status=-9), WELL)}, "nobody noticed"),
        ({"attempts": (replace(WELL, left=("process 7: writer",)),)}, "left behind"),
        ({"torn": ("state.pt: its end is missing",)}, "torn"),
        ({"exact": Exactness(runs=1, lost=8)}, "8 samples were never seen"),
        ({"exact": Exactness(runs=1, repeated=8)}, "8 are in the weights twice"),
        ({"is_finite": False, "distance": math.inf}, "not finite"),
        ({"distance": 0.07, "without_batch": 0.07}, "other weights"),
        ({"distance": math.inf, "without_batch": math.inf}, "other weights"),
        ({"attempts": (KILLED, WELL)}, "nothing of 60 steps was kept"),
    ],
)
def test_what_was_lost_is_said(change: dict[str, object], says: str) -> None:
    word = judge(replace(SOUND, **change))  # type: ignore[arg-type]
    assert word.survived is False
    assert says in word.why


@pytest.mark.parametrize(
    "change",
    [
        {"struck": frozenset()},
        {"is_finite": None, "distance": None},
        {"distance": math.nan},
        {"allowance": Allowance(noise=0.5)},
        {"allowance": Allowance(noise=math.inf)},
        {"exact": Exactness(unreadable="its marks are torn")},
    ],
)
def test_what_can_not_be_told_is_undecided_and_not_good(change: dict[str, object]) -> None:
    assert judge(replace(SOUND, **change)).survived is None  # type: ignore[arg-type]


def test_a_restart_that_kept_something_has_survived_and_one_at_the_very_beginning_had_nothing_to_keep() -> None:
    kept = judge(replace(SOUND, attempts=(KILLED, replace(WELL, backwards=60))))
    assert kept.survived is True
    assert "2 starts, 20 steps done again" in kept.why
    assert judge(replace(SOUND, attempts=(replace(KILLED, backwards=3), WELL))).survived is True


@pytest.mark.parametrize(
    ("kind", "passes", "survived"),
    [
        (DrillFault.SIGTERM, (60, 40), True),
        (DrillFault.SIGTERM, (60, 39), False),
        (DrillFault.KILL_WORKER, (99,), False),
        (DrillFault.KILL_WORKER, (200,), True),  # two ranks, or one that took the other's place
        (DrillFault.NAN, (99,), True),  # the struck batch was refused before its gradients
        (DrillFault.POISONED_SAMPLE, (75,), True),
        (DrillFault.POISONED_SAMPLE, (74,), False),
    ],
)
def test_a_run_that_does_fewer_steps_than_it_was_asked_for_has_lost_them(
    kind: DrillFault, passes: tuple[int, ...], survived: bool
) -> None:
    """It ended with status 0, and the weights of a noisy script hid what was never trained."""
    attempts = tuple(replace(WELL, backwards=min(count, 90), passes=count) for count in passes)
    noisy = Allowance(noise=0.05, batch=0.02)
    word = judge(replace(SOUND, kinds=frozenset({kind}), attempts=attempts, distance=0.1, allowance=noisy))
    assert word.survived is survived, word.why
    if not survived:
        assert f"called itself done after {sum(passes)} of 100 steps" in word.why


def test_memory_is_no_reason_to_leave_a_batch_out() -> None:
    oom = replace(SOUND, kinds=frozenset({DrillFault.OUT_OF_MEMORY}))
    assert judge(oom).survived is True
    assert judge(replace(oom, distance=0.01, without_batch=0.015)).survived is True  # in pieces: batch norm, dropout
    left_out = judge(replace(oom, distance=0.02, without_batch=0.0))
    assert left_out.survived is False
    assert "left out" in left_out.why


def test_noise_of_the_script_itself_is_borne() -> None:
    noisy = replace(SOUND, distance=0.002, without_batch=None, allowance=Allowance(noise=0.001))
    assert judge(noisy).survived is True
    assert judge(replace(noisy, distance=0.004)).survived is False


def test_every_fault_of_the_training_side_has_a_mend_of_its_own() -> None:
    from failsoft.drills.catalogue import TRAINING

    assert all(mend_of(kind) != "docs/runbook.md" for kind in TRAINING)
