"""A gateway with its console in a process of its own: ``python -m tests.benchmarks.console_host HOME``.

It is the real one, and its models are fakes that answer at once, so that it has all there is to be had. Its home holds
ten minutes of eight gateways' answers, and a ledger of thousands of events of runs and of serving. It prints its port
as a JSON line, and stops when its standard input ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from tests.console.app_here import app_here
from tests.incidents.made import Told

GATEWAYS, EVENTS, RUNS = 8, 1500, 3
_SPAN_S, _HISTORY_S = 5.0, 600.0


def fill(home: Path) -> None:
    """What a home holds after a day."""
    told = Told(home)
    told.clock.jump_wall(SystemClock().wall_s() - told.clock.wall_s() - _HISTORY_S - 60.0)
    told.whole_incident()
    for number in range(RUNS):
        (home / "runs" / f"run{number}").mkdir(parents=True)
        run = Ledger(home / "ledger.jsonl", told.clock, side=Side.TRAINING, subject=f"run{number}")
        for _ in range(EVENTS // RUNS):
            run.record("batch_refused", "a norm of 3e7 is above 100")
            told.event("trial_held", "by an operator, until the numbers are in")
    for _ in range(int(_HISTORY_S / _SPAN_S)):
        told.clock.advance(_SPAN_S)
        for gateway in range(GATEWAYS):
            told.span({"primary": 990, "gbdt": 9, "rules": 1}, gateway=f"gateway-{gateway}", span_s=_SPAN_S)


def main() -> None:
    """Serve until standard input ends."""
    home = Path(sys.argv[1])
    fill(home)
    with pytest.MonkeyPatch.context() as patch, app_here(home, patch, span_s=_SPAN_S, max_model_queue=256) as app:
        print(json.dumps({"port": int(app.url.rsplit(":", 1)[1])}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
