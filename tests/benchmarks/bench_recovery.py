"""From the SIGKILL of a worker to the first new step of all: failsoft, bare Ray Train at its defaults, and torchrun.

The same toy (DDP on gloo, two workers on this machine) runs under each, with no back-off anywhere. All are started
once, stand side by side, and are killed in turns, in a new order each round: one trains and recovers while the others
wait. A kill hits a random worker at a random moment, the same for all in one round; it counts only when every rank has
gone on from one and the same checkpoint. Spares are given the time to become warm before the next kill, as they have
in earnest: two kills within seconds find the second time what "no spares" shows.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import CONTROL, Ratio, Timings, quartiles, rounds
from tests.benchmarks.outcome import Outcome, Row
from tests.benchmarks.recovery_marks import Recovery
from tests.benchmarks.recovery_systems import System, bare_ray, failsoft, torchrun
from tests.benchmarks.recovery_toy import WORKERS

OURS, COLD, RAY, TORCHRUN = "failsoft", "failsoft, no spares", "Ray Train, defaults", "torchrun"
AGAIN = OURS + CONTROL
ROUNDS, LEAST_ROUNDS = 8, 3
BUDGET_S = 330.0
"""No further round is begun that would not end by then."""
PATIENCE_S = 90.0
RATIOS = {
    "failsoft_over_ray_default": (OURS, RAY),
    "failsoft_over_torchrun": (OURS, TORCHRUN),
    "no_spares_over_ray_default": (COLD, RAY),
    "no_spares_over_torchrun": (COLD, TORCHRUN),
}


@dataclass(kw_only=True)
class Board:
    """What each contender did, round by round; None where it was not back in time."""

    recoveries: dict[str, list[Recovery | None]] = field(default_factory=dict)

    def add(self, name: str, recovery: Recovery | None) -> None:
        """One more round of a contender."""
        self.recoveries.setdefault(name, []).append(recovery)

    def ratio(self, over: str, under: str) -> Ratio | None:
        """Over the rounds in which both came back; None when there is none."""
        pairs = list(zip(self.recoveries[over], self.recoveries[under], strict=True))
        both = [(a.took_s, b.took_s) for a, b in pairs if a is not None and b is not None]
        if not both:
            return None
        return Timings(seconds={over: [a for a, _ in both], under: [b for _, b in both]}).ratio(over, under)

    def back(self, name: str) -> list[Recovery]:
        """Those that came back."""
        return [recovery for recovery in self.recoveries[name] if recovery is not None]


def measure(*, quick: bool) -> Outcome:
    """All systems; quick: one round, without the one that has no spares."""
    return raced(most=1 if quick else ROUNDS, least=LEAST_ROUNDS, budget_s=BUDGET_S, without_cold=quick)


def raced(*, most: int, least: int, budget_s: float, without_cold: bool) -> Outcome:
    """So many rounds; ``without_cold`` leaves out the contender that has no spares."""
    seed = random.SystemRandom().randrange(2**31)
    outcome, board = Outcome(name="recovery", processes=WORKERS), Board()
    with _systems(quick=without_cold) as systems:
        sizes = {system.name: system.size() for system in systems}
        for number in rounds(most, least=least, budget_s=budget_s):
            _one_round(board, systems, seed=f"{seed}-{number}")
    for name in board.recoveries:
        report(outcome, board, name, sizes[name.removesuffix(CONTROL)])
    for ratio, (over, under) in RATIOS.items():
        found = board.ratio(over, under) if over in board.recoveries else None
        if found is not None:
            outcome.ratios[ratio] = found
    control = board.ratio(AGAIN, OURS)
    if control is not None:
        outcome.controls[OURS] = control
    outcome.notes.append(f"seed {seed}; {WORKERS} workers each; the processes of a system are all that it started")
    return outcome


def _one_round(board: Board, systems: Sequence[System], *, seed: str) -> None:
    turns = [(system.name, system) for system in systems]
    turns += [(AGAIN, system) for system in systems if system.name == OURS]
    for name, system in random.Random(seed).sample(turns, len(turns)):
        recovery = system.killed(random.Random(seed), patience_s=PATIENCE_S)
        board.add(name, recovery)
        if recovery is None:
            system.stop()
            system.start()
        system.rest()


@contextmanager
def _systems(*, quick: bool) -> Iterator[list[System]]:
    folder = Path(tempfile.mkdtemp(prefix="fsb-", dir="/tmp"))  # short: Ray's sockets must fit in 107 bytes
    systems = [failsoft(folder / "ours"), bare_ray(folder / "ray"), torchrun(folder / "torch")]
    systems += [] if quick else [failsoft(folder / "cold", spares=False)]
    try:
        for system in systems:
            system.start()
            system.rest()
        yield systems
    finally:
        for system in systems:
            system.stop()
        shutil.rmtree(folder, ignore_errors=True)


def report(outcome: Outcome, board: Board, name: str, size: tuple[int, float]) -> None:
    """Add a contender's rows; one that never came back has none, and is named in a note."""
    back, all_of_them = board.back(name), board.recoveries[name]
    note = f"{len(back)} of {len(all_of_them)} back within {PATIENCE_S:g} s"
    if not back:
        outcome.notes.append(f"{name}: {note}")
        return
    again = statistics.median(recovery.repeated for recovery in back)
    note += f"; {again:g} steps done again; {size[0]} processes, {size[1]:.0f} MB"
    parts = {
        "SIGKILL to first new step": [recovery.took_s for recovery in back],
        "of this, until the workers' code runs": [recovery.began_s for recovery in back],
    }
    for part, seconds in parts.items():
        low, high = quartiles(seconds)
        median_s = statistics.median(seconds)
        outcome.rows.append(Row(part=part, contender=name, median_s=median_s, low_s=low, high_s=high, note=note))
        note = ""
