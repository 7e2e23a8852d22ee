"""An incident: a model that answers 40 or 100 % badly, at 50 and 200 requests a second, behind 1 and 3 gateways.

Detection and switching are told apart. Detection is counted in calls, since no window can judge what it has not seen;
switching is the time from the first replica that has left the model to the last answer under the old plan, and to the
sending of the last request that was answered so, which no answer on its way through a busy machine blurs. Every case
is a cluster of its own: an incident before it would have made the rollout careful. A bad answer is wrong, with a
confidence that is given to callers when it comes alone (``incident_app.py``), which is the hard kind.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from failsoft.health.faults import FaultKind
from failsoft.ingress import LOOPBACK, Ingress
from tests.benchmarks.gateway_contenders import Standing, releases, standing
from tests.benchmarks.incident_app import GATEWAYS, share_file
from tests.benchmarks.incident_traffic import Incident, Reply, Steady, judged
from tests.benchmarks.measuring import Ratio
from tests.benchmarks.outcome import Outcome, Row

WARM, AFTER_S, PATIENCE_S = 60, 1.0, 30.0
"""Healthy answers before it; seconds after the last change; how long at most."""
BUDGET_S = 500.0
_NEARLY_NOTHING = 1e-6
STATUS_TRIES = 30


@dataclass(frozen=True, kw_only=True)
class Case:
    """One incident."""

    share: float
    rate_hz: float
    gateways: int
    ingress: Ingress = Ingress.FAST

    @property
    def words(self) -> str:
        """Its name."""
        gateways = "1 gateway" if self.gateways == 1 else f"{self.gateways} gateways"
        return f"{self.share:.0%} bad, {self.rate_hz:.0f}/s, {gateways}, {self.ingress}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of a case."""

    incident: Incident
    lag_ms: float | None
    """The longest that the controller's window was behind a gateway's newest report; None: nobody said."""
    answered_hz: float

    @property
    def took_s(self) -> float:
        """From the first bad answer to the last replica on the fallback."""
        return self.incident.detection_s + self.incident.switch_s


CASES = [
    Case(share=share, rate_hz=rate_hz, gateways=gateways)
    for share in (1.0, 0.4)
    for rate_hz in (50.0, 200.0)
    for gateways in (1, 3)
] + [Case(share=1.0, rate_hz=50.0, gateways=gateways, ingress=Ingress.SAFE) for gateways in (1, 3)]


def measure(*, quick: bool) -> Outcome:
    """All cases once, the first one twice; quick: only that."""
    outcome = Outcome(name="incident")
    again: list[Found] = []
    with releases() as published:
        again.append(one(CASES[0], published))
        found = _in_time(outcome, CASES[:1] if quick else CASES, published)
    for case, seen in found.items():
        outcome.rows += rows(case, seen)
    both = again + list(found.values())
    outcome.controls[f"time to the fallback, {CASES[0].words}"] = _alone(both[0].took_s / both[1].took_s)
    incidents = [seen.incident for seen in both]
    outcome.ratios["worst_switch_over_second"] = _alone(max([_NEARLY_NOTHING, *(one.switch_s for one in incidents)]))
    lags_ms = [seen.lag_ms for seen in both if seen.lag_ms is not None]
    if lags_ms:
        outcome.ratios["worst_lag_over_100_ms"] = _alone(max([_NEARLY_NOTHING, *lags_ms]) / 100.0)
    lost, asked = sum(one.lost for one in incidents), sum(one.asked for one in incidents)
    calls = statistics.median(one.calls for one in incidents)
    outcome.notes.append(f"{lost} of {asked} requests lost; detection in {calls:g} calls in the middle")
    return outcome


def _in_time(outcome: Outcome, cases: list[Case], published: Path) -> dict[Case, Found]:
    """As many as fit; the others are named."""
    found, longest_s, began_s = dict[Case, Found](), 0.0, time.monotonic()
    for case in cases:
        case_s = time.monotonic()
        if case_s + longest_s > began_s + BUDGET_S:
            outcome.notes.append(f"no time was left for: {case.words}")
            continue
        found[case] = one(case, published)
        longest_s = max(longest_s, time.monotonic() - case_s)
    return found


def one(case: Case, published: Path) -> Found:
    """Serve, break, watch."""
    with standing("incident", case.ingress, published, **{GATEWAYS: str(case.gateways)}) as contender:
        sign = contender.home.faults / FaultKind.BROKEN_WEIGHTS
        sign.parent.mkdir(parents=True, exist_ok=True)
        share_file(contender.home.root).write_text(str(case.share), "utf-8")
        with Steady(LOOPBACK, contender.port, case.rate_hz) as traffic:
            _until(lambda: len([reply for reply in traffic.replies if reply.source == "primary"]) >= WARM, "warm")
            broken_s = time.monotonic()
            sign.touch()
            _until(lambda: _over(traffic.replies, broken_s), f"the end of {case.words}")
            took_s = time.monotonic() - broken_s
        incident = judged(traffic.replies, broken_s=broken_s)
        assert incident is not None
        lag_ms = _lag_ms(contender, case.gateways)
        answered = sum(reply.status == 200 for reply in traffic.replies if reply.sent_s >= broken_s)
    return Found(incident=incident, lag_ms=lag_ms, answered_hz=answered / took_s)


def _over(replies: list[Reply], broken_s: float) -> bool:
    """Whether the last answer under the old plan is some time ago."""
    seen = list(replies)
    if judged(seen, broken_s=broken_s) is None:
        return False
    last_old_s = max((reply.done_s for reply in seen if reply.stage == "serving"), default=broken_s)
    return time.monotonic() > last_old_s + AFTER_S


def _lag_ms(contender: Standing, gateways: int) -> float | None:
    """The worst that any gateway has seen."""
    lags: dict[str, float] = {}
    with httpx.Client(base_url=f"http://{LOOPBACK}:{contender.port}", timeout=5.0) as client:
        for _ in range(STATUS_TRIES):
            said = client.get("/v1/status").json()
            worst_ms = (said.get("shared_window_lag") or {}).get("max_ms")
            if worst_ms is not None:
                lags[said["gateway"]] = worst_ms
            if len(lags) == gateways:
                break
    return max(lags.values(), default=None)


def rows(case: Case, found: Found) -> list[Row]:
    """Detection, then switching."""
    incident = found.incident
    lag = "lag unknown" if found.lag_ms is None else f"shared window at most {found.lag_ms:.0f} ms behind"
    note = f"{incident.let_through} bad answers let through, {incident.lost} of {incident.asked} lost; {lag}"
    note += f"; nobody who asked {1000 * incident.late_s:.0f} ms later met the old plan"
    note += f"; {found.answered_hz:.0f} answers/s"
    return [
        _row(case, "detection", incident.detection_s, f"{incident.calls} calls"),
        _row(case, "switching", incident.switch_s, note),
    ]


def _row(case: Case, what: str, seconds: float, note: str) -> Row:
    return Row(part=case.words, contender=what, median_s=seconds, low_s=seconds, high_s=seconds, note=note)


def _alone(value: float) -> Ratio:
    """A number that is no ratio of rounds."""
    return Ratio(value=value, low=value, high=value, by_minimum=value)


def _until(holds: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.02)
