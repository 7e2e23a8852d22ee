"""Each way in which one request can go, told by fakes: it always ends in an answer, and the right thing is noted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.window import Outcome
from failsoft.serving.arms.mirror import NotMirrored
from failsoft.serving.intake.sanitizer import TextPolicy, sanitize
from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.request import Mirrored, NoReading, Reading
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Entity, PredictAnswer, Source
from tests.serving.counter import Counter
from tests.serving.fakes import good, plan, reading, weak
from tests.serving.virtual_time import run_virtually

pytestmark = pytest.mark.anyio


class LeapingClock(ManualClock):
    """Time passes each time that somebody looks, as on a machine that is far too busy."""

    def __init__(self, *, leap_s: float) -> None:
        super().__init__()
        self._leap_s = leap_s

    def monotonic_s(self) -> float:
        """Later than the last time."""
        self.advance(self._leap_s)
        return super().monotonic_s()


async def test_a_credible_answer_in_time_is_the_callers_answer() -> None:
    counter = Counter()
    answer = await counter.ask()
    assert (answer.source, answer.intent, answer.confidence) == (Source.PRIMARY, "play_music", 0.97)
    assert (answer.release, answer.degrade_reason, answer.request_id) == ("r1", None, "q1")
    assert counter.noted == [(Arm.SUBJECT, Outcome.GOOD)]


async def test_an_answer_that_is_not_credible_is_replaced_and_held_against_the_model() -> None:
    counter = Counter()
    counter.blue.answer = weak()
    answer = await counter.ask()
    assert answer.source is Source.RULES
    assert "below 0.50" in (answer.degrade_reason or "")
    assert counter.noted == [(Arm.SUBJECT, Outcome.WEAK)]


@pytest.mark.parametrize(("confidence", "shown"), [(0.3, 0.3), (float("nan"), None), (float("inf"), None)])
async def test_a_replaced_answer_says_how_sure_the_model_was_if_that_is_a_number(
    confidence: float, shown: float | None
) -> None:
    counter = Counter()
    counter.blue.answer = reading(confidence=confidence, outcome=Outcome.WEAK, usable=False, why="not credible")
    answer = await counter.ask()
    assert (answer.source, answer.refused_confidence) == (Source.RULES, shown)
    counter.blue.answer = good()
    assert (await counter.ask()).refused_confidence is None


async def test_a_weak_but_usable_answer_is_given_and_still_held_against_the_model() -> None:
    counter = Counter()
    counter.blue.answer = reading(
        confidence=0.6, outcome=Outcome.WEAK, usable=True, why="confidence 0.60 is below 0.65"
    )
    assert (await counter.ask()).source is Source.PRIMARY
    assert counter.noted == [(Arm.SUBJECT, Outcome.WEAK)]


def test_a_model_that_hangs_costs_one_deadline_and_is_late() -> None:
    counter = Counter(deadline_ms=60.0)
    counter.blue.takes_s = 30.0
    answer = run_virtually(counter.clock, counter.ask())
    assert answer.source is Source.RULES
    assert 40.0 <= answer.latency_ms <= 60.0
    assert counter.noted == [(Arm.SUBJECT, Outcome.LATE)]


async def test_a_gateway_that_was_busy_itself_does_not_blame_the_model() -> None:
    counter = Counter(deadline_ms=60.0)
    counter.answerer = counter.with_clock(SystemClock())
    counter.blue.takes_s = 0.02
    asked = asyncio.create_task(counter.ask())
    await asyncio.sleep(0.005)
    SystemClock().sleep_s(0.3)  # the loop is held up, as by another caller's long texts
    assert (await asked).source is Source.RULES
    assert counter.noted == [(Arm.SUBJECT, Outcome.SHED)]


async def test_a_model_that_was_left_no_time_is_not_asked_and_not_blamed() -> None:
    counter = Counter(deadline_ms=60.0)
    counter.answerer = counter.with_clock(LeapingClock(leap_s=1.0))
    assert (await counter.ask()).source is Source.RULES
    assert (counter.blue.asked, counter.noted) == ([], [(Arm.SUBJECT, Outcome.SHED)])


@pytest.mark.parametrize("outcome", [Outcome.SHED, Outcome.ERROR])
async def test_a_call_that_failed_is_answered_by_the_ladder(outcome: Outcome) -> None:
    counter = Counter()
    counter.blue.answer = NoReading(outcome=outcome, why="queue is full")
    answer = await counter.ask()
    assert (answer.source, answer.degrade_reason) == (Source.RULES, "queue is full")
    assert counter.noted == [(Arm.SUBJECT, outcome)]


@pytest.mark.parametrize("text", ["", " \u200b\u200b ", "\x00" * 50])
async def test_hopeless_input_never_reaches_the_model_and_is_not_its_fault(text: str) -> None:
    counter = Counter()
    answer = await counter.ask(text)
    assert answer.source is Source.RULES
    assert counter.blue.asked == []
    assert counter.noted == [(Arm.SUBJECT, Outcome.BAD_INPUT)]


async def test_while_degraded_nobody_asks_the_model() -> None:
    counter = Counter(plan(Stage.DEGRADED, share=0.0))
    answer = await counter.ask()
    assert (answer.source, answer.stage) == (Source.RULES, Stage.DEGRADED)
    assert counter.blue.asked == []
    assert counter.noted == []


async def test_the_previous_release_stands_in_while_it_is_warm() -> None:
    counter = Counter(plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer = good("r0")
    answer = await counter.ask()
    assert (answer.source, answer.release) == (Source.PREVIOUS, "r0")
    assert counter.noted == [(Arm.STAND_IN, Outcome.GOOD)]


async def test_a_caller_that_will_not_wait_gets_the_fallback_and_that_is_not_the_models_fault() -> None:
    counter = Counter(deadline_ms=10_000.0)
    counter.blue.takes_s, counter.timeout_ms = 30.0, 60.0
    answer = await counter.ask()
    assert (answer.source, counter.noted) == (Source.RULES, [(Arm.SUBJECT, Outcome.SHED)])
    assert answer.latency_ms < 1_000.0


async def test_a_caller_that_leaves_stops_the_call_and_is_counted_nowhere() -> None:
    counter = Counter(plan(stand_in=Colour.GREEN))
    counter.blue.takes_s = 30.0
    asked = asyncio.create_task(counter.ask())
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (counter.notes.seen, counter.notes.answers, counter.green.asked) == ([], [], [])


async def test_an_answer_of_the_subject_on_its_way_up_is_called_canary() -> None:
    counter = Counter(plan(Stage.RAMP_50, share=1.0))
    assert (await counter.ask()).source is Source.CANARY


@pytest.mark.parametrize("behind", [good("r0"), replace(good(), load_generation=0)])
async def test_an_answer_of_weights_from_before_the_reload_is_no_evidence_and_nobody_gets_it(behind: Reading) -> None:
    """A replica that could not reload gave callers what ill weights said, in every stage, and nobody counted it."""
    counter = Counter()
    counter.blue.answer = behind
    answer = await counter.ask()
    assert (answer.source, answer.degrade_reason) == (Source.RULES, "blue has not loaded what the plan asks for")
    assert counter.notes.seen == []
    assert counter.notes.stale_colours == [Colour.BLUE]


async def test_what_such_a_replica_can_not_answer_the_previous_release_does() -> None:
    counter = Counter(plan(stand_in=Colour.GREEN))
    counter.blue.answer, counter.green.answer = replace(good(), load_generation=0), good("r0")
    assert (await counter.ask()).source is Source.PREVIOUS


async def test_a_later_load_than_the_plan_knows_is_given_and_no_evidence() -> None:
    """So it is when the controller lost its storage and counts loads anew."""
    counter = Counter()
    counter.blue.answer = replace(good(), load_generation=2)
    assert (await counter.ask()).source is Source.PRIMARY
    assert counter.notes.stale_colours == [Colour.BLUE]


async def test_a_copy_goes_to_the_subject_only_while_the_plan_mirrors() -> None:
    shadow, serving = Counter(plan(Stage.SHADOW, share=0.0)), Counter()
    await shadow.ask()
    await serving.ask()
    assert [copy.text for copy in shadow.notes.copies] == ["play some jazz"]
    assert serving.notes.copies == []


async def test_hopeless_input_is_not_mirrored_which_is_counted_where_it_was_to_be() -> None:
    counter = Counter(plan(Stage.SHADOW, share=0.0))
    await counter.ask("")
    assert (counter.notes.copies, counter.notes.skipped) == ([], [NotMirrored.UNREADABLE])
    counter.plan = replace(counter.plan, mirror_share=0.0)
    await counter.ask("")
    assert len(counter.notes.skipped) == 1


async def test_a_mirrored_answer_is_noted_apart_with_its_agreement() -> None:
    counter = Counter(plan(Stage.SHADOW, share=0.0))
    for live_intent in ("play_music", "get_weather"):
        await counter.answerer.answer_mirrored(Mirrored(text="play", plan=counter.plan, live_output=live_intent))
    assert [(seen.mirrored, seen.agreed) for seen in counter.notes.seen] == [(True, True), (True, False)]


async def test_spans_point_into_the_callers_own_text() -> None:
    counter = Counter()
    text = "\u200bplay\u200b jazz"
    counter.blue.answer = reading(entities=(Entity(start=5, end=9, slot="genre", text="jazz", confidence=0.9),))
    (entity,) = (await counter.ask(text)).entities
    assert counter.blue.asked == ["play jazz"]
    assert text[entity.start : entity.end] == "jazz" == entity.text


async def test_an_outcome_carries_the_epoch_under_which_the_call_was_made() -> None:
    counter = Counter(plan(epoch=41))
    await counter.ask()
    seen: Seen = counter.notes.seen[0]
    assert seen.epoch == 41


async def test_an_outcome_says_whether_the_text_had_to_be_repaired() -> None:
    counter = Counter()
    for text in ("play some jazz", "play\U0001f3b5jazz"):
        await counter.ask(text)
    assert [seen.repaired for seen in counter.notes.seen] == [False, True]


@given(
    text=st.text(st.characters(exclude_categories=()), max_size=60), start=st.integers(0, 40), length=st.integers(1, 30)
)
def test_whatever_the_text_and_wherever_the_spans_the_answer_can_be_sent(text: str, start: int, length: int) -> None:
    counter = Counter()
    cleaned = sanitize(text, TextPolicy()).text
    start = min(start, len(cleaned))
    end = min(start + length, len(cleaned))
    counter.blue.answer = reading(entities=(Entity(start=start, end=end, slot="x", text="", confidence=0.9),))
    answer = asyncio.run(counter.ask(text))
    assert PredictAnswer.model_validate_json(answer.model_dump_json()) == answer
    for entity in answer.entities:
        assert 0 <= entity.start <= entity.end <= len(text)


@pytest.mark.parametrize(("share", "asked"), [(1.0, "blue"), (0.0, "green")])
async def test_each_model_gets_texts_as_its_own_release_was_measured_with(share: float, asked: str) -> None:
    counter = Counter(plan(Stage.CANARY, share=share, stand_in=Colour.GREEN))
    counter.subject_policy = TextPolicy(split_emoji=False)
    counter.green.answer = good(release="r0")
    await counter.ask("play\U0001f3b5jazz")
    assert counter.blue.asked == (["play\U0001f3b5jazz"] if asked == "blue" else [])
    assert counter.green.asked == (["play \U0001f3b5 jazz"] if asked == "green" else [])


async def test_a_copy_is_cleaned_as_the_release_on_trial_wants_it() -> None:
    counter = Counter(plan(Stage.SHADOW, share=0.0, stand_in=Colour.GREEN))
    counter.subject_policy = TextPolicy(split_emoji=False)
    counter.green.answer = good(release="r0")
    await counter.ask("play\U0001f3b5jazz")
    assert [copy.text for copy in counter.notes.copies] == ["play\U0001f3b5jazz"]


async def test_what_was_seen_says_whose_it_was_and_how_long_the_model_itself_took() -> None:
    counter = Counter()
    counter.blue.answer = replace(good(), model_ms=4.0, together=3, label="play_music", oov_share=0.25)
    await counter.answerer.answer("play", key="k", request_id="q1", caller=17)
    (seen,) = counter.notes.seen
    assert (seen.caller, seen.model_ms, seen.together, seen.label, seen.oov_share) == (17, 4.0, 3, "play_music", 0.25)


async def test_a_caller_whose_answers_alone_go_bad_gets_the_fallback_and_others_the_model() -> None:
    counter = Counter()
    counter.notes.held_back[17] = "this caller's answers alone went bad"
    mine = await counter.answerer.answer("play", key="k", request_id="q1", caller=17)
    other = await counter.answerer.answer("play", key="k", request_id="q2", caller=18)
    assert (mine.source, mine.degrade_reason) == (Source.RULES, "this caller's answers alone went bad")
    assert other.source == Source.PRIMARY
    assert [seen.caller for seen in counter.notes.seen] == [18]
