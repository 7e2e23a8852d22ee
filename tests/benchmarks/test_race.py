"""What the race makes of measurements is proven on written ones; of the incident race also who leaves an ill model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome as Answered
from tests.benchmarks import bench_race
from tests.benchmarks.bench_race import claims_of, line, measure, told, turned
from tests.benchmarks.bench_snapshot import Size
from tests.benchmarks.incident_app import WRONG
from tests.benchmarks.incident_traffic import Reply
from tests.benchmarks.measuring import Ratio
from tests.benchmarks.outcome import Outcome
from tests.benchmarks.race_bars import drawn as bars_of
from tests.benchmarks.race_legs import LEGS, Claim, Leg
from tests.benchmarks.race_picture import smoothed
from tests.benchmarks.race_profile import COPY, LOOK, NAMES, WHOLE, profiled
from tests.benchmarks.race_recording import COLLAPSE, SURE_AND_WRONG, Given, recorded
from tests.benchmarks.race_rivals import By, Pybreaker, Redeploy, Rival, Window
from tests.benchmarks.race_simulated import LABELLED, OURS, Illness, race
from tests.benchmarks.race_wall import Seen

COUNTS = ("wrong", "back_s", "returns")
CLAIM = Claim(ratio="r", what="a step", against="another loop")


def ratio(value: float, *, spread: float = 0.01) -> Ratio:
    return Ratio(value=value, low=value - spread, high=value + spread, by_minimum=value)


@pytest.mark.parametrize(
    ("value", "word"), [(0.5, "ahead"), (1.5, "behind"), (0.97, "no telling"), (1.03, "no telling")]
)
def test_who_is_ahead_is_said_only_beyond_what_a_against_a_differs_by(value: float, word: str) -> None:
    assert line(CLAIM, ratio(value), ratio(1.04))[-1] == word


def test_one_round_says_nothing() -> None:
    assert line(CLAIM, ratio(0.5, spread=0.0), ratio(1.0))[-1] == "one round only"


def test_a_ratio_the_other_way_round_keeps_its_order() -> None:
    found = turned(Ratio(value=4.0, low=2.0, high=5.0, by_minimum=8.0))
    assert (found.value, found.low, found.high, found.by_minimum) == (0.25, 0.2, 0.5, 0.125)


def test_a_claim_is_compared_with_the_control_of_its_own_part() -> None:
    leg = Leg(
        run=lambda *_: Outcome(name="x"), limit_s=1.0, claims=[Claim(ratio="r", what="w", against="a", control="b")]
    )
    found = {"spread": {"r": vars(ratio(2.0))}, "controls": {"a part": vars(ratio(1.5)), "b part": vars(ratio(1.1))}}
    ((_, measured, control),) = claims_of(leg, found)
    assert (measured.value, control) == (2.0, ratio(1.1))


@pytest.mark.parametrize("name", ["guard", "checkpoint", "serving"])
def test_where_a_leg_has_an_a_against_a_for_each_part_every_claim_names_its_own(name: str) -> None:
    """A chance of 10 % in a checkpoint's stall says nothing of a step beside it."""
    assert all(claim.control for claim in LEGS[name].claims)


def test_every_claim_stands_once_in_its_leg() -> None:
    for leg in LEGS.values():
        assert len({(claim.what, claim.against) for claim in leg.claims}) == len(leg.claims)


def outcome(name: str) -> Outcome:
    made = Outcome(name=name)
    made.ratios["guarded_over_lightning_0.2m"] = ratio(0.7)
    made.controls["whole step, 0.2m"] = ratio(1.0)
    return made


def test_a_leg_that_is_missing_is_left_out_of_the_table(tmp_path: Path) -> None:
    outcome("guard").write(tmp_path)
    found = told(tmp_path, ["guard", "serving"])
    assert [row[1] for row in found.sheets[0].rows] == ["Lightning"]


@pytest.fixture
def quick_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Outcome, list[str]]]:
    """A race whose one leg writes at once, and what was run of it."""
    monkeypatch.setattr(bench_race, "FOLDER", tmp_path / "race")
    monkeypatch.setattr(bench_race, "QUICK", ("guard",))
    fails = {"left": 1}

    def run() -> tuple[Outcome, list[str]]:
        ran: list[str] = []

        def leg(name: str, _leg: Leg, folder: Path, *, full: bool) -> str | None:
            if (folder / f"{name}.json").exists():
                return None
            ran.append(f"{name}{' full' * full}")
            outcome(name).write(folder)
            if fails["left"]:
                fails["left"] -= 1
                return "exit 1"
            return None

        monkeypatch.setattr(bench_race, "_leg", leg)
        return measure(quick=True), ran

    return run


def test_a_race_that_failed_goes_on_and_a_finished_one_begins_anew(
    quick_race: Callable[[], tuple[Outcome, list[str]]],
) -> None:
    first, ran = quick_race()
    assert ran == ["guard"]
    assert "guard failed: exit 1" in first.notes
    again, ran = quick_race()
    assert (ran, again.notes) == ([], []), "what was measured is kept"
    assert quick_race()[1] == ["guard"], "a finished race is no part of the next one"


def given(outcome: Answered) -> Given:
    return Given(intent="a", outcome=outcome, usable=True, confidence=0.6, oov_share=0.0, words=3.0, right=True)


def asked(rival: Rival, clock: ManualClock, outcomes: list[Answered], *, each_s: float = 1.0) -> list[By]:
    found = []
    for outcome in outcomes:
        clock.advance(each_s)
        found.append(rival.ask("k", lambda outcome=outcome: given(outcome)))  # type: ignore[misc]
        rival.pass_time()
    return found


GOOD, WEAK = Answered.GOOD, Answered.WEAK


def test_pybreaker_rests_by_the_races_clock() -> None:
    clock = ManualClock()
    rival = Pybreaker(clock)
    asked(rival, clock, [WEAK] * 5)
    assert not rival.serves_in_full
    assert asked(rival, clock, [GOOD] * 29) == [By.FALLBACK] * 29
    assert asked(rival, clock, [GOOD] * 2)[-1] is By.MODEL
    assert rival.serves_in_full


def test_the_window_opens_at_its_limit_and_forgets() -> None:
    clock = ManualClock()
    rival = Window(clock)
    asked(rival, clock, [GOOD] * 16 + [WEAK] * 4)
    assert (rival.serves_in_full, rival.falls) == (False, 1)
    asked(rival, clock, [WEAK] * 30)
    assert rival.serves_in_full, "after its time all callers meet the model again, whatever that is like"
    asked(rival, clock, [WEAK] * 18)
    assert rival.falls == 1, "it has seen nineteen of them since"


def test_an_alert_waits_and_then_the_old_image_starts() -> None:
    clock = ManualClock()
    rival = Redeploy(clock=clock, over_s=60.0, for_s=60.0, start_s=30.0)
    asked(rival, clock, [WEAK] * 90)
    assert rival.loads == 0
    asked(rival, clock, [WEAK] * 5)
    assert rival.loads == 1


def test_failsoft_leaves_a_collapsed_model_once_and_comes_back_when_it_is_well() -> None:
    illness = Illness(kind=COLLAPSE, mended_by_load=True)
    course = race(OURS, recorded()["snips"], illness, rate_hz=2.0)
    assert course.first_fall_s is not None
    assert course.first_fall_s < 40.0
    assert (course.falls, course.returns_to_ill) == (1, 0)
    assert course.back_s is not None


def test_only_labels_see_a_model_that_is_sure_and_wrong() -> None:
    """A known weakness, and what it takes: without labels it is a warning."""
    illness = Illness(kind=SURE_AND_WRONG, mended_by_load=True)
    without, labelled = (race(name, recorded()["snips"], illness, rate_hz=2.0) for name in (OURS, LABELLED))
    assert (without.falls, labelled.falls) == (0, 1)
    assert without.warned_s is not None


def reply(sent_s: float, *, bad: bool = False, status: int = 200) -> Reply:
    intent = WRONG if bad else "play_music"
    return Reply(sent_s=sent_s, done_s=sent_s + 0.01, status=status, source="primary", intent=intent, stage="serving")


def test_what_callers_got_is_told_second_by_second() -> None:
    replies = [reply(9.5), reply(10.1, bad=True), reply(10.6), reply(11.2), reply(12.3, status=503), reply(13.2)]
    random.Random(1).shuffle(replies)
    seen = Seen(name="x", replies=tuple(replies), broken_s=10.0)
    assert seen.success(4.0, before_s=1.0) == [1.0, 0.5, 1.0, 0.0, 1.0]
    assert seen.success(2.0, before_s=3.0) == [None, None, 1.0, 0.5, 1.0], "seconds without a request keep their place"
    assert (seen.bad, seen.lost, seen.returns) == (1, 1, 1)
    assert seen.last_bad_s == pytest.approx(2.31)


def test_a_smoothed_line_looks_back_only() -> None:
    assert smoothed([1.0, 1.0, 0.0, 0.0, 0.0], 2) == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_what_is_one_number_is_drawn_for_each_rival_and_never_is_no_zero() -> None:
    found = {
        "incidents": {"x": {OURS: {"wrong": 7, "back_s": 1940.0, "returns": 0}, "bare": dict.fromkeys(COUNTS)}},
        "false_trips": {OURS: {"snips": 0, "clinc150": 0}, "sliding window": {"snips": 0, "clinc150": 198}},
    }
    said = [[text.get_text().strip() for text in axes.texts] for axes in bars_of(found, "x").axes]
    assert said == [["never", "7"], ["never", "1,940 s"], ["never", "0 ×"], ["198", "0"]]


def test_a_snapshot_is_taken_apart_against_a_plain_copy() -> None:
    found = profiled(Size(name="tiny", width=16, layers=2, rounds=1), rounds=2)
    assert set(found.ratios) == {f"{piece} over {COPY}" for piece in (WHOLE, LOOK, NAMES)}


def test_the_recording_is_what_its_words_say() -> None:
    data = json.loads((Path(__file__).parent / "race_recorded.json").read_text("utf-8"))
    snips, clinc = (recorded()[name] for name in ("snips", "clinc150"))
    assert set(data) == {"snips", "clinc150"}
    assert sum(one.right for one in snips.healthy) / len(snips.healthy) > 0.97
    assert sum(one.outcome is WEAK for one in snips.ill[COLLAPSE]) > 0.5 * len(snips.healthy)
    assert sum(one.right for one in snips.ill[SURE_AND_WRONG]) < 0.2 * len(snips.healthy)
    assert 0.05 < clinc.weak_fraction < 0.2
