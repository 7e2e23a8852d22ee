"""Cost against size: each curve with its exponent. What must not grow has an exponent of 0, what reads all once of 1.

Times are the process's own processor time (a busy neighbour does not count) but for snapshots and the fan-out of plans,
which are by the clock. Pictures lie beside the JSON, in ``build/bench/growth``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.benchmarks.growth_curve import COLUMNS, Curve
from tests.benchmarks.growth_picture import draw_curves
from tests.benchmarks.growth_serving import fan_out_curves, replica_curves, request_curves
from tests.benchmarks.growth_shelves import checkpoint_curves, ledger_curves
from tests.benchmarks.growth_training import training_curves
from tests.benchmarks.outcome import Outcome, Sheet

PICTURES = Path("build/bench/growth")
SUBJECTS: Mapping[str, Callable[..., list[Curve]]] = {
    "training": training_curves,
    "checkpoints": checkpoint_curves,
    "ledger": ledger_curves,
    "replicas": replica_curves,
    "fan-out": fan_out_curves,
    "requests": request_curves,
}


def measure(*, quick: bool) -> Outcome:
    """All subjects, or those that ``FAILSOFT_GROWTH`` names, apart by commas."""
    chosen = [name for name in os.environ.get("FAILSOFT_GROWTH", "").split(",") if name] or list(SUBJECTS)
    outcome = Outcome(name="growth")
    for name in chosen:
        curves = SUBJECTS[name](quick=quick)
        outcome.sheets.append(Sheet(title=name, columns=COLUMNS, rows=[one.row() for one in curves]))
        outcome.more[name] = [one.as_json() for one in curves]
        outcome.notes += [f"{one.name}: {one.note}" for one in curves if one.note]
        draw_curves(f"cost against size: {name}", curves, PICTURES / f"{name}.png")
    outcome.notes.append(f"pictures in {PICTURES}; the exponent is the slope in logarithms, with its 95 % interval")
    return outcome
