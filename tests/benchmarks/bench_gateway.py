"""What the nets cost and what they save: failsoft, bare Ray Serve and FastAPI with a breaker under the same load.

The same small model on this machine, one replica each, asked by 1, 16 and 64 clients in a closed loop. Ray reads the
flags of its ingress once, so every contender is a cluster of its own; they stand one after another, in a new order each
round, and a ratio is of two that stood in the same round. The client is a process of its own that writes prepared bytes
(``load_client.py``); it shares the cores with what it measures, as the other contenders' clients do.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.ingress import Ingress
from tests.benchmarks.gateway_contenders import Level, Standing, releases, standing
from tests.benchmarks.gateway_single import HAS_PYBREAKER
from tests.benchmarks.measuring import CONTROL, Ratio, Timings, quartiles, rounds
from tests.benchmarks.outcome import Outcome, Row

DEFAULT, BARE = "bare Ray Serve, defaults", "bare Ray Serve, fast ingress"
OURS, DEGRADED = "failsoft, fast ingress", "failsoft degraded, fast ingress"
SAFE, SAFE_DEGRADED = "failsoft, safe ingress", "failsoft degraded, safe ingress"
SINGLE = f"FastAPI + {'pybreaker' if HAS_PYBREAKER else 'a counting breaker'}, one process"
AGAIN = OURS + CONTROL
LEVELS = (1, 16, 64)
ROUNDS, LEAST_ROUNDS, SECONDS = 4, 2, 2.0
BUDGET_S = 540.0
"""No further round is begun that would not end by then."""
Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A ratio of two contenders at a number of clients."""

    over: str
    under: str
    clients: int
    of_latency: bool
    """Of p50; otherwise of the seconds for each request, which is the throughput upside down."""


CLAIMS = {
    "p50_nets_over_bare": Claim(over=OURS, under=BARE, clients=1, of_latency=True),
    "p50_nets_over_bare_16": Claim(over=OURS, under=BARE, clients=16, of_latency=True),
    "throughput_bare_over_nets": Claim(over=OURS, under=BARE, clients=64, of_latency=False),
    "throughput_default_over_nets": Claim(over=OURS, under=DEFAULT, clients=64, of_latency=False),
    "throughput_bare_over_degraded": Claim(over=DEGRADED, under=BARE, clients=64, of_latency=False),
    "safe_p50_nets_over_default": Claim(over=SAFE, under=DEFAULT, clients=1, of_latency=True),
    "safe_throughput_default_over_nets": Claim(over=SAFE, under=DEFAULT, clients=64, of_latency=False),
    "throughput_single_process_over_nets": Claim(over=OURS, under=SINGLE, clients=64, of_latency=False),
}
"""Throughputs of A over B are the seconds of B over those of A."""


@dataclass(kw_only=True)
class Board:
    """What each contender's clients saw, round by round."""

    levels: dict[Key, list[Level]] = field(default_factory=dict)

    def add(self, name: str, clients: int, level: Level) -> None:
        """One more round."""
        self.levels.setdefault((name, clients), []).append(level)

    def ratio(self, claim: Claim) -> Ratio | None:
        """Round by round; None when one of both did not stand."""
        over, under = (self.levels.get((name, claim.clients), []) for name in (claim.over, claim.under))
        if not (over and under):
            return None
        return _timings(claim.over, over, claim.under, under, of_latency=claim.of_latency)

    def control(self, clients: int) -> Ratio | None:
        """Ours against itself."""
        return self.ratio(Claim(over=AGAIN, under=OURS, clients=clients, of_latency=False))


def _timings(over: str, a: list[Level], under: str, b: list[Level], *, of_latency: bool) -> Ratio:
    seconds = {
        name: [level.p50_s if of_latency else level.each_s for level in levels]
        for name, levels in ((over, a), (under, b))
    }
    return Timings(seconds=seconds).ratio(over, under)


def measure(*, quick: bool) -> Outcome:
    """All contenders; quick: one round of two."""
    seed = random.SystemRandom().randrange(2**31)
    outcome, board = Outcome(name="gateway"), Board()
    with releases() as published:
        for number in rounds(1 if quick else ROUNDS, least=LEAST_ROUNDS, budget_s=BUDGET_S):
            contenders = [_bare_fast, _ours_fast] if quick else _CONTENDERS
            for contender in random.Random(f"{seed}-{number}").sample(contenders, len(contenders)):
                contender(board, published)
    _report(outcome, board)
    outcome.notes += [
        f"seed {seed}; {len(board.levels[OURS, 1])} rounds; profile drill, one gateway, one model replica"
    ]
    if not HAS_PYBREAKER:
        outcome.notes.append("pybreaker is not installed: a breaker that only counts stands in, which is not the same")
    return outcome


def _report(outcome: Outcome, board: Board) -> None:
    for (name, clients), levels in sorted(board.levels.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        outcome.rows.append(_row(name, clients, levels))
    ratios = {name: board.ratio(claim) for name, claim in CLAIMS.items()}
    outcome.ratios |= {name: found for name, found in ratios.items() if found is not None}
    controls = {f"throughput at {clients}": board.control(clients) for clients in LEVELS}
    outcome.controls |= {part: found for part, found in controls.items() if found is not None}


def _load(board: Board, name: str, contender: Standing, *, sources: set[str]) -> None:
    for clients in LEVELS:
        level = contender.load(clients, seconds=SECONDS)
        assert set(level.statuses) == {"200"}, f"{name} at {clients} clients: {dict(level.statuses)}"
        assert set(level.sources) <= sources, f"{name} at {clients} clients: {dict(level.sources)}"
        board.add(name, clients, level)


def _bare(board: Board, published: Path, name: str, ingress: Ingress) -> None:
    with standing("bare", ingress, published) as contender:
        _load(board, name, contender, sources={"-"})


def _bare_default(board: Board, published: Path) -> None:
    _bare(board, published, DEFAULT, Ingress.SAFE)


def _bare_fast(board: Board, published: Path) -> None:
    _bare(board, published, BARE, Ingress.FAST)


_ANYBODY = {"primary", "gbdt", "rules"}


def _ours(board: Board, published: Path, names: tuple[str, ...], degraded: str, ingress: Ingress) -> None:
    with standing("ours", ingress, published) as contender:
        for name in names:
            _load(board, name, contender, sources=_ANYBODY)
        with contender.operator() as operator:
            operator.degrade(for_s=None, why="a benchmark")
        _load(board, degraded, contender, sources={"gbdt", "rules"})


def _ours_fast(board: Board, published: Path) -> None:
    _ours(board, published, (OURS, AGAIN), DEGRADED, Ingress.FAST)


def _ours_safe(board: Board, published: Path) -> None:
    _ours(board, published, (SAFE,), SAFE_DEGRADED, Ingress.SAFE)


def _single(board: Board, published: Path) -> None:
    with standing("single", Ingress.SAFE, published) as contender:
        _load(board, SINGLE, contender, sources={"-"})


_CONTENDERS = [_bare_default, _bare_fast, _ours_fast, _ours_safe, _single]


def _row(name: str, clients: int, levels: list[Level]) -> Row:
    low, high = quartiles([level.p50_s for level in levels])
    rps = statistics.median(1 / level.each_s for level in levels)
    p99_ms = 1000 * statistics.median(level.p99_s for level in levels)
    by_model = sum(level.sources.get("primary", 0) for level in levels)
    answers = sum(sum(level.sources.values()) for level in levels)
    note = f"p50; p99 {p99_ms:.1f} ms; {rps:.0f} requests/s"
    note += f"; {by_model / answers:.1%} by the model" if by_model else ""
    return Row(
        part=f"{clients} clients" if clients > 1 else "1 client",
        contender=name,
        median_s=statistics.median(level.p50_s for level in levels),
        low_s=low,
        high_s=high,
        note=note,
    )
