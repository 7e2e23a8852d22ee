"""A waiver lets one gate fail, with a reason that stays in the report; it never hides that it failed."""

from __future__ import annotations

from datetime import date

import pytest

from failsoft.errors import ConfigError
from failsoft.release.report import GateReport, GateResult
from failsoft.release.waivers import NEVER_WAIVED, Waiver, idle, waive

TODAY = date(2026, 3, 1)
REASON = "asked for by the search team"


def result(name: str, *, passed: bool = False) -> GateResult:
    return GateResult(name=name, passed=passed, value=1.0, limit=0.5, why="too large")


def test_a_waived_gate_still_says_that_it_failed_and_why_it_may() -> None:
    (found,) = waive([result("size")], [Waiver(gate="size", reason=REASON)], today=TODAY)
    assert (found.passed, found.acceptable, found.waived) == (False, True, REASON)
    report = GateReport(release="r", results=(found,))
    assert report.passed
    assert [waived.name for waived in report.waived] == ["size"]
    assert "by a waiver" in report.in_words()
    assert GateReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(("until", "acceptable"), [(None, True), (date(2026, 3, 1), True), (date(2026, 2, 28), False)])
def test_a_waiver_holds_through_its_last_day_and_not_longer(until: date | None, acceptable: bool) -> None:
    waiver = Waiver(gate="size", reason=REASON, until=until)
    (found,) = waive([result("size")], [waiver], today=TODAY)
    assert found.acceptable is acceptable
    assert bool(idle([result("size")], [waiver], today=TODAY)) is not acceptable


@pytest.mark.parametrize("name", NEVER_WAIVED)
def test_what_makes_a_release_unservable_is_never_waived(name: str) -> None:
    with pytest.raises(ConfigError, match="can't be waived"):
        Waiver(gate=name, reason=REASON)
    for pattern in (f"{name[:3]}*", f"*{name[-4:]}"):
        with pytest.raises(ConfigError, match="can't be waived"):
            Waiver(gate=pattern, reason=REASON)


@pytest.mark.parametrize("gate", ["[!lfrg]*", "?overage*", "*", "* *", "f*", "*s"])
def test_no_pattern_waives_whatever_may_come(gate: str) -> None:
    with pytest.raises(ConfigError, match=r"stands for anything|any release|can't be waived"):
        Waiver(gate=gate, reason="we are in a hurry today")


def test_waivers_without_use_are_named() -> None:
    results = [result("size", passed=True), result("weak answers")]
    waivers = [Waiver(gate="sise", reason=REASON), Waiver(gate="size", reason=REASON)]
    mistyped, needless = idle(results, waivers, today=TODAY)
    assert "names no gate" in mistyped
    assert "needed no more" in needless


def test_other_gates_are_not_waived_with_it() -> None:
    results = waive([result("size"), result("weak answers")], [Waiver(gate="size", reason=REASON)], today=TODAY)
    assert not GateReport(release="r", results=results).passed


def test_a_waiver_of_the_command_line_needs_a_reason_too() -> None:
    assert Waiver.parse(f"quantization KL: slot in int8 = {REASON}").gate == "quantization KL: slot in int8"
    for given in ("size", "size=", "size=ok"):
        with pytest.raises(ConfigError):
            Waiver.parse(given)
