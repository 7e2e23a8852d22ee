"""A release of 256 MB comes and goes beside live traffic: what loading costs callers, and how soon it is gone."""

from __future__ import annotations

import math
import random
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from failsoft.demo.answers import Seen, percentile
from failsoft.demo.report import Table
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.ingress import LOOPBACK, Ingress
from failsoft.remote import GatewayClient
from tests.benchmarks.gateway_contenders import Standing, environment, releases, standing
from tests.conftest import ROOT
from tests.drills.way_back import TWO_GATEWAYS, Recorded, arrived_s, plan_events, timeline, until, write_page

pytestmark = pytest.mark.drill
RATE_HZ, OLD, NEW = 200.0, "tiny", "second"
PADDING_MB = 256
ROUNDS, ROLLBACKS = 12, 5
POLL_S = 0.1
"""How often it is asked whether the release is there, and in a quiet span the same: asking takes gateways some time."""
SLOWER = 1.25
"""The middle answer beside a load takes at most so many times as long, beyond what quiet spans differ by themselves."""
LONG_SHADOW = "[drill]\nmirror_share = 0.01\n[drill.shadow]\nmin_time_s = 60.0\n"
SHORT = "[drill]\nmax_gap_s = 1.0\n" + "".join(
    f"[drill.{stage}]\nmin_time_s = 1.0\n" for stage in ("shadow", "canary", "ramp_20", "ramp_50")
)


@pytest.fixture
def app() -> Iterator[Standing]:
    with releases() as published, standing("incident", Ingress.FAST, published, **TWO_GATEWAYS) as running:
        source = running.home.root / "releases" / OLD

        def fill(folder: Path) -> None:
            """The same model, and as many more bytes to read and to verify as a model of some size has."""
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("manifest.json"), dirs_exist_ok=True)
            with (folder / "padding.bin").open("wb") as padding:
                for _ in range(PADDING_MB):
                    padding.write(secrets.token_bytes(1_000_000))

        running.home.releases(SystemClock()).publish(NEW, fill, meta={"previous": OLD})
        yield running


def stages_are(app: Standing, text: str) -> None:
    """Other stages from now on; the running controller takes them."""

    def taken() -> int:
        return [event.kind for event in read_ledger(app.home.ledger).events].count("stages_changed")

    before = taken()
    (app.home.root / "stages.toml").write_text(text, "utf-8")
    until(lambda: taken() > before, within_s=20.0, what="other stages")


def command(app: Standing, *words: str) -> str:
    """Run a command of failsoft as an operator does."""
    line = [str(Path(sys.executable).with_name("failsoft")), "release", *words]
    line += ["--url", f"http://{LOOPBACK}:{app.port}", "--home", str(app.home.root)]
    done = subprocess.run(line, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def holds(shown: dict[str, Any]) -> bool:
    """Whether a model has the new release, loaded as often as the plan says."""
    wanted = shown["plan"]["load_generation"][shown["plan"]["subject"]]
    return any((held["release"], held["load_generation"]) == (NEW, wanted) for held in shown["models"].values())


@dataclass(frozen=True, kw_only=True)
class Window:
    """A span of the client's time."""

    kind: str
    round: int
    begin_s: float
    end_s: float

    def latencies_ms(self, seen: Sequence[Seen]) -> list[float]:
        """Of the requests sent in it."""
        return [one.latency_ms for one in seen if self.begin_s <= one.sent_s < self.end_s]


def watch(client: GatewayClient, over: Callable[[dict[str, Any]], bool], *, within_s: float) -> None:
    """Ask how the rollout stands, over and over: the same work in every kind of span."""
    began_s = time.monotonic()
    while not over(client.rollout()):
        assert time.monotonic() - began_s < within_s, f"the release did not come within {within_s:g} s"
        time.sleep(POLL_S)


def passed(at_s: float, _shown: dict[str, Any]) -> bool:
    """Whether it is later, whatever is shown."""
    return time.monotonic() > at_s


def load_again_and_again(client: GatewayClient) -> list[Window]:
    """Two quiet spans and one of loading in each round, as long as each other, in a new order each time."""
    order, windows, lasts_s = random.Random(7), list[Window](), 1.0
    for number in range(ROUNDS):
        for kind in order.sample(["quiet", "quiet (again)", "loading"], 3):
            begin_s = time.monotonic()
            if kind == "loading":
                client.propose(NEW, again=True)
                watch(client, holds, within_s=60.0)
                lasts_s = time.monotonic() - begin_s
            else:
                watch(client, partial(passed, begin_s + lasts_s), within_s=60.0)
            windows.append(Window(kind=kind, round=number, begin_s=begin_s, end_s=time.monotonic()))
            if kind == "loading":
                client.steer(NEW, "abort", why="drill", by="drill")
            time.sleep(0.3)
    return windows


def ratios(windows: Sequence[Window], seen: Sequence[Seen], kind: str, share: float) -> list[float]:
    """A percentile of a kind of span over that of the quiet one, round by round."""

    def each(kind: str) -> dict[int, float]:
        spans = {span.round: span.latencies_ms(seen) for span in windows if span.kind == kind}
        return {number: percentile(latencies, share) for number, latencies in spans.items() if latencies}

    over, under = each(kind), each("quiet")
    return [over[number] / under[number] for number in sorted(over.keys() & under.keys())]


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and within what 95 % of the medians of other draws of the same rounds lie (bootstrap)."""
    chance = random.Random(3)
    drawn = sorted(median(chance.choices(values, k=len(values))) for _ in range(1000))
    return median(values), drawn[25], drawn[974]


def slows_down_surely(windows: Sequence[Window], seen: Sequence[Seen]) -> float:
    """So many times as long, at least, the middle answer beside a load takes, beyond what quiet spans differ by."""
    _, surely, _ = middle(ratios(windows, seen, "loading", 0.5))
    _, _, by_chance = middle(ratios(windows, seen, "quiet (again)", 0.5))
    return surely / max(1.0, by_chance)


def cost_rows(windows: Sequence[Window], seen: Sequence[Seen]) -> tuple[tuple[str, ...], ...]:
    """For each kind of span how long answers took, and the ratio to the quiet one, round by round."""
    rows = []
    for kind in ("quiet", "quiet (again)", "loading"):
        pooled = [ms for span in windows if span.kind == kind for ms in span.latencies_ms(seen)]
        lengths = [span.end_s - span.begin_s for span in windows if span.kind == kind]
        over = [middle(ratios(windows, seen, kind, share)) for share in (0.5, 0.99)]
        pooled_ms = [f"{percentile(pooled, share):.1f} ms" for share in (0.5, 0.99)]
        in_words = [f"{value:.2f} ({low:.2f} to {high:.2f})" for value, low, high in over]
        rows.append((kind, f"{median(lengths):.2f} s", f"{len(pooled)}", *pooled_ms, *in_words))
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """How one rollback went, in ms after the change of the plan; by one machine's clocks."""

    order_ms: float
    """From the order until it was confirmed."""
    last_sent_ms: float
    """When the last request was sent that a gateway still answered under the plan before."""
    last_answer_ms: float
    """When the last of those answers came."""

    def row(self) -> tuple[str, ...]:
        """For people."""
        return tuple(f"{ms:.0f} ms" for ms in (self.order_ms, self.last_sent_ms, self.last_answer_ms))


def roll_back(app: Standing, traffic: Recorded, order: Callable[[], object]) -> Rollback:
    """Give the new release up while it serves."""
    wall_ahead_s, epoch = time.time() - time.monotonic(), plan_events(app.home)[-1].data["epoch"]
    began_s = time.monotonic()
    order()
    took_s = time.monotonic() - began_s
    time.sleep(1.0)  # the last answers under the plan before
    (move,) = [event for event in plan_events(app.home) if event.data["epoch"] == epoch + 1]
    assert "rolled back by" in move.why
    changed_s = move.at_s - wall_ahead_s
    old = [
        one for one in traffic.seen if one.sent_s >= changed_s - 1.0 and one.epoch is not None and one.epoch <= epoch
    ]
    last = max(old, key=lambda one: one.sent_s)
    return Rollback(
        order_ms=took_s * 1000,
        last_sent_ms=(last.sent_s - changed_s) * 1000,
        last_answer_ms=(max(map(arrived_s, old)) - changed_s) * 1000,
    )


def to_100_percent(traffic: Recorded) -> None:
    until(lambda: traffic.stage == "serving", within_s=120.0, what="the way to 100 %")
    time.sleep(1.0)


def test_a_release_loads_and_is_rolled_back_beside_live_traffic_and_no_caller_is_lost(
    app: Standing, capsys: pytest.CaptureFixture[str]
) -> None:
    stages_are(app, LONG_SHADOW)
    said: list[str] = []
    with app.operator() as client, Recorded(LOOPBACK, app.port, RATE_HZ) as traffic:
        until(lambda: len(traffic.seen) > 3 * RATE_HZ, within_s=30.0, what="warm traffic")
        windows = load_again_and_again(client)
        columns = ("span", "lasts", "answers", "p50", "p99", "p50 over quiet", "p99 over quiet")
        costs = Table(title="Loading", columns=columns, rows=cost_rows(windows, traffic.seen))
        with capsys.disabled():
            print("", *(" | ".join(row) for row in (columns, *costs.rows)), sep="\n")
        stages_are(app, SHORT)
        began_s = time.time()
        said.append(command(app, "promote", NEW, "--again"))
        to_100_percent(traffic)
        rollbacks = [roll_back(app, traffic, lambda: said.append(command(app, "rollback", "--why", "drill")))]
        for _ in range(ROLLBACKS - 1):
            client.propose(NEW, again=True)
            to_100_percent(traffic)
            rollbacks.append(roll_back(app, traffic, lambda: client.steer(NEW, "abort", why="drill", by="drill")))
    seen = traffic.seen
    moments = ("order confirmed", "last request under the old plan", "last answer")
    ends = Table(title="After the plan changed", columns=moments, rows=tuple(one.row() for one in rollbacks))
    tables = [costs, ends, timeline(app.home, from_s=began_s)]
    lead = (
        f"{RATE_HZ:.0f} requests a second, 2 gateways; {len(seen)} answers, {len(traffic.lost())} lost; {PADDING_MB} MB"
    )
    write_page("promote", seen, [], tables, lead=lead)
    with capsys.disabled():
        print("", lead, *said, *("\n".join(" | ".join(row) for row in one.rows) for one in tables[1:]), sep="\n")
    assert traffic.lost() == []
    assert slows_down_surely(windows, seen) <= SLOWER
    assert median(one.last_sent_ms for one in rollbacks) < 100.0
    assert max(one.last_sent_ms for one in rollbacks) < 500.0
    assert all(math.isfinite(one.last_answer_ms) for one in rollbacks)
