"""Who answered, span by span, and a few of the requests that went wrong, without what callers wrote."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger_files import archives
from failsoft.serving.settings import settings_of
from failsoft.serving.watching import answer_history
from failsoft.serving.watching.answer_history import AnswerHistory
from failsoft.serving.watching.redaction import HIDDEN
from failsoft.serving.watching.specimens import (
    DEFAULT_HIDES,
    MAX_CHARACTERS,
    SpecimenPolicy,
    Specimens,
    request_mark,
    shape_of,
)
from failsoft.serving.web.messages import Answer
from tests.serving.fakes import plan

pytestmark = pytest.mark.anyio


def answer(source: str = "primary", confidence: float | None = 0.97, latency_ms: float = 3.0) -> Answer:
    return Answer(
        request_id="q",
        confidence=confidence,
        source=source,
        degrade_reason=None if source == "primary" else "confidence 0.31 is below 0.65",
        release="r1" if source == "primary" else None,
        stage="serving",
        epoch=1,
        latency_ms=latency_ms,
    )


def history(clock: ManualClock | None = None, **policy: Any) -> AnswerHistory:
    specimens = Specimens(SpecimenPolicy(**policy), random.Random(1))
    return AnswerHistory("g1", plan, clock or ManualClock(), specimens)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not holds():  # noqa: ASYNC110 -- the disk tells nobody
            await asyncio.sleep(0.001)


def test_a_span_says_who_answered_and_why_not_the_model() -> None:
    clock = ManualClock()
    told = history(clock)
    for _ in range(3):
        told.answered(answer(), "none", "play jazz")
    told.answered(answer("gbdt", 0.8, latency_ms=251.0), "weak", "plx")
    clock.advance(5.0)
    line = told.take()
    assert line is not None
    assert line["answers"] == {"primary": {"none": 3}, "gbdt": {"weak": 1}}
    assert (line["span_s"], line["slowest_ms"], sum(line["confidence"]), line["confidence"][9]) == (5.0, 251.0, 3, 3)
    assert [one["why"] for one in line["specimens"]] == ["weak"]
    assert (told.take(), list(told.held)) == (None, [line | {"specimens": []}])


def test_unless_switched_on_no_text_is_kept_only_its_shape() -> None:
    told = history()
    told.answered(answer("rules", None), "weak", "play Jazz 24/7 🎷🎷 \u200b")
    line = json.dumps(told.take(), ensure_ascii=False)
    assert "Jazz" not in line
    assert "xxxx xxxx 99/9 🎷🎷 " in line


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("ⓗⓔⓛⓛⓞ ①", "xxxxx 9"),
        ("नमस्ते", "xxx्xx"),
        ("e\u0301 ❤\ufe0f 🎷 \U0001d400", "x\u0301 ❤\ufe0f 🎷 x"),
        ("\x00\ud800", "\\u0000\\ud800"),
    ],
)
def test_no_letter_of_any_script_is_kept_in_a_shape(text: str, shape: str) -> None:
    assert shape_of(text) == shape


def test_what_callers_must_not_find_in_a_file_is_hidden_from_kept_texts() -> None:
    told = history(keep_texts=True)
    told.answered(
        answer("rules", None), "weak", "mail anna.b@example.org or call +49 30 1234567, see https://x.y/z?k=1"
    )
    line = told.take()
    assert line is not None
    assert line["specimens"][0]["text"] == f"mail {HIDDEN} or call {HIDDEN}, see {HIDDEN}"


def test_a_kept_text_carries_by_what_its_author_can_have_it_removed_and_a_shape_carries_nothing() -> None:
    kept, shape = history(keep_texts=True), history()
    for told in (kept, shape):
        told.answered(answer("rules", None), "weak", "play jazz", 255)
    (with_text,), without = [(told.take() or {})["specimens"] for told in (kept, shape)]
    assert (with_text["request"], with_text["caller"]) == (request_mark("q"), "00000000000000ff")
    assert "q" not in {with_text["request"], with_text["caller"]}
    assert [sorted(one) for one in without] == [["said", "shape", "why"]]


def test_an_error_that_quotes_its_request_is_kept_without_the_words_of_it() -> None:
    sample = Specimens(SpecimenPolicy(), random.Random(1))
    sample.offer("tell Anna: a\u0301b", "error", "the model failed: KeyError('Anna') at a of tell_all, mail anna@x.org")
    assert sample.take()[0]["said"] == f"the model failed: KeyError('{HIDDEN}') at a of tell_all, mail {HIDDEN}"


class Unshowable:
    """Somebody's instance."""

    def __repr__(self) -> str:
        raise RuntimeError("odd")


def test_an_instance_that_is_deep_huge_or_cannot_be_shown_ends_no_duty() -> None:
    deep, shown = dict[str, Any](), list[str]()
    for _ in range(100_000):
        deep = {"a": deep}
    for asked in (deep, Unshowable(), {str(n): "x" * 1000 for n in range(10_000)}, {"pressure": 3.5, "tags": ["a"]}):
        told = history(keep_texts=True)
        told.answered(answer("rules", None), "weak", asked)
        line = told.take() or {}
        shown.append(line["specimens"][0]["text"])
    assert all(0 < len(text) <= MAX_CHARACTERS for text in shown)
    assert shown[-1] == "{'pressure': 3.5, 'tags': ['a']}"


@given(st.text(max_size=3000))
def test_any_text_has_a_short_shape_that_json_takes(text: str) -> None:
    told = history(keep_texts=True)
    told.answered(answer("rules", None), "weak", text)
    body = told.take()
    assert body is not None
    assert len(body["specimens"][0]["text"]) <= MAX_CHARACTERS
    assert len(shape_of(text)) <= 7 * MAX_CHARACTERS
    assert not any(sign.isalpha() and sign != "x" for sign in shape_of("".join(filter(str.isprintable, text))))
    json.dumps(body).encode()


def test_specimens_are_a_fair_sample_of_their_span() -> None:
    seen: Counter[str] = Counter()
    for seed in range(2000):
        sample = Specimens(SpecimenPolicy(per_span=2, keep_texts=True), random.Random(seed))
        for number in range(10):
            sample.offer(str(number), "weak", "")
        seen.update(one["text"] for one in sample.take())
    assert set(seen) == set(map(str, range(10)))
    assert all(300 < count < 500 for count in seen.values()), "400 each, with a standard deviation of 18"


def test_the_few_that_tripped_it_are_kept_beside_the_thousands_that_came_after() -> None:
    told = history(per_span=2)
    for _ in range(3):
        told.answered(answer("rules", None), "error", "play jazz")
    for _ in range(5000):
        told.answered(answer("rules", None), "stage", "play jazz")
    line = told.take() or {}
    assert Counter(one["why"] for one in line["specimens"]) == {"error": 2, "stage": 2}
    told.answered(answer("rules", None), "weak", "play jazz")
    assert [one["why"] for one in (told.take() or {})["specimens"]] == ["weak"]


def test_none_are_kept_where_none_are_wanted_and_a_pattern_that_is_none_is_refused() -> None:
    told = history(per_span=0)
    told.answered(answer("rules", None), "weak", "x")
    line = told.take()
    assert line is not None
    assert line["specimens"] == []
    with pytest.raises(ConfigError, match="no regular expression"):
        SpecimenPolicy(hides=("(",))


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"\w+\s*\w*\s*\w*x", r"(?:\d+[ -]?)+x"])
def test_a_pattern_that_can_hold_the_gateway_for_ever_is_refused_when_it_is_configured(pattern: str) -> None:
    with pytest.raises(ConfigError, match="can take for ever") as refusal:
        settings_of({"hide_patterns": [pattern]}).gateway()
    assert repr(pattern) in str(refusal.value)


@pytest.mark.parametrize(
    "pattern",
    [
        *DEFAULT_HIDES,
        r"\d+",
        r"\b[A-Z]{2}\d{2}(?: ?\w{4}){2,7}\b",
        r"\w+@\w+\.com",
        r"sk-\w{20,}",
        r"(?:\d[ -]?){13,16}",
    ],
)
def test_patterns_of_what_people_hide_are_taken(pattern: str) -> None:
    assert settings_of({"hide_patterns": [pattern]}).gateway().specimens.hides == (pattern,)


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 5000 + ")" * 5000])
def test_a_pattern_beyond_what_the_matcher_holds_is_refused_in_words(pattern: str) -> None:
    with pytest.raises(ConfigError, match="no regular expression"):
        SpecimenPolicy(hides=(pattern,))


async def test_spans_are_written_and_full_files_put_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_history, "SPAN_S", 0.0)
    monkeypatch.setattr(answer_history, "FULL_BYTES", 500)
    told, path = history(), tmp_path / "serving" / "answers.jsonl"
    duty = asyncio.create_task(told.keep(path))
    for number in range(20):
        told.answered(answer(), "none", "x")
        await until(lambda: len(told.held) > number)  # noqa: B023 -- waited for in this turn of the loop
    await until(lambda: len(archives(path)) >= 2)
    duty.cancel()
    lines = [json.loads(line) for there in archives(path) for line in there.read_text().splitlines()]
    assert all(line["v"] == 1 for line in lines)


async def test_a_disk_that_refuses_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answer_history, "SPAN_S", 0.0)
    (tmp_path / "serving").touch()
    told = history()
    duty = asyncio.create_task(told.keep(tmp_path / "serving" / "answers.jsonl"))
    told.answered(answer(), "none", "x")
    await until(lambda: "can't be written" in caplog.text)
    assert not duty.done()
    duty.cancel()


def test_a_span_tells_few_sources_apart_whatever_rungs_call_themselves() -> None:
    kept = history()
    for number in range(200):
        kept.answered(answer(source=f"faq-{number}"), "shed", "play")
    line = kept.take()
    assert line is not None
    assert (len(line["answers"]), line["answers"]["other"]) == (65, {"shed": 136})
