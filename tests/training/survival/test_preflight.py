"""The verdict on a node, and what a preflight asks for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import MAX_EVENT_BYTES
from failsoft.training.survival.preflight import (
    Finding,
    NodeReport,
    Outcome,
    PreflightPolicy,
    carry_out,
    failed,
    no_answer,
    not_here,
    passed,
    summary_of,
)


def report(*findings: Finding, node: str = "a1") -> NodeReport:
    return NodeReport(node=node, host=f"host-{node}", findings=findings)


@pytest.mark.parametrize(
    ("findings", "fit"),
    [
        ((), False),
        ((passed("disk"),), True),
        ((not_here("GPU memory", "no GPU"),), False),
        ((passed("disk"), not_here("GPU memory", "no GPU")), True),
        ((passed("disk"), failed("matmul", "core 3")), False),
        ((passed("disk"), no_answer("node", "no answer in 5 s")), False),
    ],
)
def test_a_node_is_fit_when_something_passed_and_nothing_failed_or_stayed_silent(
    findings: tuple[Finding, ...], *, fit: bool
) -> None:
    assert report(*findings).passed is fit
    assert (report(*findings).why == "") is fit


def test_the_reason_names_each_probe_that_failed() -> None:
    why = report(passed("memory"), failed("matmul", "core 3 is wrong"), no_answer("disk", "no answer in 5 s")).why
    assert why == "matmul: core 3 is wrong; disk: no answer in 5 s"


def test_an_error_of_a_probe_is_its_failure_and_keeps_none_of_the_others_from_looking() -> None:
    clock = ManualClock()

    def breaks() -> Finding:
        clock.sleep_s(2.0)
        raise PermissionError("not yours")

    broken, fine = carry_out({"links": breaks, "disk": lambda: passed("disk")}, clock)
    assert (broken.outcome, broken.why, broken.took_s) == (Outcome.FAILED, "PermissionError: not yours", 2.0)
    assert (fine.outcome, fine.took_s) == (Outcome.PASSED, 0.0)


def test_the_summary_of_a_thousand_nodes_still_fits_into_an_event_and_names_the_bad_ones() -> None:
    good = [report(passed("disk"), not_here("GPU memory", ""), node=f"{n:056x}") for n in range(1000)]
    bad = report(failed("disk", "x" * 5000), node="bad")
    said = summary_of([*good, bad])
    assert len(json.dumps(said)) < MAX_EVENT_BYTES
    assert said["nodes"] == {"bad": {"host": "host-bad", "passed": False, "failed": {"disk": "x" * 300}}}
    assert said["not_here"] == ["GPU memory"]


def test_the_summary_keeps_the_slowest_time_of_each_probe() -> None:
    times = (0.5, 2.0, 1.0)
    said = summary_of([report(replace(passed("disk"), took_s=took_s), node=f"n{took_s}") for took_s in times])
    assert said["slowest_s"] == {"disk": 2.0}


@pytest.mark.parametrize(
    "asked",
    [
        {"answer_s": 0.0},
        {"meeting_s": float("nan")},
        {"matmul_s": 1e9},
        {"min_free_disk_bytes": -1},
        {"checkpoints_that_fit": 0.5},
        {"passes_to_return": 0},
    ],
)
def test_an_impossible_policy_is_refused_by_the_name_of_its_field(asked: dict[str, float]) -> None:
    (name,) = asked
    with pytest.raises(ConfigError, match=name):
        PreflightPolicy(**asked)  # type: ignore[arg-type]  # one field at a time
