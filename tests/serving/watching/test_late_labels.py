"""Right labels that come later find the answer, count once, and trip a model that is wrong and sure of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.clock import ManualClock
from failsoft.health.monitor import HealthPolicy, Status
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, Stage
from failsoft.serving.watching.answer_memory import AnswerMemory, Given, answer_key
from failsoft.serving.watching.batch import OutcomeBatch
from failsoft.serving.watching.late_labels import MAX_WAITING, Told
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from failsoft.serving.watching.watch import Watch
from failsoft.serving.web.messages import PredictAnswer, Source
from tests.serving.fakes import plan
from tests.serving.labels import labels_of
from tests.serving.watching.test_watch import Rates


class Gateway:
    """What of a gateway remembers answers and takes labels."""

    def __init__(self, *, known: tuple[str, ...] = (), accuracy: float | None = 0.95) -> None:
        self.plan: RoutingPlan = plan()
        self.trips: list[str] = []
        self.clock, self.buffer = ManualClock(), OutcomeBuffer("g1")
        self.watch = Watch(HealthPolicy(), lambda epoch, why: self.trips.append(why))
        self.watch.arm("r1", Rates(0.01, accuracy=accuracy))
        self.watch.follow(self.plan)
        self.labels = labels_of(lambda: self.plan, self.watch, self.buffer, clock=self.clock, known=known)

    def gave(self, request_id: str, output: Any = "play", *, row: int = 0, **more: Any) -> None:
        """A model's good answer; it is sure of itself, whatever it says."""
        weights = {"release": "r1", "load_generation": 1} | more.pop("weights", {})
        seen: dict[str, Any] = {"epoch": 1, "arm": Arm.SUBJECT, "outcome": Outcome.GOOD, "latency_ms": 5.0} | more
        self.labels.noted(Seen(given=Given(request_id, row, output=output, **weights), **seen))

    def tell(self, request_id: str, label: Any = "play", *, row: int = 0) -> str:
        """What became of a label."""
        (end,) = self.labels.take([Told(answer_key(request_id, row), label)])
        return end

    def follow(self, new: RoutingPlan) -> None:
        self.plan = new
        self.watch.follow(new)

    def batch(self) -> OutcomeBatch:
        (batch,) = self.buffer.pending()
        return batch


def by_the_fallback(request_id: str) -> PredictAnswer:
    said: dict[str, Any] = {"confidence": None, "stage": "serving", "epoch": 1, "latency_ms": 1.0}
    return PredictAnswer(request_id=request_id, source=Source.RULES, entities=[], intent="play", **said)


def test_a_model_that_is_sure_and_wrong_is_tripped_by_labels_and_by_nothing_else() -> None:
    gateway = Gateway()
    for number in range(30):
        gateway.gave(f"q{number}")
        gateway.watch.record(Seen(epoch=1, arm=Arm.SUBJECT, outcome=Outcome.GOOD, latency_ms=5.0))
    assert gateway.watch.verdict().status is Status.HEALTHY
    for number in range(30):
        assert gateway.tell(f"q{number}", "stop") == "counted"
    assert gateway.trips == ["feedback: 20 wrong of 20 with a late label, limit 20%"]
    assert (gateway.batch().wrong, gateway.batch().labelled) == (30, 30)


def test_labels_of_a_model_that_is_as_good_as_its_release_trip_nothing() -> None:
    gateway = Gateway()
    for number in range(2000):
        gateway.gave(f"q{number}")
        gateway.tell(f"q{number}", "stop" if number % 12 == 0 else "play")
    assert gateway.trips == []
    assert gateway.watch.status()["feedback"] == "17 wrong of 200 with a late label, limit 20%"


def test_the_same_label_twice_counts_once() -> None:
    gateway = Gateway()
    gateway.gave("q1")
    assert [gateway.tell("q1", "stop") for _ in range(3)] == ["counted", "repeated", "repeated"]
    assert (gateway.batch().wrong, gateway.batch().labelled) == (1, 1)


def test_each_item_of_a_request_has_its_own_label() -> None:
    gateway = Gateway()
    gateway.gave("q1", "play", row=0)
    gateway.gave("q1", "stop", row=1)
    assert gateway.tell("q1", "stop", row=1) == gateway.tell("q1", "stop", row=0) == "counted"
    assert (gateway.batch().wrong, gateway.batch().labelled) == (1, 2)


def test_an_answer_of_the_fallback_says_nothing_about_a_model() -> None:
    gateway = Gateway()
    gateway.labels.answered(by_the_fallback("q1"), 0)
    assert gateway.tell("q1", "stop") == "not_a_models"
    assert gateway.buffer.pending() == ()


def test_a_label_that_the_release_does_not_know_is_no_proof_against_it() -> None:
    gateway = Gateway(known=("play", "stop"))
    gateway.gave("q1")
    assert [gateway.tell("q1", odd) for odd in ("Play", 7, None, ["stop"])] == ["unknown_label"] * 4
    assert gateway.tell("q1", "stop") == "counted", "the slip was mended"


@pytest.mark.parametrize(
    ("output", "slips"),
    [
        pytest.param(3.2, [None, math.nan, math.inf, "n/a", [3.2], {}], id="a number"),
        pytest.param("play", [None, 3.2, ["play"], math.nan], id="a text"),
    ],
)
def test_what_is_no_output_of_that_kind_is_no_label_also_where_any_output_may_come(
    output: Any, slips: list[Any]
) -> None:
    gateway = Gateway()
    for number, slip in enumerate(slips * 15):
        gateway.gave(f"q{number}", output)
        assert gateway.tell(f"q{number}", slip) == "unknown_label"
    assert gateway.trips == []
    assert gateway.tell("q0", output) == "counted", "the slip was mended"


def test_an_id_that_two_callers_use_proves_nothing_against_the_model() -> None:
    gateway = Gateway()
    for number in range(60):
        gateway.gave(str(number), "play", caller=1)
        gateway.gave(str(number), "stop", caller=2)
        assert gateway.tell(str(number), "play") == "ambiguous"
    assert gateway.trips == []


def test_an_id_that_a_model_answers_after_the_fallback_did_is_told_from_one_with_a_copy() -> None:
    gateway = Gateway()
    for id_ in ("reused", "copied"):
        gateway.labels.answered(by_the_fallback(id_), 0)
    gateway.gave("reused")
    gateway.gave("copied", mirrored=True)
    assert [gateway.tell("reused"), gateway.tell("copied")] == ["ambiguous", "counted"]


def test_a_request_that_was_sent_twice_was_answered_once() -> None:
    gateway = Gateway()
    for _ in range(2):
        gateway.gave("q1")
    assert [gateway.tell("q1", "stop"), gateway.tell("q1", "stop")] == ["counted", "repeated"]


def test_labels_count_for_the_same_weights_in_a_later_stage_and_for_no_others() -> None:
    gateway = Gateway()
    for number in range(6):
        gateway.gave(f"q{number}")
    gateway.tell("q0", "stop")
    gateway.follow(plan(Stage.CANARY, epoch=2, share=0.05))
    assert gateway.tell("q1", "stop") == "counted"
    assert gateway.watch.status()["feedback"].startswith("2 wrong of 2"), "a stage has too few labels of its own"
    assert {batch.epoch for batch in gateway.buffer.pending()} == {1, 2}
    gateway.follow(replace(plan(epoch=3), load_generation={Colour.BLUE: 2, Colour.GREEN: 0}))
    assert gateway.tell("q2", "stop") == "other_weights"
    assert gateway.watch.status()["feedback"] == "no late label yet"


def test_labels_that_have_tripped_a_model_do_not_trip_it_once_more_while_it_rests() -> None:
    gateway = Gateway()
    for number in range(60):
        gateway.gave(f"q{number}")
        if number < 30:
            gateway.tell(f"q{number}", "stop")
    gateway.follow(plan(Stage.DEGRADED, epoch=2, share=0.0))
    for number in range(30, 40):
        gateway.tell(f"q{number}", "stop")
    assert len(gateway.trips) == 1


def test_a_copy_that_no_caller_saw_is_judged_by_the_label_of_its_request() -> None:
    gateway = Gateway()
    gateway.follow(plan(Stage.SHADOW, epoch=2, share=0.0, stand_in=Colour.GREEN))
    stand_in = {"release": str(gateway.plan.releases[Colour.GREEN]), "load_generation": 0}
    stand_in["load_generation"] = gateway.plan.load_generation[Colour.GREEN]
    gateway.gave("q1", "play", arm=Arm.STAND_IN, weights=stand_in)
    gateway.gave("q1", "stop", mirrored=True)
    assert gateway.tell("q1", "play") == "counted"
    told = {batch.arm: (batch.mirrored, batch.wrong, batch.labelled) for batch in gateway.buffer.pending()}
    assert told == {Arm.STAND_IN: (False, 0, 1), Arm.SUBJECT: (True, 1, 1)}


def test_one_callers_wrong_answers_do_not_take_the_model_from_the_others() -> None:
    gateway = Gateway()
    for number in range(600):
        caller = 0 if number % 2 else 1 + number % 9
        gateway.gave(f"q{number}", caller=caller)
        gateway.tell(f"q{number}", "stop" if caller == 0 and number > 200 else "play")
    assert gateway.trips == []
    assert gateway.watch.holds_back(0) is not None
    assert gateway.watch.holds_back(2) is None


def test_an_output_too_large_to_be_remembered_is_not_compared() -> None:
    gateway = Gateway()
    gateway.gave("q1", [0.5] * 768)
    assert gateway.tell("q1", [0.5] * 768) == "not_compared"


def test_without_a_measured_accuracy_labels_are_not_judged() -> None:
    gateway = Gateway(accuracy=None)
    for number in range(100):
        gateway.gave(f"q{number}")
        gateway.tell(f"q{number}", "stop")
    assert gateway.trips == []
    assert "no measured accuracy" in gateway.watch.status()["not_judged"]["feedback"]


def test_what_is_not_from_here_waits_to_be_handed_on_and_the_oldest_make_room() -> None:
    gateway = Gateway()
    assert gateway.tell("elsewhere", "stop") == "handed_on"
    assert gateway.labels.take([Told(7, "stop")], handed_on=True) == {}
    assert len(gateway.labels.waiting) == 1
    gateway.labels.take([Told(number, "stop") for number in range(2 * MAX_WAITING)])
    assert len(gateway.labels.waiting) == MAX_WAITING


def test_answers_are_forgotten_by_number_and_by_age() -> None:
    gateway = Gateway()
    for number in range(300):
        gateway.gave(f"q{number}")
    assert gateway.labels.status()["answers_remembered"] == 100
    assert gateway.tell("q0") == "handed_on"
    gateway.clock.advance(101.0)
    assert gateway.tell("q299") == "handed_on"
    for number in range(60):
        gateway.gave(f"later{number}")
    assert gateway.labels.status()["answers_remembered"] == 60


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.floats(0.0, 3.0)), max_size=200))
def test_the_memory_keeps_both_bounds_whatever_comes(steps: list[tuple[int, bool, float]]) -> None:
    clock = ManualClock()
    memory = AnswerMemory(clock, max_answers=10, max_age_s=20.0)
    came_s: dict[str, float] = {}
    for number, by_model, pause_s in steps:
        clock.advance(pause_s)
        came_s.setdefault(f"q{number}", clock.monotonic_s())
        if by_model:
            memory.model(Given(f"q{number}", 0, "r1", 1, "play"), caller=None, mirrored=False)
        else:
            memory.fallback(f"q{number}", 0)
        assert len(memory) <= 10
        found = memory.find(answer_key(f"q{number}", 0))
        assert found is None or clock.monotonic_s() - found.at_s <= 20.0


@pytest.mark.parametrize("counts", [{"wrong": 2, "labelled": 1}, {"wrong": -1}, {"labelled": float("nan")}])
def test_a_report_with_impossible_labels_is_refused(counts: dict[str, Any]) -> None:
    from failsoft.errors import ConfigError

    whole = {"gateway": "g", "sequence": 1, "epoch": 1, "arm": "subject", "mirrored": False, "outcomes": {}}
    with pytest.raises(ConfigError):
        OutcomeBatch.of(whole | counts)


def test_a_report_with_labels_survives_its_way() -> None:
    gateway = Gateway()
    gateway.gave("q1", caller=5)
    gateway.tell("q1", "stop")
    batch = gateway.batch()
    assert OutcomeBatch.of(batch.as_json()) == batch
    assert batch.labelled_answers() == {(True, 5): 1}
