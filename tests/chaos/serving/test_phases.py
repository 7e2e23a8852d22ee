"""How an app is brought onto its fallback and onto its way back, and which kinds are tried there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.drills.fault import DrillFault, Phase, PlannedFault
from failsoft.drills.serving import phases
from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.phases import enter, leave, phases_of
from failsoft.drills.serving.session import Session
from failsoft.drills.serving.target import ServeTarget
from failsoft.drills.serving.trial import Trial
from failsoft.errors import ServingError
from failsoft.health.clock import ManualClock


class Gateway:
    """Takes orders as the real one does; each is followed by answers under the stage that it leads to."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers, self.orders = answers, list[str]()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def degrade(self, **_: Any) -> None:
        self._follow("degrade", "degraded")

    def restore(self, **_: Any) -> None:
        self._follow("restore", "shadow")

    def _follow(self, order: str, stage: str) -> None:
        self.orders.append(order)
        self.answers += [Answer(sent_s=0.0, done_s=0.0, status=200, stage=stage)] * 9


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    made = Gateway([])
    monkeypatch.setattr(phases, "GatewayClient", lambda *_, **__: made)
    return made


def session() -> Session:
    made = Session(ServeTarget(app="a:b"), ManualClock())
    home = SimpleNamespace(operator_token=lambda: "t")
    family = SimpleNamespace(look=lambda: [])
    made.parts = SimpleNamespace(host=SimpleNamespace(url="http://x", home=home, family=family))  # type: ignore[assignment]
    return made


def traffic(gateway: Gateway) -> Any:
    return SimpleNamespace(now=lambda: gateway.answers)


def test_under_load_nothing_is_ordered(gateway: Gateway) -> None:
    enter(Phase.LOAD, session(), traffic(gateway))
    leave(Phase.LOAD, session())
    assert gateway.orders == []


def test_the_fallback_is_ordered_before_and_taken_back_after(gateway: Gateway) -> None:
    enter(Phase.FALLBACK, session(), traffic(gateway))
    assert gateway.orders == ["degrade"]
    leave(Phase.FALLBACK, session())
    assert gateway.orders == ["degrade", "restore"]


def test_the_way_back_has_begun_when_the_fault_strikes_and_needs_no_more_orders(gateway: Gateway) -> None:
    enter(Phase.ROLLOUT, session(), traffic(gateway))
    leave(Phase.ROLLOUT, session())
    assert gateway.orders == ["degrade", "restore"]


def test_an_app_that_does_not_follow_is_no_app_to_try_that_phase_on(gateway: Gateway) -> None:
    silent: Any = SimpleNamespace(now=list)
    with pytest.raises(ServingError, match="is not on the fallback 30 s after the order"):
        enter(Phase.FALLBACK, session(), silent)


def test_faults_drawn_together_share_the_rarest_phase_that_any_of_them_names() -> None:
    kinds = (DrillFault.OVERLOAD, Phase.LOAD), (DrillFault.KILL_REPLICA, Phase.ROLLOUT)
    faults = [PlannedFault(kind=kind, phase=phase) for kind, phase in kinds]
    assert Trial(session=session(), faults=faults, folder=None)._phase is Phase.ROLLOUT  # type: ignore[arg-type]  # not used


def test_only_the_full_matrix_strikes_on_the_fallback_and_on_the_way_back() -> None:
    assert phases_of(DrillFault.KILL_GATEWAY, full=False) == (Phase.LOAD,)
    assert phases_of(DrillFault.KILL_GATEWAY, full=True) == (Phase.LOAD, Phase.ROLLOUT, Phase.FALLBACK)
    assert phases_of(DrillFault.CLOCK_JUMP, full=True) == (Phase.LOAD,)
