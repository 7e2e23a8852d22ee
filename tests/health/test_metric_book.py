from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.health.ledger import Side
from failsoft.health.metric import OTHER, Kind, Label, Metric
from failsoft.health.metric_book import MetricBook
from tests.health.recorded_sink import RecordedSink, drained

COLOUR = Label(name="colour", values=("red", "blue"))
COUNT = Metric(name="failsoft_x_total", kind=Kind.COUNTER, help="X.", side=Side.SERVING, labels=(COLOUR,))
OPEN = Metric(
    name="failsoft_o_total", kind=Kind.COUNTER, help="O.", side=Side.SERVING, labels=(Label(name="who", at_most=3),)
)
GAUGE = Metric(name="failsoft_g", kind=Kind.GAUGE, help="G.", side=Side.SERVING, labels=(COLOUR,))
TIMES = Metric(
    name="failsoft_t_seconds", kind=Kind.HISTOGRAM, help="T.", side=Side.SERVING, unit="seconds", buckets=(0.1, 1.0)
)


def test_counts_are_handed_on_once() -> None:
    book = MetricBook()
    book.count(COUNT, "red")
    book.count(COUNT, "red", by=2.0)
    assert drained(book).counters == {("failsoft_x_total", ("red",)): 3.0}
    assert drained(book).counters == {}


class FailsAt(RecordedSink):
    """Refuses one call, as Ray's exporter does whose agent is away."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self._call = call

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        if self.calls == self._call:
            raise ConnectionError("the agent is away")
        super().add(metric, amount, labels)


@pytest.mark.parametrize("call", range(4))
def test_counts_that_a_sink_refuses_come_with_the_next_drain_and_none_comes_twice(call: int) -> None:
    book, sink = MetricBook(), FailsAt(call)
    for who in ("a", "b", "c", "d", "e"):
        book.count(OPEN, who, by=2.0)
    book.observe(TIMES, 0.5)
    with pytest.raises(ConnectionError):
        list(book.drain(sink))
    book.count(OPEN, "a")
    after = drained(book)
    told = {series: sink.counters[series] + after.counters[series] for series in {*sink.counters, *after.counters}}
    assert told == {("failsoft_o_total", (who,)): n for who, n in (("a", 3.0), ("b", 2.0), ("c", 2.0), ("other", 4.0))}
    assert after.observed["failsoft_t_seconds", ()] == [0.5]


def test_a_gauge_is_told_again_and_again_since_ray_forgets_it() -> None:
    book = MetricBook()
    book.put(GAUGE, 2.0, "red")
    assert drained(book).gauges == drained(book).gauges == {("failsoft_g", ("red",)): 2.0}


def test_what_is_not_known_is_not_the_value_before() -> None:
    book = MetricBook()
    book.put(GAUGE, 2.0, "red")
    book.put(GAUGE, None, "red")
    assert math.isnan(drained(book).gauges["failsoft_g", ("red",)])


def test_one_state_holds_and_the_others_do_not() -> None:
    book = MetricBook()
    book.put_one_of(GAUGE, "red")
    book.put_one_of(GAUGE, "blue")
    assert drained(book).gauges == {("failsoft_g", ("red",)): 0.0, ("failsoft_g", ("blue",)): 1.0}


def test_a_value_that_no_label_lists_is_other() -> None:
    book = MetricBook()
    book.count(COUNT, "green")
    book.count(COUNT, "mauve")
    assert drained(book).counters == {("failsoft_x_total", (OTHER,)): 2.0}


@given(st.lists(st.text(max_size=5), max_size=40))
def test_however_many_names_come_a_metric_has_few_series_and_loses_no_count(names: list[str]) -> None:
    book = MetricBook()
    for name in names:
        book.count(OPEN, name)
    counters = drained(book).counters
    assert len(counters) <= 4
    assert sum(counters.values()) == len(names)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60))
def test_a_histogram_keeps_counts_by_bucket_and_the_sum(values: list[float]) -> None:
    book = MetricBook()
    for value in values:
        book.observe(TIMES, value)
    told = drained(book).observed["failsoft_t_seconds", ()]
    for end in (0.1, 1.0, math.inf):
        assert sum(value <= end for value in told) == sum(value <= end for value in values)
    assert math.fsum(told) == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-12)


def test_a_flood_of_values_is_thinned_and_its_rare_ones_stay() -> None:
    book = MetricBook(most_observed=100)
    for _ in range(100_000):
        book.observe(TIMES, 0.05)
    book.observe(TIMES, 3.0)
    told = drained(book).observed["failsoft_t_seconds", ()]
    assert len(told) <= 102
    assert 3.0 in told


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_value_of_a_histogram(value: float) -> None:
    book = MetricBook()
    book.observe(TIMES, value)
    assert drained(book).observed == {}


def test_labels_of_the_process_go_with_every_value_and_are_empty_until_they_are_known() -> None:
    whose = Metric(
        name="failsoft_w",
        kind=Kind.GAUGE,
        help="W.",
        side=Side.SERVING,
        labels=(COLOUR,),
        everywhere=(Label(name="app"),),
    )
    book = MetricBook()
    book.put(whose, 1.0, "red")
    assert drained(book).told_with == {"colour": "red", "app": ""}
    book.whose["app"] = "intents"
    assert drained(book).told_with == {"colour": "red", "app": "intents"}
