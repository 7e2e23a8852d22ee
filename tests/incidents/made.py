"""Ledgers and answers as an incident leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side
from failsoft.serving.watching.answer_history import FILE_NAME

BEGAN_S = 1_700_000_000.0
RETURN = ("shadow", "canary", "ramp_20", "ramp_50", "serving")


class Told:
    """Writes down what happened, second by second."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock, self.epoch = home, ManualClock(wall_s=BEGAN_S), 10
        self._ledger = Ledger(home / "ledger.jsonl", self.clock, side=Side.SERVING, subject="app")

    def event(self, kind: str, why: str = "so", **data: Any) -> None:
        self._ledger.record(kind, why, **data)

    def plan(self, stage: str, why: str = "so", *, kind: str = "stage_move") -> None:
        self.epoch += 1
        self.event(kind, why, epoch=self.epoch, stage=stage, release="r1")

    def trip(self, gateway: str = "gateway-1", why: str = "12 bad of 40") -> None:
        Ledger(self.home / "ledger.jsonl", self.clock, side=Side.SERVING, subject=gateway).record(
            "gateway_tripped", why
        )

    def answers(self, seconds: int, **sources: int) -> None:
        """For so many spans of 1 s this many answers each; ``why`` is ``none`` for models and ``stage`` for others."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.span(sources)

    def span(self, sources: dict[str, int], specimens: tuple[dict[str, str], ...] = (), **other: Any) -> None:
        models = sum(count for source, count in sources.items() if source == "primary")
        line = {
            "v": 1,
            "at_s": self.clock.wall_s(),
            "span_s": 1.0,
            "gateway": "gateway-1",
            "epoch": self.epoch,
            "stage": "serving",
            "release": "r1",
            "answers": {s: {"none" if s == "primary" else "stage": count} for s, count in sources.items()},
            "confidence": [0] * 9 + [models],
            "slowest_ms": 12.5,
            "specimens": list(specimens),
        }
        path = self.home / "serving" / FILE_NAME
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(line | other) + "\n")

    def whole_incident(self) -> None:
        """20 s of health, a trip, a relapse in shadow, and the way back."""
        self.plan("serving")
        self.answers(20, primary=40)
        self.trip()
        self.plan("degraded", "12 weak of 40")
        self.answers(10, gbdt=35, rules=5)
        self.plan("shadow")
        self.plan("degraded", "weak in shadow")
        self.answers(5, gbdt=40)
        for stage in RETURN:
            self.plan(stage)
            self.answers(2, primary=20, gbdt=20)
