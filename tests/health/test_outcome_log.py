"""Logs of answers are read as they come, and what says nothing about a model is counted and left out."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.outcome_log import read_log


def write(folder: Path, *rows: object) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def test_outcomes_and_confidences_become_good_and_bad(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"outcome": "good"},
        {"outcome": "late"},
        {"confidence": 0.7, "source": "primary"},
        {"confidence": 0.64, "source": "canary"},
        {"confidence": 0.9, "refused_confidence": 0.3, "source": "gbdt"},
        '{"confidence": NaN}',
        '{"confidence": Infinity}',
        {"confidence": 95},
    )
    assert read_log(path, low_confidence=0.65).bad == [False, True, False, True, True, True, True, True]


def test_what_says_nothing_about_the_model_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"outcome": "good"},
        {"outcome": "shed"},
        {"outcome": "bad_input"},
        {"confidence": None, "source": "rules"},
        {"confidence": 0.9, "source": "gbdt"},
        {"outcome": ["weak"]},
        "torn {",
    )
    log = read_log(path, low_confidence=0.65)
    assert log.bad == [False]
    assert log.left_out == {
        "shed": 1,
        "bad_input": 1,
        "says nothing about the model": 3,
        "not a JSON object": 1,
    }


@pytest.mark.parametrize("times", [(10.0, 70.0), ("2026-03-01T00:00:10+00:00", "2026-03-01T00:01:10+00:00")])
def test_times_are_seconds_or_iso_8601(tmp_path: Path, times: tuple[object, object]) -> None:
    path = write(tmp_path, *({"outcome": "good", "time": time} for time in times))
    assert read_log(path, low_confidence=0.65).span_s == pytest.approx(60.0)


def test_a_time_that_is_missing_somewhere_leaves_the_span_unknown(tmp_path: Path) -> None:
    path = write(tmp_path, {"outcome": "good", "time": 1.0}, {"outcome": "good"}, {"outcome": "good", "time": 9.0})
    assert read_log(path, low_confidence=0.65).span_s is None


def test_a_csv_is_read_by_its_heading(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("time,outcome,confidence\n0,good,\n1,,0.2\n2,weak,0.9\n", "utf-8")
    log = read_log(path, low_confidence=0.65)
    assert (log.bad, log.span_s) == ([False, True, True], 2.0)


def test_a_log_without_an_answer_is_refused_with_what_a_line_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'outcome' or a 'confidence'"):
        read_log(write(tmp_path, {"text": "play"}), low_confidence=0.65)
    with pytest.raises(ConfigError, match="can't be read"):
        read_log(tmp_path / "absent.jsonl", low_confidence=0.65)


def test_what_is_no_csv_and_a_limit_that_is_no_share_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(f'outcome,text\ngood,"{"a" * 200_000}"\n', "utf-8")
    with pytest.raises(ConfigError, match="can't be read as CSV: field larger"):
        read_log(path, low_confidence=0.65)
    with pytest.raises(ConfigError, match="low_confidence is nan"):
        read_log(write(tmp_path, {"outcome": "good"}), low_confidence=math.nan)


@given(st.lists(st.text() | st.dictionaries(st.sampled_from(["outcome", "confidence", "time"]), st.text()), max_size=8))
def test_whatever_a_log_holds_each_line_is_counted_or_left_out(rows: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = read_log(write(Path(folder), {"outcome": "good"}, *map(json.dumps, rows)), low_confidence=0.65)
    assert len(log.bad) + sum(log.left_out.values()) == 1 + len(rows)


@pytest.mark.parametrize("name", ["answers.csv", "answers.jsonl"])
def test_the_mark_that_spreadsheets_put_before_a_text_hides_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = "outcome,time\ngood,1\nlate,2\n" if name.endswith("csv") else '{"outcome": "good"}\n{"outcome": "late"}\n'
    path.write_text(text, "utf-8-sig")
    log = read_log(path, low_confidence=0.65)
    assert (log.bad, log.left_out) == ([False, True], {})


@pytest.mark.parametrize("time", ["0001-01-01", "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+14:00"])
def test_a_moment_that_no_clock_can_have_is_no_time(tmp_path: Path, time: str) -> None:
    path = write(tmp_path, {"outcome": "good", "time": time})
    assert read_log(path, low_confidence=0.65).span_s is None
