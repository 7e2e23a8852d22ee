from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.likeness import Likeness


@dataclass(frozen=True, kw_only=True)
class Data:
    oov_fraction: float = 0.05
    words_mean: float | None = 7.0
    label_mix: Mapping[str, float] = field(default_factory=lambda: {"play": 0.75, "stop": 0.25})


def fed(likeness: Likeness, *texts: tuple[float, float, str]) -> Likeness:
    for words, oov_share, label in texts:
        likeness.record(words=words, oov_share=oov_share, label=label)
    return likeness


def test_live_values_stand_beside_the_healthy_ones_from_the_first_answer_on() -> None:
    shown = fed(Likeness(Data()), (4.0, 0.5, "play"), (12.0, 0.0, "stop")).status()
    assert shown["oov"] == {"live": 2 / 16, "healthy": 0.05}, "by word, as the release counted, and not by text"
    assert shown["words"] == {"live": 8.0, "healthy": 7.0}
    assert shown["label_mix"]["distance"] == pytest.approx(0.25)
    assert shown["label_mix"]["most_moved"]["stop"] == {"live": 0.5, "healthy": 0.25}
    assert "unknown words 12.5% (healthy 5.0%); words a text 8.0 (healthy 7.0)" in shown["in_words"]
    assert "stop 50% (25%)" in shown["in_words"]


def test_a_label_that_the_release_never_gave_is_a_difference() -> None:
    shown = fed(Likeness(Data()), *[(4.0, 0.0, "dance")] * 10).status()
    assert shown["label_mix"]["distance"] == pytest.approx(1.0)


def test_answers_of_the_very_same_mix_differ_by_about_what_is_said_of_chance() -> None:
    shown = fed(Likeness(Data()), *[(4.0, 0.0, "play")] * 75, *[(4.0, 0.0, "stop")] * 25).status()
    assert shown["label_mix"]["distance"] == pytest.approx(0.0)
    assert shown["label_mix"]["by_chance"] == pytest.approx(math.sqrt(0.75 * 0.25 / 100))


def test_what_is_unknown_is_none_and_said() -> None:
    empty = Likeness(Data(oov_fraction=math.nan, words_mean=None, label_mix={}))
    assert empty.status()["in_words"] == "no answer yet"
    shown = fed(empty, (math.nan, math.nan, "")).status()
    assert (shown["oov"], shown["words"]) == ({"live": None, "healthy": None},) * 2
    assert shown["in_words"].startswith("unknown words unknown (healthy unknown)")
    assert "label mix unknown" in shown["in_words"]


texts = st.tuples(
    st.one_of(st.just(math.nan), st.integers(0, 50).map(float)),
    st.sampled_from([math.nan, -1.0, 0.0, 0.25, 1.0, 7.0]),
    st.sampled_from(["", "play", "stop", "other"]),
)


@given(st.lists(texts, max_size=40), st.integers(1, 8))
def test_a_window_that_is_full_says_what_its_newest_say_alone(read: list[tuple[float, float, str]], size: int) -> None:
    long, short = (fed(Likeness(Data(), window=size), *some).status() for some in (read, read[-size:]))
    assert _rounded(long) == _rounded(short)


def _rounded(value: Any) -> Any:
    """Sums of floats depend on their order in the last digits."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return round(value, 9) if isinstance(value, float) else value


def test_labels_without_number_and_a_text_without_end_leave_nothing_behind_when_they_are_past() -> None:
    likeness = fed(Likeness(Data(), window=3), (math.inf, 0.0, "play"), *[(4.0, 0.0, f"l{n}") for n in range(5000)])
    fed(likeness, *[(4.0, 0.5, "play")] * 3)
    shown = likeness.status()
    assert (shown["oov"]["live"], shown["words"]["live"]) == (0.5, 4.0)
    assert len(likeness._labels) == 1, "what is counted is what is in the window"
