"""The books of a gateway replica: what is in force, what was counted, what trips. No Ray."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from failsoft.artifacts.bundle import Baseline
from failsoft.errors import DamagedArtifactError
from failsoft.health.monitor import HealthPolicy
from failsoft.health.window import Outcome
from failsoft.serving.arms.mirror import MirrorQueue, NotMirrored
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.kit import Kit, KitShelf
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, Stage
from failsoft.serving.request import Mirrored
from failsoft.serving.watching.front import FrontDesk
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from failsoft.serving.watching.watch import Watch
from failsoft.serving.web.messages import Answer
from tests.serving.fakes import ladder, plan
from tests.serving.labels import labels_of

pytestmark = pytest.mark.anyio


def kit(release: str, *, weak: float = 0.01, p95_ms: float | None = None) -> Kit:
    baseline = Baseline(
        samples=200,
        weak_fraction=weak,
        entropy_mean=0.1,
        entropy_std=0.05,
        logit_std=2.0,
        oov_fraction=0.0,
        label_mix={},
        latency_p95_ms=p95_ms,
    )
    return Kit(release=release, ladder=ladder(), text_policy=TextPolicy(), baseline=baseline)


class Replica:
    """A front desk with its plan, its trips and its disk in hand."""

    def __init__(self, *, load: Callable[[str], Kit] = kit) -> None:
        self.plan: RoutingPlan = plan()
        self.trips: list[tuple[int, str]] = []
        self.buffer = OutcomeBuffer("g1")
        self.mirror: MirrorQueue[Mirrored] = MirrorQueue(1)
        self.shelf = KitShelf(load, kit("r1"))
        self.desk = self.fresh_desk()

    def fresh_desk(self) -> FrontDesk:
        watch = Watch(HealthPolicy(), lambda epoch, why: self.trips.append((epoch, why)))
        return FrontDesk(
            plan=lambda: self.plan,
            shelf=self.shelf,
            watch=watch,
            buffer=self.buffer,
            mirror=self.mirror,
            labels=labels_of(lambda: self.plan, watch, self.buffer),
        )

    def note(self, outcome: Outcome, count: int, *, arm: Arm = Arm.SUBJECT) -> None:
        for _ in range(count):
            self.desk.note(Seen(epoch=self.plan.epoch, arm=arm, outcome=outcome, latency_ms=1.0))

    def move(self, new: RoutingPlan) -> None:
        self.plan = new
        self.desk.follow(new)


async def test_a_bad_subject_trips_and_every_call_is_still_reported() -> None:
    replica = Replica()
    replica.note(Outcome.WEAK, 30)
    assert len(replica.trips) == 1
    (batch,) = replica.buffer.pending()
    assert batch.outcomes == {Outcome.WEAK: 30}


async def test_answers_that_took_the_model_too_long_are_reported_as_slow_for_its_own_release() -> None:
    replica = Replica(load=lambda release: kit(release, p95_ms=15.0))
    replica.shelf.kit = kit("r1", p95_ms=15.0)
    replica.desk = replica.fresh_desk()
    for model_ms in (10.0, 60.0, 60.0):
        replica.desk.note(Seen(epoch=1, arm=Arm.SUBJECT, outcome=Outcome.GOOD, latency_ms=70.0, model_ms=model_ms))
    replica.desk.note(Seen(epoch=1, arm=Arm.STAND_IN, outcome=Outcome.GOOD, latency_ms=70.0, model_ms=60.0))
    subject, stand_in = replica.buffer.pending()
    assert (subject.slow, subject.timed) == (2, 3)
    assert (stand_in.slow, stand_in.timed) == (0, 0), "the stand-in's own time is not known here"


async def test_a_caller_whose_answers_alone_go_bad_is_held_back_and_written_down() -> None:
    replica = Replica()
    for turn in range(300):
        for caller in (0, 1 + turn % 9):
            outcome = Outcome.WEAK if caller == 0 and turn > 50 else Outcome.GOOD
            seen = Seen(epoch=1, arm=Arm.SUBJECT, outcome=outcome, latency_ms=1.0, caller=caller)
            replica.desk.note(seen)
    assert replica.trips == []
    assert replica.desk.holds_back(0) is not None
    assert [kind for kind, _ in replica.desk.new_refusals()] == ["caller_apart"]
    assert replica.desk.new_refusals() == []
    (batch,) = replica.buffer.pending()
    assert batch.part(0)[Outcome.WEAK] == 249
    assert batch.callers.keys() == {0}, "callers whose calls all went well travel together"


async def test_a_bad_stand_in_is_reported_but_is_no_reason_to_hold_back_the_subject() -> None:
    replica = Replica()
    replica.note(Outcome.WEAK, 50, arm=Arm.STAND_IN)
    assert replica.trips == []
    assert replica.desk.status()["counts"]["outcomes"] == {"stand_in_weak": 50}


async def test_a_new_plan_is_judged_in_an_empty_window() -> None:
    replica = Replica()
    replica.note(Outcome.WEAK, 3)
    replica.note(Outcome.GOOD, 20)
    replica.move(plan(Stage.SHADOW, epoch=2, share=0.0))
    assert replica.desk.status()["health"]["total"] == 0


async def test_another_subject_brings_its_own_ladder_and_baseline() -> None:
    replica = Replica()
    replica.move(plan(epoch=2, release="r2"))
    assert await replica.desk.follow_release()
    assert replica.desk.status()["fallback"] == {"release": "r2", "refusal": None}


@pytest.mark.parametrize("stage", [Stage.SHADOW, Stage.CANARY, Stage.RAMP_50, Stage.REJECTED, Stage.DEGRADED])
async def test_callers_of_the_old_release_keep_its_fallback_while_another_one_is_on_trial_or_rejected(
    stage: Stage,
) -> None:
    """A ladder and a text policy that nobody has proven must not answer people, and a rejected one never again."""
    replica = Replica()
    share = 0.05 if stage in {Stage.CANARY, Stage.RAMP_50} else 0.0
    replica.move(plan(stage, epoch=2, share=share, stand_in=Colour.GREEN, release="r2"))
    assert await replica.desk.follow_release()
    assert replica.desk.status()["fallback"] == {"release": "r0", "refusal": None}
    assert replica.shelf.kit.release == "r2", "the watch is armed from the subject's own baseline"
    replica.move(plan(Stage.SERVING, epoch=3, stand_in=Colour.GREEN, release="r2"))
    assert await replica.desk.follow_release()
    assert replica.desk.status()["fallback"] == {"release": "r2", "refusal": None}


async def test_a_fallback_that_will_not_load_leaves_the_old_one_and_shows_it() -> None:
    def torn(release: str) -> Kit:
        raise DamagedArtifactError(f"{release} is torn")

    replica = Replica(load=torn)
    replica.move(plan(epoch=2, release="r2"))
    assert not await replica.desk.follow_release()
    fallback = replica.desk.status()["fallback"]
    assert fallback["release"] == "r1"
    assert "r2 is torn" in fallback["refusal"]


async def test_a_refusal_is_told_once_and_again_only_when_it_is_another_one() -> None:
    def torn(release: str) -> Kit:
        raise DamagedArtifactError(f"{release} is torn")

    replica = Replica(load=torn)
    assert replica.desk.new_refusals() == []
    replica.move(plan(epoch=2, release="r2"))
    await replica.desk.follow_release()
    ((kind, why),) = replica.desk.new_refusals()
    assert (kind, "r2 is torn" in why) == ("fallback_refused", True)
    await replica.desk.follow_release()
    assert replica.desk.new_refusals() == []
    replica.move(plan(epoch=3, release="r3"))
    await replica.desk.follow_release()
    assert [kind for kind, _ in replica.desk.new_refusals()] == ["fallback_refused"]


async def test_a_release_that_can_not_be_armed_is_shown_in_the_status() -> None:
    replica = Replica(load=lambda release: kit(release, weak=0.3))
    assert replica.desk.status()["health"]["not_armed"] is None
    replica.move(plan(epoch=2, release="r2"))
    await replica.desk.follow_release()
    assert "would trip on this healthy" in replica.desk.status()["health"]["not_armed"]


async def test_copies_that_find_no_room_are_dropped_and_counted() -> None:
    replica = Replica()
    for _ in range(3):
        replica.desk.mirror(Mirrored(text="play", plan=replica.plan, live_output="play_music"))
    replica.desk.not_mirrored(NotMirrored.UNREADABLE)
    assert replica.desk.status()["mirror"]["dropped"] == {"full": 2, "unreadable": 1}


async def test_answers_of_an_older_load_are_counted_apart() -> None:
    replica = Replica()
    replica.desk.stale(Colour.BLUE)
    assert replica.desk.status()["counts"]["stale_answers"] == {"blue": 1}


async def test_a_rung_that_names_another_source_for_each_answer_fills_no_memory() -> None:
    """Sources were kept for ever, and all of them shown in each status; the total is what is looked at for waves."""
    replica = Replica()
    for number in range(1000):
        said = Answer(
            request_id="q",
            confidence=None,
            source=f"faq-{number}",
            release=None,
            stage="serving",
            epoch=1,
            latency_ms=1.0,
        )
        replica.desk.answered(said, 0, "shed", "play")
    sources = replica.desk.status()["counts"]["answers_by_source"]
    assert (len(sources), sources["faq-7"], sources["other"], sum(sources.values())) == (65, 1, 936, 1000)
