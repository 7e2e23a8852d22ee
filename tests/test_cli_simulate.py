"""``failsoft simulate`` says in words and in JSON what a policy would do, and its exit code says whether to arm it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import failsoft.cli.simulate  # noqa: F401 -- importing it hangs its command on the app
from failsoft.cli.app import app
from failsoft.errors import ConfigError

QUICK = ["simulate", "--hours", "0.2", "--seed", "3"]


def run(*more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*QUICK, *more])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    return result.exit_code, result.output


def test_a_policy_that_fits_is_said_to_with_the_rule_the_false_trips_and_the_times() -> None:
    code, said = run("--gateways", "3")
    assert code == 0
    assert "rule       degrade when at least 20.00% of the last 100" in said
    assert "3 gateways' own windows and the controller's over all" in said
    assert "false trips: 0, 0.00 a day" in said
    assert "(median)" in said
    assert said.rstrip().endswith("it fits")


def test_the_same_seed_gives_the_same_numbers_in_json() -> None:
    first, again = run("--json"), run("--json")
    assert first == again
    found = json.loads(first[1])
    assert found["fits"]
    assert found["healthy"]["answers"] == 36_000
    assert 40 <= found["detection"]["calls"]["p50"] <= 55
    assert found["detection"]["seconds"]["p50"] < found["detection"]["seconds"]["p99"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--healthy", "12%"], "would trip on this healthy model"),
        (["--broken", "6%"], "missed"),
        (["--healthy", "7.5%", "--max-false-trips", "0", "--hours", "24"], "times a day"),
    ],
)
def test_a_policy_that_trips_on_the_healthy_or_misses_the_broken_ends_in_exit_code_2(
    options: list[str], words: str
) -> None:
    code, said = run(*options)
    assert code == 2
    assert "do not arm it" in said
    assert words in said


def test_a_log_is_the_healthy_course_and_its_confidences_are_judged_by_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    rows = [{"time": number / 50, "confidence": 0.5 if number % 50 == 0 else 0.9} for number in range(5000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    code, said = run(str(path), "--json")
    found = json.loads(said)
    assert code == 0
    assert found["healthy"]["bad_fraction"] == pytest.approx(0.02)
    assert found["healthy"]["hours"] == pytest.approx(4999 / 50 / 3600)
    code, said = run(str(path), "--confidence", "0.95")
    assert code == 2, "with this limit every answer is bad"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--healthy", "much"], "--healthy is 'much'"),
        (["--limit", "200%"], "--limit is '200%'"),
        (["--window", "5"], "window_size is 5"),
        (["--rps", "0"], "use more than 0"),
        (["--hours", "100000000"], "use 1 to"),
        (["--hours", "inf"], "use 1 to"),
        (["--rps", "5000", "--hours", "24"], "use 1 to 100,000,000"),
        (["--seed", "-1"], "seed is -1"),
        (["--max-false-trips", "nan"], "max_false_trips_per_day is nan"),
    ],
)
def test_what_can_not_be_tried_is_refused_in_words(options: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(*options)


def test_a_log_of_less_than_one_window_says_nothing_about_false_trips(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"outcome": "good"}\n' * 99, "utf-8")
    code, said = run(str(path))
    assert code == 2
    assert "only 99 answers of the healthy model are known, less than one window of 100" in said
    path.write_text('{"outcome": "good"}\n' * 100, "utf-8")
    assert run(str(path))[0] == 0
