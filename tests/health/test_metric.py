from __future__ import annotations

from typing import Any

import pytest

from failsoft.errors import ConfigError
from failsoft.health.ledger import Side
from failsoft.health.metric import Kind, Label, Metric
from failsoft.health.metric_table import TABLE, table_of


def metric(**other: Any) -> Metric:
    given: dict[str, Any] = {"name": "failsoft_x", "kind": Kind.GAUGE, "help": "A sentence.", "side": Side.SERVING}
    return Metric(**(given | other))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"name": "x_seconds"}, "is no name"),
        ({"name": "failsoft_Loss"}, "is no name"),
        ({"kind": Kind.COUNTER}, "ends in _total"),
        ({"name": "failsoft_x_total"}, "ends in _total"),
        ({"name": "failsoft_x_count"}, "series of Prometheus' own"),
        ({"unit": "seconds"}, "does not end in its unit"),
        ({"help": "no sentence"}, "has no help"),
        ({"kind": Kind.HISTOGRAM}, "has buckets"),
        ({"buckets": (1.0,)}, "has buckets"),
        ({"kind": Kind.HISTOGRAM, "buckets": (0.5, 0.5)}, "do not grow"),
        ({"kind": Kind.HISTOGRAM, "buckets": (0.0, 0.5)}, "do not grow"),
        ({"labels": (Label(name="a"), Label(name="a"))}, "two labels"),
    ],
)
def test_a_metric_against_the_conventions_is_refused_in_words(other: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        metric(**other)


@pytest.mark.parametrize("name", ["le", "job", "Run", "a-b", ""])
def test_a_label_that_is_prometheus_own_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no free label name"):
        Label(name=name)


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ConfigError, match="declared twice"):
        table_of([metric(), metric()])


def test_ray_is_told_of_a_counter_without_the_ending_that_it_adds_itself() -> None:
    counter = metric(name="failsoft_x_total", kind=Kind.COUNTER)
    assert (counter.registered, counter.exported) == ("failsoft_x", "ray_failsoft_x_total")


def test_a_histogram_is_asked_for_by_its_three_series() -> None:
    histogram = metric(name="failsoft_x_seconds", kind=Kind.HISTOGRAM, buckets=(1.0,))
    ends = [name.removeprefix("ray_failsoft_x_seconds") for name in histogram.series]
    assert ends == ["_bucket", "_count", "_sum"]


def test_the_whole_table_has_few_series_whatever_happens() -> None:
    """All closed sets at their fullest, and one value of each open one: what one process can export."""
    series = 0
    for each in TABLE.values():
        combinations = 1
        for label in each.labels:
            combinations *= len(label.values) + 1 if label.values else 1
        series += combinations * (len(each.buckets) + 3 if each.buckets else 1)
    assert series < 1000
