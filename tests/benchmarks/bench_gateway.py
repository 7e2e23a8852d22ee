"""What the nets cost and what they save: failsoft, bare Ray Serve and FastAPI with a breaker under the same load.

The same small model on this machine, one replica each, asked by 1, 16 and 64 clients in a closed loop. Ray reads the
flags of its ingress once, so every contender is a cluster of its own. Those that are held against each other stand at
the same time and are asked in turns, in a new order each round: a machine that slows down for a minute slows all of
them. The client is a process of its own that writes prepared bytes (``load_client.py``); it shares the cores with what
it measures, as the other contenders' clients do.

Bare Ray Serve is there twice: as its documentation writes a model, with ``def``, for which Serve takes a thread at each
call; and *lean*, with ``async def``, which is as quick as one can write it, and deaf while it computes.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.ingress import Ingress
from tests.benchmarks.gateway_contenders import Level, Standing, releases, standing
from tests.benchmarks.measuring import CONTROL, Ratio, Timings, quartiles, rounds
from tests.benchmarks.outcome import Outcome, Row

DEFAULT, BARE, LEAN = "bare Ray Serve, defaults", "bare Ray Serve, fast ingress", "lean bare Ray Serve, fast ingress"
OURS, DEGRADED = "failsoft, fast ingress", "failsoft degraded, fast ingress"
SAFE, SINGLE = "failsoft, safe ingress", "FastAPI + pybreaker, one process"
PLAIN = "FastAPI, one process"
LITSERVE = "LitServe"
AGAIN = OURS + CONTROL
LEVELS = (1, 16, 64)
SECONDS, WARM_S = 1.2, 0.3
_FROM_MODEL, _FROM_FALLBACK, _UNSAID = {"primary", "gbdt", "rules"}, {"gbdt", "rules"}, {"-"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """Contenders that stand at the same time."""

    hosts: Mapping[str, tuple[str, Ingress]]
    """For each contender its kind (see ``gateway_host.py``) and its ingress."""
    rounds: Mapping[int, int]
    """Turns of each at so many clients."""
    budget_s: float
    """No further turns are begun at a level that would not end by its part of this; at least two are taken."""


FAST = Field(
    hosts={
        BARE: ("bare", Ingress.FAST),
        LEAN: ("lean", Ingress.FAST),
        OURS: ("ours", Ingress.FAST),
        DEGRADED: ("ours", Ingress.FAST),
    },
    rounds={1: 12, 16: 4, 64: 6},
    budget_s=330.0,
)
OTHERS = Field(
    hosts={
        DEFAULT: ("bare", Ingress.SAFE),
        SAFE: ("ours", Ingress.SAFE),
        OURS: ("ours", Ingress.FAST),
        SINGLE: ("single", Ingress.SAFE),
        PLAIN: ("plain", Ingress.SAFE),
        LITSERVE: ("litserve", Ingress.SAFE),
    },
    rounds={1: 4, 64: 4},
    budget_s=130.0,
)
GLANCE = Field(
    hosts={BARE: ("bare", Ingress.FAST), OURS: ("ours", Ingress.FAST)}, rounds=dict.fromkeys(LEVELS, 1), budget_s=60.0
)


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
    "p50_nets_over_lean_bare": Claim(over=OURS, under=LEAN, clients=1, of_latency=True),
    "p50_nets_over_bare_16": Claim(over=OURS, under=BARE, clients=16, of_latency=True),
    "throughput_bare_over_nets": Claim(over=OURS, under=BARE, clients=64, of_latency=False),
    "throughput_lean_bare_over_nets": Claim(over=OURS, under=LEAN, clients=64, of_latency=False),
    "throughput_bare_over_degraded": Claim(over=DEGRADED, under=BARE, clients=64, of_latency=False),
    "throughput_lean_bare_over_degraded": Claim(over=DEGRADED, under=LEAN, clients=64, of_latency=False),
    "throughput_default_over_nets": Claim(over=OURS, under=DEFAULT, clients=64, of_latency=False),
    "safe_p50_nets_over_default": Claim(over=SAFE, under=DEFAULT, clients=1, of_latency=True),
    "safe_throughput_default_over_nets": Claim(over=SAFE, under=DEFAULT, clients=64, of_latency=False),
    "p50_nets_over_default": Claim(over=OURS, under=DEFAULT, clients=1, of_latency=True),
    "throughput_single_process_over_nets": Claim(over=OURS, under=SINGLE, clients=64, of_latency=False),
    "p50_nets_over_single_process": Claim(over=OURS, under=SINGLE, clients=1, of_latency=True),
    "throughput_plain_process_over_nets": Claim(over=OURS, under=PLAIN, clients=64, of_latency=False),
    "p50_nets_over_plain_process": Claim(over=OURS, under=PLAIN, clients=1, of_latency=True),
    "throughput_litserve_over_nets": Claim(over=OURS, under=LITSERVE, clients=64, of_latency=False),
    "p50_nets_over_litserve": Claim(over=OURS, under=LITSERVE, clients=1, of_latency=True),
}
"""Throughputs of A over B are the seconds of B over those of A. Both of a claim stood in the same field."""


@dataclass(kw_only=True)
class Board:
    """What the clients of each contender of one field saw, turn by turn."""

    levels: dict[tuple[str, int], list[Level]] = field(default_factory=dict)

    def add(self, name: str, clients: int, level: Level) -> None:
        """One more turn."""
        self.levels.setdefault((name, clients), []).append(level)

    def ratio(self, claim: Claim) -> Ratio | None:
        """Round by round; None when one of both did not stand."""
        over, under = (self.levels.get((name, claim.clients), []) for name in (claim.over, claim.under))
        if not (over and under):
            return None
        return _timings(claim.over, over, claim.under, under, of_latency=claim.of_latency)

    def controls(self) -> dict[str, Ratio]:
        """Ours against itself."""
        made: dict[str, Ratio] = {}
        for what, of_latency in (("p50", True), ("throughput", False)):
            for clients in LEVELS:
                found = self.ratio(Claim(over=AGAIN, under=OURS, clients=clients, of_latency=of_latency))
                made |= {} if found is None else {f"{what} at {clients}": found}
        return made


def _timings(over: str, a: list[Level], under: str, b: list[Level], *, of_latency: bool) -> Ratio:
    seconds = {
        name: [level.p50_s if of_latency else level.each_s for level in levels]
        for name, levels in ((over, a), (under, b))
    }
    return Timings(seconds=seconds).ratio(over, under)


def measure(*, quick: bool) -> Outcome:
    """All contenders, in two fields; quick: one turn each of ours and of bare Serve."""
    return raced([GLANCE] if quick else [FAST, OTHERS])


def raced(fields: Sequence[Field]) -> Outcome:
    """Each field by itself, one after the other; a ratio comes from the first field in which both stood."""
    seed = random.SystemRandom().randrange(2**31)
    outcome, order = Outcome(name="gateway"), random.Random(seed)
    with releases() as published:
        boards = [_played(each, published, order) for each in fields]
    for board in boards:
        told = {(row.part, row.contender) for row in outcome.rows}
        for (name, clients), levels in sorted(board.levels.items(), key=lambda entry: (entry[0][1], entry[0][0])):
            row = _row(name, clients, levels)
            outcome.rows += [row] if (row.part, row.contender) not in told else []
        ratios = {name: board.ratio(claim) for name, claim in CLAIMS.items() if name not in outcome.ratios}
        outcome.ratios |= {name: found for name, found in ratios.items() if found is not None}
        outcome.controls |= board.controls() if board is boards[0] else {}
    turns = ", ".join(f"{len(boards[0].levels[OURS, clients])} at {clients}" for clients in fields[0].rounds)
    outcome.notes += [f"seed {seed}; turns of each: {turns}; profile drill, one gateway, one model replica"]
    return outcome


def _played(contenders: Field, published: Path, order: random.Random) -> Board:
    board = Board()
    with _standing(contenders, published) as here:
        names = [*here, AGAIN]
        for clients, most in contenders.rounds.items():
            share_s = contenders.budget_s * most / sum(contenders.rounds.values())
            for _ in rounds(most, least=min(2, most), budget_s=share_s):
                for name in order.sample(names, len(names)):
                    board.add(name, clients, _load(here[name.removesuffix(CONTROL)], name, clients))
    return board


@contextmanager
def _standing(contenders: Field, published: Path) -> Iterator[dict[str, Standing]]:
    with ExitStack() as stack:
        here: dict[str, Standing] = {}
        for name, (kind, ingress) in contenders.hosts.items():
            here[name] = stack.enter_context(standing(kind, ingress, published))
        if DEGRADED in here:
            with here[DEGRADED].operator() as operator:
                operator.degrade(for_s=None, why="a benchmark")
        yield here


def _load(contender: Standing, name: str, clients: int) -> Level:
    ours = _FROM_FALLBACK if name == DEGRADED else _FROM_MODEL
    level = contender.load(clients, seconds=SECONDS, warm_s=WARM_S)
    assert set(level.statuses) == {"200"}, f"{name} at {clients} clients: {dict(level.statuses)}"
    expected = ours if name.startswith("failsoft") else _UNSAID
    assert set(level.sources) <= expected, f"{name} at {clients} clients: {dict(level.sources)}"
    return level


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
