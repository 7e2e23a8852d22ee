"""Somebody always answers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from hypothesis import given

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.models.corpus import Utterance
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.hashed_words import GbdtAnswer
from failsoft.models.rules import RulesEngine
from failsoft.serving.fallback.breaker import BreakerPolicy
from failsoft.serving.fallback.ladder import FallbackLadder, LadderPolicy
from failsoft.serving.fallback.rungs import GbdtRung, RulesRung
from failsoft.serving.seam import Rung, RungAnswer
from failsoft.serving.web.messages import Source
from tests.serving.odd_text import any_text


@dataclass
class Scripted:
    """A rung that answers as told."""

    name: Source = Source.GBDT
    answers: RungAnswer | Exception | None = None
    asked: list[str] = field(default_factory=list)

    def answer(self, text: str) -> RungAnswer | None:
        self.asked.append(text)
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


RULES = RungAnswer(source=Source.RULES, output="unknown")
TREES = RungAnswer(source=Source.GBDT, output="play_music", confidence=0.9)


def rules() -> Scripted:
    return Scripted(name=Source.RULES, answers=RULES)


def test_the_first_rung_that_has_an_answer_gives_it() -> None:
    last = rules()
    ladder = FallbackLadder((Scripted(answers=TREES), last))
    last.asked.clear()
    assert ladder.answer("play jazz", "the model is late") is TREES
    assert last.asked == []
    assert (ladder.answers, ladder.failures, ladder.last_reason) == ({"gbdt": 1}, {}, "the model is late")


def test_a_rung_without_an_answer_leaves_it_to_the_next() -> None:
    ladder = FallbackLadder((Scripted(answers=None), rules()))
    assert ladder.answer("play", "late") is RULES
    assert ladder.failures == {}


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), RecursionError()])
def test_a_rung_that_raises_is_counted_and_the_next_one_answers(error: Exception) -> None:
    ladder = FallbackLadder((Scripted(answers=error), rules()))
    assert [ladder.answer("play", "late") for _ in range(3)] == [RULES] * 3
    assert ladder.failures == {"gbdt": 3}


@pytest.mark.parametrize("confidence", [math.nan, math.inf, -0.1, 1.5])
def test_a_confidence_that_can_be_none_is_a_failure_of_the_rung(confidence: float) -> None:
    odd = RungAnswer(source=Source.GBDT, output="play_music", confidence=confidence)
    ladder = FallbackLadder((Scripted(answers=odd), rules()))
    assert ladder.answer("play", "late") is RULES
    assert ladder.failures == {"gbdt": 1}


@pytest.mark.parametrize(
    "odd",
    [
        RungAnswer(output="x", confidence=np.array([0.5])),  # type: ignore[arg-type]
        RungAnswer(output="x", entities=({"start": 0},)),  # type: ignore[arg-type]
        RungAnswer(output="x", source=Source.PRIMARY),
        RungAnswer(output="x", source=7),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_could_not_be_sent_or_comes_in_a_models_name_is_a_failure_of_its_rung(odd: RungAnswer) -> None:
    ladder = FallbackLadder((Scripted(answers=odd), rules()))
    assert ladder.answer("play", "late") is RULES
    assert ladder.failures == {"gbdt": 1}


def test_why_a_rung_rests_is_told_to_all_without_words_of_a_caller_and_to_the_log_with_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever reaches a gateway may read its status, and an error of a rung may quote the text that it choked on."""
    clock = ManualClock()
    ladder = FallbackLadder((Scripted(answers=ValueError("no such town: \ud83d Anna's")), rules()), clock=clock)
    for _ in range(6):
        ladder.answer("play", "late")
    assert ladder.resting == {"gbdt": "5 failures in a row, the last: ValueError"}
    assert [record.getMessage() for record in caplog.records] == [
        "the rung gbdt failed: ValueError: no such town: \ufffd Anna's"
    ]


def test_the_last_rung_always_answers_even_after_it_broke() -> None:
    """B13: when all else is bad there is still an answer, never "no upstream"."""
    last = rules()
    ladder = FallbackLadder((Scripted(answers=ValueError()), last))
    last.answers = OSError("the rules are gone")
    assert ladder.answer("play", "everything is down") is RULES
    assert ladder.failures == {"gbdt": 1, "rules": 1}


@pytest.mark.parametrize(
    ("rungs", "words"),
    [
        ((), "without rungs"),
        ((Scripted(answers=None),), "no answer to ''"),
        ((Scripted(answers=KeyError("x")),), "raised on ''"),
        ((Scripted(answers=RungAnswer(source=Source.RULES, output="")),), "no answer to ''"),
    ],
)
def test_a_ladder_whose_last_rung_may_fail_is_refused_when_it_is_made(rungs: Sequence[Rung], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FallbackLadder(rungs)


def test_a_rung_that_raises_again_and_again_rests_and_is_tried_later() -> None:
    trees, clock = Scripted(answers=OSError("its file is gone")), ManualClock()
    policy = LadderPolicy(breaker=BreakerPolicy(failures_in_a_row=3))
    ladder = FallbackLadder((trees, rules()), policy=policy, clock=clock, rng=random.Random(0))
    assert [ladder.answer("play", "late") for _ in range(10)] == [RULES] * 10
    assert len(trees.asked) == 3
    assert ladder.resting == {"gbdt": "3 failures in a row, the last: OSError"}
    trees.answers = TREES
    clock.advance(2.0)
    assert ladder.answer("play", "late") is TREES
    assert ladder.resting == {}


class Dawdling(Scripted):
    """A rung that takes its time, on a clock that it moves itself."""

    clock: ManualClock
    takes_s: float

    def answer(self, text: str) -> RungAnswer | None:
        self.clock.advance(self.takes_s)
        return super().answer(text)


def test_a_rung_that_is_slow_again_and_again_rests_though_its_answers_are_given() -> None:
    trees = Dawdling(answers=TREES)
    trees.clock, trees.takes_s = ManualClock(), 0.05
    ladder = FallbackLadder((trees, rules()), clock=trees.clock)
    assert [ladder.answer("play", "late").source for _ in range(6)] == [Source.GBDT] * 5 + [Source.RULES]
    assert "took 50 ms" in ladder.resting["gbdt"]


def test_the_last_rung_is_asked_whatever_it_did_before() -> None:
    last = rules()
    ladder = FallbackLadder((last,))
    last.answers = OSError("the rules are gone")
    for _ in range(50):
        assert ladder.answer("play", "late") is RULES
    last.answers = RungAnswer(source=Source.RULES, output="mended")
    assert ladder.answer("play", "late").output == "mended"
    assert ladder.resting == {}


@pytest.mark.parametrize("slow_s", [0.0, math.nan, math.inf])
def test_a_limit_that_no_answer_or_every_answer_is_above_is_refused(slow_s: float) -> None:
    with pytest.raises(ConfigError, match="slow_s is"):
        LadderPolicy(slow_s=slow_s)


@dataclass
class SureOfEverything:
    """What trees are like on input without a single known feature (L1)."""

    known_fraction: float
    confidence: float = 0.99997

    def predict_one(self, text: str) -> GbdtAnswer | None:
        return GbdtAnswer(intent="play_music", confidence=self.confidence, known_fraction=self.known_fraction)


def trees(known_fraction: float, confidence: float = 0.99997) -> GbdtRung:
    return GbdtRung(cast(GbdtIntent, SureOfEverything(known_fraction, confidence)))


@pytest.mark.parametrize("known_fraction", [0.0, 0.49, math.nan])
def test_trees_that_are_sure_of_words_they_do_not_know_are_not_believed(known_fraction: float) -> None:
    """L1: an all-NaN row is read as zeros, with confidence 0.99997."""
    assert trees(known_fraction).answer("zxqv wvvk") is None


@pytest.mark.parametrize("confidence", [0.3, math.nan])
def test_trees_that_would_guess_leave_it_to_the_rules(confidence: float) -> None:
    assert trees(1.0, confidence).answer("play some jazz") is None


def test_trees_that_know_the_words_answer_without_entities() -> None:
    assert trees(0.8).answer("play some jazz") == RungAnswer(
        source=Source.GBDT, output="play_music", confidence=0.99997
    )


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_rung_with_an_impossible_limit_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="min_known_fraction is"):
        GbdtRung(cast(GbdtIntent, SureOfEverything(1.0)), min_known_fraction=value)


def small_ladder() -> FallbackLadder:
    lines = {"play_music": "play some jazz", "get_weather": "will it rain tomorrow", "set_alarm": "wake me at seven"}
    corpus = [
        Utterance(
            id=f"{intent}#{index}", text=f"{text} {'please' * (index % 2)}", intent=intent, spans=(), source="test"
        )
        for intent, text in lines.items()
        for index in range(30)
    ]
    return FallbackLadder((GbdtRung(GbdtIntent.train(corpus)), RulesRung(RulesEngine.default())))


LADDER = small_ladder()


@given(any_text)
def test_the_examples_ladder_answers_any_text(text: str) -> None:
    answer = LADDER.answer(text, "test")
    assert answer.output
    assert answer.source in {Source.GBDT, Source.RULES}
    assert all(text[entity.start : entity.end] == entity.text for entity in answer.entities)
    assert LADDER.failures == {}


def test_rules_claim_no_confidence() -> None:
    assert LADDER.answer("zxqv", "test").confidence is None
