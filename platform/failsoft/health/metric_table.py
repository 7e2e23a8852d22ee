"""Every metric of the platform in one table: what docs, rules and dashboards are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from failsoft.errors import ConfigError
from failsoft.health.ledger import Side
from failsoft.health.metric import Kind, Label, Metric
from failsoft.health.serving_metrics import SERVING_METRICS
from failsoft.health.training_metrics import TRAINING_METRICS

_SIDE = Label(name="side", values=tuple(Side))

EXPORTER_FAILURES = Metric(
    name="failsoft_exporter_failures_total",
    kind=Kind.COUNTER,
    help="Looks or exports of metrics that failed; what they are about goes on.",
    side=None,
    labels=(_SIDE,),
)
EXPORTER_TIME = Metric(
    name="failsoft_exporter_seconds_total",
    kind=Kind.COUNTER,
    help="Time that looking and exporting took in its process.",
    side=None,
    unit="seconds",
    labels=(_SIDE,),
)


def table_of(metrics: Iterable[Metric]) -> Mapping[str, Metric]:
    """Metrics by name.

    Raises:
        ConfigError: two of them have one name.
    """
    table: dict[str, Metric] = {}
    for metric in metrics:
        if metric.name in table:
            raise ConfigError(f"metric {metric.name!r} is declared twice; give one of them another name")
        table[metric.name] = metric
    return MappingProxyType(table)


TABLE = table_of((*TRAINING_METRICS, *SERVING_METRICS, EXPORTER_FAILURES, EXPORTER_TIME))
"""All metrics by name, in the order of the docs."""
