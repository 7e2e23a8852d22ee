"""What three viewers of the console cost a gateway of its throughput, by the CPU time of its process.

The gateway is the real one in a process of its own (``console_host.py``). Twice: at rest, where turns of a quarter of a
minute hold all that the feed does now and then, by number of viewers, which gives the sum of what it does; and under
requests that come at one rate all the time, in many short turns with viewers and without, in a new order each round,
where the arrival of the viewers is counted, too. See :mod:`tests.benchmarks.viewer_cost`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from failsoft.ingress import LOOPBACK
from tests.benchmarks.gateway_contenders import environment
from tests.benchmarks.measuring import CONTROL, Timings
from tests.benchmarks.outcome import Outcome, Sheet
from tests.benchmarks.steady_client import Steady
from tests.benchmarks.viewer_cost import MANY, VIEWERS, Extra, Sum
from tests.conftest import ROOT

RATE_HZ = 200.0
LIMIT = 0.01
"""Of the throughput."""
NONE, LOOKED_AT = "nobody looks", f"{VIEWERS} viewers"
AT_REST = {NONE: 0, NONE + CONTROL: 0, LOOKED_AT: VIEWERS, f"{MANY} viewers": MANY}
UNDER_LOAD = {NONE: 0, NONE + CONTROL: 0, LOOKED_AT: VIEWERS}
_BY_PROCESS = 2
"""Of a process's clock of CPU time in the kernel's numbering: by the scheduler, to the nanosecond."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A gateway that stands."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """CPU time of its process up to now, threads that have ended included."""
        return time.clock_gettime((~self.pid << 3) | _BY_PROCESS)


@dataclass(kw_only=True)
class Turns:
    """What was spent, by kind of turn and in the order of the rounds."""

    cores: dict[str, list[float]] = field(default_factory=dict)
    """CPU seconds a second."""
    request_s: dict[str, list[float]] = field(default_factory=dict)
    """CPU seconds for an answered request, where there were any."""

    def note(self, kind: str, *, spent_s: float, passed_s: float, answered: int) -> None:
        """A turn."""
        self.cores.setdefault(kind, []).append(spent_s / passed_s)
        if answered:
            self.request_s.setdefault(kind, []).append(spent_s / answered)

    def taken(self, kind: str = LOOKED_AT) -> Extra:
        """What that kind spent beside turns of the same rounds in which nobody looked."""
        return Extra.of(self.cores[kind], self.cores[NONE])


def measure(*, quick: bool) -> Outcome:
    """Ratios are with viewers over without: 1 is best."""
    outcome = Outcome(name="console", processes=2)
    with _host() as host:
        rest = _at_rest(host, rounds=1 if quick else 4, seconds=2.0 if quick else 15.0)
        load = _under_load(host, rounds=2 if quick else 18, seconds=1.0 if quick else 5.0)
    outcome.add("CPU of the gateway for a second at rest", Timings(seconds=rest.cores))
    outcome.add(f"CPU of the gateway for a request, at {RATE_HZ:.0f} a second", Timings(seconds=load.request_s))
    outcome.ratios["request_cpu_with_viewers_over_without"] = Timings(seconds=load.request_s).ratio(LOOKED_AT, NONE)
    outcome.ratios["throughput_without_viewers_over_with"] = load.taken().of_throughput()
    _tell(outcome, rest, load)
    return outcome


def _tell(outcome: Outcome, rest: Turns, load: Turns) -> None:
    parts = Sum.of({count: rest.cores[kind] for kind, count in AT_REST.items() if not kind.endswith(CONTROL)})
    under, chance = load.taken(), load.taken(NONE + CONTROL)
    is_below = parts.cores(VIEWERS) < LIMIT
    rows: list[tuple[str, ...]] = [
        (
            "at rest, the sum of its parts",
            parts.in_words(VIEWERS),
            f"{'below' if is_below else 'not below'} {LIMIT:.0%}",
        ),
        ("at rest, measured", rest.taken().in_words(), rest.taken().verdict(LIMIT)),
        ("under load, with their arrival", under.in_words(), under.verdict(LIMIT)),
        ("nobody against nobody, under load", chance.in_words(), "by chance"),
    ]
    outcome.sheets.append(Sheet(title=f"{VIEWERS} viewers", columns=("when", "they take", "verdict"), rows=rows))
    outcome.notes.append(
        f"what {VIEWERS} viewers take of a core they take of a gateway's throughput, since it answers on one loop; "
        f"goal: below {LIMIT:.0%}; {len(load.cores[NONE])} rounds at {RATE_HZ:.0f} requests a second"
    )


def _at_rest(host: Host, *, rounds: int, seconds: float) -> Turns:
    return _turns(AT_REST, rounds, lambda kind, found: _rest(host, seconds, kind, found))


def _rest(host: Host, seconds: float, kind: str, found: Turns) -> None:
    with watched(host, AT_REST[kind]):
        before_s, began_s = host.cpu_s(), time.perf_counter()
        time.sleep(seconds)
        found.note(kind, spent_s=host.cpu_s() - before_s, passed_s=time.perf_counter() - began_s, answered=0)


def _under_load(host: Host, *, rounds: int, seconds: float) -> Turns:
    client = Steady(RATE_HZ)
    with client.asking(LOOPBACK, host.port):
        time.sleep(min(2.0, seconds))  # connections, and what a gateway does at its first requests
        found = _turns(UNDER_LOAD, rounds, lambda kind, turns: _loaded(host, client, (kind, seconds), turns))
    assert client.by_the_model > 0.99 * client.answered, "not the model answered"
    assert client.skipped < 0.01 * client.answered, "it can't keep up: the rate is no rate"
    return found


def _loaded(host: Host, client: Steady, turn: tuple[str, float], found: Turns) -> None:
    kind, seconds = turn
    before_s, answered, began_s = host.cpu_s(), client.answered, time.perf_counter()
    with watched(host, UNDER_LOAD[kind]):
        time.sleep(max(0.0, began_s + seconds - time.perf_counter()))
    passed_s = time.perf_counter() - began_s
    found.note(kind, spent_s=host.cpu_s() - before_s, passed_s=passed_s, answered=client.answered - answered)


def _turns(kinds: dict[str, int], rounds: int, turn: Callable[[str, Turns], None]) -> Turns:
    order, found = random.Random(7), Turns()
    for _ in range(rounds):
        for kind in order.sample(list(kinds), len(kinds)):
            turn(kind, found)
    return found


@contextmanager
def watched(host: Host, viewers: int) -> Iterator[None]:
    """That many streams are open and read; each has said something before the block begins."""
    with ExitStack() as open_streams:
        for _ in range(viewers):
            open_streams.enter_context(_viewer(host))
        yield


@contextmanager
def _viewer(host: Host) -> Iterator[None]:
    connection = http.client.HTTPConnection(LOOPBACK, host.port, timeout=30.0)
    connection.request("GET", "/v1/console/live")
    stream = connection.getresponse()
    assert stream.readline().startswith(b"data: ")
    over = threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed under this reader's hands
            while not over.is_set() and stream.readline():
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join(5.0)
        connection.close()


@contextmanager
def _host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="fsc-", dir="/tmp") as root:
        command = [sys.executable, "-m", "tests.benchmarks.console_host", root]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Host(port=json.loads(process.stdout.readline())["port"], pid=process.pid)
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(60.0)
