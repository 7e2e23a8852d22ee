"""A plan of checkpoints in words, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from failsoft.training.checkpoints.cadence import Setting, daly_s
from failsoft.training.checkpoints.cadence_trial import Trial

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size_s in _UNITS:
        if seconds >= 2.0 * size_s:
            return f"{seconds / size_s:.3g} {unit}"
    return f"{seconds:.3g} s"


def trial_table(trials: Sequence[Trial]) -> Table:
    """Formula and simulation side by side."""
    table = Table("interval", "", "useful by formula", "in the simulation", title="share of the time that is useful")
    for trial in trials:
        table.add_row(trial.name, duration(trial.interval_s), f"{trial.expected:.2%}", f"{trial.simulated:.2%}")
    return table


def in_words(setting: Setting, trials: Sequence[Trial], *, step_s: float | None) -> list[str]:
    """What the numbers say."""
    best = next(trial for trial in trials if trial.name == "Daly")
    per_checkpoint = setting.checkpoint_cost_s / (best.interval_s + setting.checkpoint_cost_s)
    lines = [
        f"{setting.nodes} node{'s' if setting.nodes > 1 else ''} that fail every {duration(setting.node_mtbf_s)} each: "
        f"the job fails every {duration(setting.mtbf_s)} on average.",
        f"Checkpoint every {duration(best.interval_s)}: more often and the checkpoints cost more than the failures "
        f"({per_checkpoint:.2%} of the time is theirs at this interval), less often and each failure repeats more "
        f"work (half an interval on average, {duration(best.interval_s / 2.0)}, and {duration(setting.restart_s)} of "
        "restart).",
        f"{best.expected:.2%} of the time is useful then by formula, {best.simulated:.2%} in the simulation of 4000 "
        "failures.",
    ]
    if step_s is not None:
        lines.append(f"In steps of {duration(step_s)}: every {steps(best.interval_s, step_s)} steps.")
    if best.expected < 0.5:
        lines.append(
            "Less than half of the time is useful: no interval mends that. Make checkpoints or restarts cheaper, or "
            "use fewer nodes."
        )
    return lines


def as_json(setting: Setting, trials: Sequence[Trial], *, step_s: float | None) -> dict[str, Any]:
    """The plan as plain data."""
    answer: dict[str, Any] = {
        "setting": asdict(setting) | {"mtbf_s": setting.mtbf_s},
        "interval_s": daly_s(setting),
        "trials": [asdict(trial) for trial in trials],
    }
    return answer if step_s is None else answer | {"interval_steps": steps(daly_s(setting), step_s)}


def steps(interval_s: float, step_s: float) -> int:
    """An interval in whole steps, at least one."""
    return max(1, round(interval_s / step_s))
