"""What a gateway exports: every answer counted by source and reason, quality by arm, and what its status says."""

from __future__ import annotations

import math

import pytest

from failsoft.health import serving_metrics as table
from failsoft.health.metric_book import MetricBook
from failsoft.health.monitor import Status
from failsoft.health.window import Outcome
from failsoft.serving.arms.mirror import NotMirrored
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.watching.gateway_metrics import SAMPLES, GatewayMetrics
from failsoft.serving.watching.growth import Growth
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Answer, Source
from tests.health.recorded_sink import RecordedSink, drained
from tests.serving.counter import Counter
from tests.serving.fakes import good, plan, weak
from tests.serving.watching.test_front import Replica

pytestmark = pytest.mark.anyio


def answer_of(source: str, *, latency_ms: float = 4.0) -> Answer:
    return Answer(
        request_id="q", confidence=None, source=source, release=None, stage="serving", epoch=1, latency_ms=latency_ms
    )


def told(metrics: GatewayMetrics) -> RecordedSink:
    return drained(metrics.book)


def test_values_of_labels_are_those_of_the_code() -> None:
    assert set(table.SOURCES) == set(Source)
    assert set(table.STAGES) == set(Stage)
    assert set(table.STATUSES) == {str(status).replace(" ", "_") for status in Status}
    assert set(table.NOT_MIRRORED) == set(NotMirrored)
    assert set(table.OUTCOMES) == set(Outcome) - {Outcome.REFUSED}
    assert set(table.OUTCOMES) - {"good"} < set(table.WHYS)


@pytest.mark.parametrize(
    ("blue", "why"),
    [
        (good(), "none"),
        (weak(), "weak"),
        (NoReading(outcome=Outcome.LATE, why="no answer within 250 ms"), "late"),
        (NoReading(outcome=Outcome.ERROR, why="the model failed"), "error"),
        (NoReading(outcome=Outcome.SHED, why="too much to do"), "shed"),
    ],
)
async def test_each_answer_is_told_with_one_of_few_reasons(blue: Reading | NoReading, why: str) -> None:
    counter = Counter()
    counter.blue.answer = blue
    await counter.ask()
    assert counter.notes.whys == [why]


async def test_a_rescued_answer_is_told_with_what_it_was_rescued_from() -> None:
    counter = Counter(plan(stand_in=Colour.GREEN))
    counter.blue.answer, counter.green.answer = weak(), good("r0")
    assert (await counter.ask()).source is Source.PREVIOUS
    assert counter.notes.whys == ["weak"]


async def test_while_the_stage_gives_nothing_to_the_model_that_is_the_reason() -> None:
    alone, replaced = (
        Counter(plan(Stage.DEGRADED, share=0.0)),
        Counter(plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN)),
    )
    replaced.green.answer = good("r0")
    await alone.ask()
    await replaced.ask()
    assert (alone.notes.whys, replaced.notes.whys) == (["stage"], ["stage"])


async def test_what_nobody_can_read_and_who_is_apart_are_reasons_of_their_own() -> None:
    counter = Counter()
    counter.notes.held_back[17] = "alone"
    await counter.ask("\U0001f3b5")
    await counter.answerer.answer("play", key="k", request_id="q", caller=17)
    assert counter.notes.whys == ["bad_input", "caller"]


def test_answers_are_counted_by_source_and_reason_and_those_of_models_that_are_slow() -> None:
    """A fallback's answer is a miss by its source already; a slow one would count twice against the objective."""
    metrics = GatewayMetrics(MetricBook())
    for source, why, latency_ms in (
        ("primary", "none", 4.0),
        ("canary", "none", 1200.0),
        ("rules", "late", 1200.0),
        ("my rung", "late", 2.0),
    ):
        metrics.answered(answer_of(source, latency_ms=latency_ms), why)
    found = told(metrics).counters
    counted = {labels: count for (name, labels), count in found.items() if name == table.REQUESTS.name and count}
    assert counted == {
        ("primary", "none"): 1.0,
        ("canary", "none"): 1.0,
        ("rules", "late"): 1.0,
        ("other", "late"): 1.0,
    }
    assert found[table.SLOW.name, ()] == 1.0


def test_all_reasons_are_there_from_the_beginning_so_that_a_first_one_is_a_growth() -> None:
    found = told(GatewayMetrics(MetricBook())).counters
    assert {labels for name, labels in found if name == table.REQUESTS.name} == {
        (source, why) for source in table.SOURCES for why in table.WHYS
    }


@pytest.mark.parametrize(
    ("seen", "arm"),
    [
        ({"arm": Arm.SUBJECT}, "subject"),
        ({"arm": Arm.STAND_IN}, "stand_in"),
        ({"arm": Arm.SUBJECT, "mirrored": True}, "mirror"),
        ({"arm": Arm.STAND_IN, "rescue": True}, "rescue"),
    ],
)
def test_quality_and_time_are_told_by_arm(seen: dict[str, object], arm: str) -> None:
    metrics = GatewayMetrics(MetricBook())
    quality = {"confidence": 0.9, "entropy": 0.2, "margin": 0.8, "oov_share": 0.1}
    metrics.called(Seen(epoch=1, outcome=Outcome.GOOD, latency_ms=20.0, **quality, **seen))  # type: ignore[arg-type]
    found = told(metrics)
    shares = (table.CONFIDENCE, table.ENTROPY, table.MARGIN, table.OOV)
    assert [found.observed[metric.name, (arm,)] for metric in shares] == [[0.9], [0.2], [0.8], [0.1]]
    assert found.observed[table.CALL_TIME.name, (arm,)] == [0.02]
    assert found.counters[table.CALLS.name, (arm, "good")] == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5, 2.0])
def test_what_is_no_share_is_in_no_histogram(value: float) -> None:
    metrics = GatewayMetrics(MetricBook())
    metrics.called(Seen(epoch=1, arm=Arm.SUBJECT, outcome=Outcome.WEAK, latency_ms=1.0, confidence=value))
    assert (table.CONFIDENCE.name, ("subject",)) not in told(metrics).observed


def test_a_flood_is_counted_whole_and_sampled_evenly() -> None:
    metrics, replica = GatewayMetrics(MetricBook()), Replica()
    status, found = whole_status(replica), RecordedSink()
    for _ in range(2):
        for number in range(10 * SAMPLES):
            metrics.answered(answer_of("primary", latency_ms=1.0 if number % 2 else 3.0), "none")
        metrics.look(status)
        found = told(metrics)
    assert found.counters[table.REQUESTS.name, ("primary", "none")] == 10 * SAMPLES
    assert len(found.observed[table.LATENCY.name, ("primary",)]) <= SAMPLES + 1


def whole_status(replica: Replica, **other: object) -> dict[str, object]:
    """A gateway's status, without Ray."""
    process = {
        "controller_silent_s": 0.2,
        "tripped_locally": None,
        "texts_at_models": {"blue": 2, "green": 1},
        "shared_window_lag": {"last_ms": 12.0},
    }
    return process | replica.desk.status() | other


def test_what_holds_now_is_read_from_the_status() -> None:
    replica = Replica()
    replica.note(Outcome.WEAK, 3)
    replica.note(Outcome.GOOD, 7)
    replica.desk.not_mirrored(NotMirrored.UNREADABLE)
    replica.desk.stale(Colour.BLUE)
    metrics = replica.desk.metrics
    metrics.look(whole_status(replica))
    found = told(metrics)
    gauges = {name: value for (name, labels), value in found.gauges.items() if not labels}
    assert [gauges[one.name] for one in (table.WINDOW, table.WINDOW_BAD, table.EPOCH, table.SHARE)] == [10, 3, 1, 1]
    assert (gauges[table.AT_MODELS.name], gauges[table.LAG.name], gauges[table.SILENT.name]) == (3, 0.012, 0.2)
    assert found.gauges[table.STAGE.name, ("serving",)] == 1.0
    assert sum(value for (name, _), value in found.gauges.items() if name == table.VERDICT.name) == 1.0
    assert found.counters[table.LEFT_OUT.name, ("unreadable",)] == 1.0
    assert found.counters[table.STALE.name, ()] == 1.0


def test_a_controller_that_was_never_heard_and_a_lag_that_nobody_measured_are_not_known() -> None:
    replica = Replica()
    silent = whole_status(replica, controller_silent_s=None, shared_window_lag={"last_ms": None})
    replica.desk.metrics.look(silent)
    gauges = told(replica.desk.metrics).gauges
    assert math.isnan(gauges[table.SILENT.name, ()])
    assert math.isnan(gauges[table.LAG.name, ()])


def test_a_total_that_somebody_else_keeps_counts_by_its_growth() -> None:
    book = MetricBook()
    grown = Growth(book)
    totals = list[float]()
    for total in (5, 5, 8, 2):
        grown.to(table.MIRRORED, total)
        totals.append(drained(book).counters[table.MIRRORED.name, ()])
    assert totals == [5, 0, 3, 2], "one that fell was begun anew"


def test_spans_of_traces_are_counted_by_what_became_of_them_where_there_are_any() -> None:
    replica = Replica()
    metrics = replica.desk.metrics
    metrics.look(whole_status(replica))
    assert not [name for name, _ in told(metrics).counters if name == table.SPANS.name]
    counts = dict(zip(table.SPAN_ENDS, (7, 0, 2, 1), strict=True))
    metrics.look(whole_status(replica) | {"traces": counts})
    found = told(metrics).counters
    assert {end: found[table.SPANS.name, (end,)] for end in counts} == counts
