"""Targets, ledgers and posts for tests of alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from failsoft.alerts.settings import Target
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side


def target(**given: Any) -> Target:
    return Target.model_validate({"name": "pager", "to": "http://127.0.0.1:1/hook", "kinds": ["trip"]} | given)


def book(folder: Path, clock: ManualClock, subject: str = "gateway-1") -> Ledger:
    return Ledger(folder / "ledger.jsonl", clock, side=Side.SERVING, subject=subject)


class Post:
    """Answers with the given statuses in turn, then 200; an exception among them is raised."""

    def __init__(self, *answers: int | BaseException) -> None:
        self._answers = list(answers)
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, address: str, body: dict[str, Any], timeout_s: float) -> int:
        assert (address, timeout_s > 0.0) == ("http://127.0.0.1:1/hook", True)
        answer = self._answers.pop(0) if self._answers else 200
        if isinstance(answer, BaseException):
            raise answer
        if answer < 300:
            self.bodies.append(body)
        return answer
