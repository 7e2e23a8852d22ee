"""The frame is proven with counted calls; nothing here asserts a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as frame
from tests.benchmarks.measuring import CONTROL, Contender, Timings, each_call_s, interleave, percentile
from tests.benchmarks.outcome import Outcome, in_words


def test_each_contender_is_timed_in_every_round_and_the_control_twice() -> None:
    calls = {"a": 0, "b": 0}

    def count(name: str) -> None:
        calls[name] += 1

    contenders = [Contender(name=name, run=lambda name=name: count(name), calls=2) for name in calls]  # type: ignore[misc]
    timings = interleave(contenders, rounds=5, control="a")
    assert {name: len(seconds) for name, seconds in timings.seconds.items()} == {"a": 5, "b": 5, f"a{CONTROL}": 5}
    assert calls == {"a": 2 * 2 * 6, "b": 2 * 6}


def test_the_order_changes_between_rounds() -> None:
    order: list[str] = []
    contenders = [Contender(name=name, run=lambda name=name: order.append(name)) for name in "abc"]  # type: ignore[misc]
    interleave(contenders, rounds=8, control="a")
    rounds = {tuple(order[start : start + 4]) for start in range(4, len(order), 4)}
    assert len(rounds) > 2


def test_a_ratio_is_taken_round_by_round_so_that_a_machine_that_slows_down_slows_both() -> None:
    timings = Timings(seconds={"a": [2.0, 20.0, 200.0], "b": [1.0, 10.0, 100.0], f"b{CONTROL}": [1.0, 11.0, 90.0]})
    ratio = timings.ratio("a", "b")
    assert (ratio.value, ratio.low, ratio.high, ratio.by_minimum) == (2.0, 2.0, 2.0, 2.0)
    assert timings.control().value == 1.0


def test_single_calls_are_timed_after_a_warm_up() -> None:
    calls: list[int] = []
    assert len(each_call_s(lambda: calls.append(1), 20)) == 20
    assert len(calls) == 22


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 3), (0.99, 4), (1.0, 4)])
def test_a_percentile_is_one_of_the_values(share: float, value: int) -> None:
    assert percentile([4, 1, 3, 2], share) == value


@pytest.mark.parametrize(("seconds", "words"), [(2.0, "2 s"), (0.0031, "3.1 ms"), (4.2e-5, "42 µs"), (9e-8, "90 ns")])
def test_a_time_is_told_in_the_unit_that_suits_it(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_the_file_holds_flat_ratios_their_spread_and_the_environment(tmp_path: Path) -> None:
    outcome = Outcome(name="x")
    timings = interleave([Contender(name="a", run=lambda: None)], rounds=3, control="a")
    outcome.add("nothing", timings)
    outcome.ratios["a_over_a"] = timings.ratio("a", "a")
    body = json.loads(outcome.write(tmp_path / "deep").read_text("utf-8"))
    assert body["ratios"] == {"a_over_a": 1.0}
    assert set(body["spread"]["a_over_a"]) == {"value", "low", "high", "by_minimum"}
    assert {"cores", "versions", "load"} <= set(body["environment"])
    assert body["processes"] == 1
    assert [row["contender"] for row in body["rows"]] == ["a", f"a{CONTROL}"]
    assert len(outcome.tables()) == 2


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["nothing"]) == 2
    assert "small_parts" in capsys.readouterr().out


LONG = (
    "checkpoint",
    "console",
    "fallback",
    "gateway",
    "growth",
    "guard",
    "incident",
    "loader",
    "race",
    "recovery",
    "shadow",
)
"""Start clusters and kill some, load a machine as far as it goes, or take half a minute."""
TABLES = {"growth": "more", "race": "sheets"}
"""Of these the quick form compares nothing: it draws curves, and replays an incident."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.drill) if name in LONG else name for name in frame.names()]
)
def test_every_benchmark_runs_and_writes_ratios(name: str, tmp_path: Path) -> None:
    assert frame.main([name, "--quick", "--out", str(tmp_path)]) == 0
    body = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    if name in TABLES:
        assert body[TABLES[name]]
        return
    assert body["ratios"]
    assert all(value > 0 for value in body["ratios"].values())
    assert body["controls"]
