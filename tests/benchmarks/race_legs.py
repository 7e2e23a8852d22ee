"""The legs of the race, each in a process of its own: ``python -m tests.benchmarks.race_legs LEG --out FOLDER``.

A leg is what the benchmark of its name measures, by that benchmark's own pieces, shorter unless ``--full`` is given.
What it found lies in ``LEG.json`` of the folder. Nothing is measured here in a second way.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from os import cpu_count, getloadavg
from pathlib import Path

from tests.benchmarks.leash import led
from tests.benchmarks.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One line of the race's table."""

    ratio: str
    """Its name in the leg's outcome."""
    what: str
    against: str
    upside_down: bool = False
    """The leg has it as theirs over ours."""
    control: str = ""
    """Part of the leg's A/A that belongs to it; empty: the leg's first."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One part of the race."""

    run: Callable[[bool, Path], Outcome]
    """Measures, in full or shorter; the folder takes what is more than an outcome."""
    limit_s: float
    """A shorter leg that takes longer is ended; a full one has four times as long."""
    claims: Sequence[Claim] = ()


def guard(full: bool, _: Path) -> Outcome:
    """Whole training steps."""
    import torch

    from tests.benchmarks.bench_guard import SIZES, WHOLE, whole_steps

    torch.set_num_threads(1)
    outcome = Outcome(name="guard")
    for size in SIZES if full else SIZES[:2]:
        steps = whole_steps(outcome, size, size.rounds if full else size.rounds // 3)
        outcome.ratios |= {f"{name}_{size.name}": steps.ratio(*pair) for name, pair in WHOLE.items()}
    if find_spec("composer") is None:
        outcome.notes.append("Composer is not installed and has no loop here: not measured")
    return outcome


def snapshot(full: bool, _: Path) -> Outcome:
    """A photograph of the state in memory."""
    import torch

    from tests.benchmarks import bench_snapshot

    if full:
        return bench_snapshot.measure(quick=False)
    torch.set_num_threads(1)
    outcome = Outcome(name="snapshot")
    bench_snapshot.one(outcome, replace(bench_snapshot.SIZES[1], rounds=8), 1)
    return outcome


def checkpoint(full: bool, _: Path) -> Outcome:
    """What a checkpoint holds up."""
    from tests.benchmarks import bench_checkpoint

    return bench_checkpoint.measure(quick=not full)


def recovery(full: bool, _: Path) -> Outcome:
    """From a SIGKILL to the next step."""
    from tests.benchmarks import bench_recovery

    if full:
        return bench_recovery.measure(quick=False)
    return bench_recovery.raced(most=3, least=2, budget_s=110.0, without_cold=True)


def serving(full: bool, _: Path) -> Outcome:
    """Answers a second, and how long one takes."""
    from tests.benchmarks import bench_gateway as gateway

    if full:
        outcome = gateway.measure(quick=False)
    else:
        hosts = {name: gateway.FAST.hosts[name] for name in (gateway.BARE, gateway.OURS)}
        hosts |= {name: gateway.OTHERS.hosts[name] for name in (gateway.SINGLE, gateway.PLAIN, gateway.LITSERVE)}
        outcome = gateway.raced([gateway.Field(hosts=hosts, rounds={1: 5, 64: 5}, budget_s=110.0)])
    return outcome


def incident_simulated(full: bool, folder: Path) -> Outcome:
    """Recorded incidents and healthy days in simulated time."""
    from tests.benchmarks.race_sheets import simulated

    return simulated(full=full, folder=folder)


def incident_wall(full: bool, folder: Path) -> Outcome:
    """The same kind of incident on real processes."""
    from tests.benchmarks.race_sheets import on_the_wall

    return on_the_wall(rounds=3 if full else 1, folder=folder)


_STEP, _STALL, _SNAP = "guarded training step", "stall of a checkpoint", "stall of a snapshot in memory"
_BACK, _RATE, _P50 = "SIGKILL of a worker to the next step", "seconds for one answer, 64 clients", "p50, 1 client"
_STEPS = (
    ("guarded_over_common_loop", "the plain loop"),
    ("guarded_over_unguarded_fused", "the plain loop, fused AdamW too"),
    ("guarded_over_lightning", "Lightning"),
    ("guarded_over_accelerate", "Accelerate"),
)
_STALLS = (
    ("torch_save", "torch.save and fsync"),
    ("dcp_async", "DCP async_save"),
    ("memcpy", "a plain copy of the bytes"),
)
_SERVERS = (
    ("bare", "bare Ray Serve, same ingress"),
    ("lean_bare", "lean bare Ray Serve, same ingress"),
    ("litserve", "LitServe"),
    ("single_process", "FastAPI and pybreaker"),
    ("plain_process", "FastAPI"),
)
LEGS: Mapping[str, Leg] = {
    "incident_simulated": Leg(run=incident_simulated, limit_s=240.0),
    "guard": Leg(
        run=guard,
        limit_s=180.0,
        claims=[
            Claim(ratio=f"{name}_{size}", what=f"{_STEP}, {size}", against=rival, control=f"whole step, {size}")
            for size in ("0.2m", "5m", "30m")
            for name, rival in _STEPS
        ],
    ),
    "snapshot": Leg(
        run=snapshot,
        limit_s=120.0,
        claims=[
            Claim(ratio="stall_over_memcpy_30m_1t", what=f"{_SNAP}, 30m", against="a plain copy of the bytes"),
            Claim(ratio="naive_over_ours_30m_1t", what=f"{_SNAP}, 30m", against="cpu().clone()", upside_down=True),
            Claim(ratio="torch_save_over_ours_30m_1t", what=f"{_SNAP}, 30m", against="torch.save", upside_down=True),
        ],
    ),
    "checkpoint": Leg(
        run=checkpoint,
        limit_s=180.0,
        claims=[
            *(
                Claim(ratio=f"stall_over_{name}_1_threads", what=_STALL, against=rival, control="stall, 353 MB, 1")
                for name, rival in _STALLS
            ),
            Claim(
                ratio="sharded_stall_over_memcpy_2_ranks",
                what=f"{_STALL}, 2 ranks",
                against="a plain copy",
                control="stall, sharded",
            ),
            Claim(
                ratio="step_while_writing_over_quiet_1_threads",
                what="a step while it is written",
                against="quiet",
                control="one step, 1",
            ),
        ],
    ),
    "serving": Leg(
        run=serving,
        limit_s=480.0,
        claims=[
            *(
                Claim(ratio=f"throughput_{name}_over_nets", what=_RATE, against=rival, control="throughput at 64")
                for name, rival in (*_SERVERS[:2], ("default", "bare Ray Serve, defaults"), *_SERVERS[2:])
            ),
            *(
                Claim(ratio=f"p50_nets_over_{name}", what=_P50, against=rival, control="p50 at 1")
                for name, rival in _SERVERS
            ),
        ],
    ),
    "recovery": Leg(
        run=recovery,
        limit_s=1200.0,
        claims=[
            Claim(ratio="failsoft_over_ray_default", what=_BACK, against="bare Ray Train"),
            Claim(ratio="failsoft_over_torchrun", what=_BACK, against="torchrun"),
            Claim(ratio="no_spares_over_ray_default", what=f"{_BACK}, no spares", against="bare Ray Train"),
            Claim(ratio="no_spares_over_torchrun", what=f"{_BACK}, no spares", against="torchrun"),
        ],
    ),
    "incident_wall": Leg(run=incident_wall, limit_s=480.0),
}
"""In the order in which they are run: those that start no cluster first."""


def main() -> None:
    """Run one leg and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("leg", choices=list(LEGS))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    before = getloadavg()[0]
    with led():  # told to end, it ends its hosts and removes their folders
        outcome = LEGS[given.leg].run(given.full, given.out)
        outcome.name = given.leg
        outcome.notes.append(
            f"load {before:.1f} when it began, {getloadavg()[0]:.1f} when it ended, {cpu_count()} cores"
        )
        outcome.write(given.out)


if __name__ == "__main__":
    main()
