"""The chaos suite on two real Serve apps: failsoft's own small one loses nothing, a bare one shows what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failsoft.drills.fault import DrillFault, PlannedFault
from failsoft.drills.outcome import Outcome
from failsoft.drills.serving.promises import SHORT_KINDS
from failsoft.drills.serving.subject import ServeSubject
from failsoft.drills.serving.target import ServeTarget
from failsoft.drills.serving.toy import PAYLOADS
from failsoft.health.clock import SystemClock

pytestmark = pytest.mark.drill

OURS: dict[str, Any] = {"app": "failsoft.drills.serving.toy:app", "payloads": PAYLOADS}
BARE: dict[str, Any] = {
    "app": "tests.chaos.serving.bare_app:app",
    "payloads": ({"text": "short"}, {"text": "a much longer text"}),
    "settle_within_s": 60.0,
}
OF_THE_BARE = (DrillFault.MALFORMED_WAVE, DrillFault.GARBAGE_MODEL, DrillFault.SLOW_MODEL, DrillFault.CLOCK_JUMP)


def drilled(given: dict[str, Any], kinds: tuple[DrillFault, ...], folder: Path) -> dict[DrillFault, Outcome]:
    """Each fault alone, under load; all of it is gone afterwards."""
    clock = SystemClock()
    subject, outcomes, began_s = ServeSubject(ServeTarget(**given), clock, kinds=kinds), {}, clock.monotonic_s()
    try:
        reference = subject.reference(folder)
        assert reference.good, reference.why
        for kind in subject.kinds:
            (phase,) = subject.phases(kind)
            assert subject.able(kind, phase) is None
            outcomes[kind] = subject.trial([PlannedFault(kind=kind, phase=phase)], folder)
            print(f"{kind}: {outcomes[kind].word} in {outcomes[kind].seconds:.1f} s: {outcomes[kind].why}")
    finally:
        subject.close()
    print(f"{subject.name}: {clock.monotonic_s() - began_s:.0f} s in all; {subject.notes[0]}")
    assert subject.left == ()
    return outcomes


def test_failsofts_own_app_survives_each_fault_of_the_default_profile(tmp_path: Path) -> None:
    outcomes = drilled(OURS, SHORT_KINDS, tmp_path)
    assert {kind: one.why for kind, one in outcomes.items() if not one.good} == {}


def test_a_bare_app_loses_requests_and_lets_garbage_through_and_that_is_a_result(tmp_path: Path) -> None:
    outcomes = drilled(BARE, OF_THE_BARE, tmp_path)
    assert {kind for kind, one in outcomes.items() if one.good} == {DrillFault.CLOCK_JUMP}
    assert "bad answers came after the stated time" in outcomes[DrillFault.GARBAGE_MODEL].why
    assert outcomes[DrillFault.SLOW_MODEL].lost > 0
    assert all(one.mend for one in outcomes.values() if not one.good)
