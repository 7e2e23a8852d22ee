"""What the controller exports: its own status in numbers, and how the subject's gates ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from failsoft.health import serving_metrics as table
from failsoft.health.age import Age
from failsoft.health.clock import Clock
from failsoft.health.metric_book import MetricBook

GateResults = Mapping[str, str]
"""For each gate of a release: passed, failed or waived."""


class RolloutMetrics:
    """Notes what the controller knows.

    Args:
        book: gets it.
        status: asks the controller; the same that people are shown.
        gates: how a release's gates ended; None: nobody knows.
        clock: measures how long a stage lasts.
    """

    def __init__(
        self,
        book: MetricBook,
        status: Callable[[], Mapping[str, Any]],
        gates: Callable[[str], GateResults | None],
        clock: Clock,
    ) -> None:
        self._book, self._status, self._gates = book, status, gates
        self._stage = Age(clock)
        self._told: frozenset[str] = frozenset()

    def look(self) -> None:
        """Note it now."""
        status, put = self._status(), self._book.put
        plan = status["plan"]
        self._book.put_one_of(table.PLAN_STAGE, str(plan["stage"]))
        put(table.PLAN_EPOCH, plan["epoch"])
        put(table.STAGE_AGE, self._stage.of((plan["stage"], plan["releases"][plan["subject"]])))
        put(table.FORCED, float(plan["forced"]))
        put(table.HELD, float(bool(status["held"])))
        put(table.RELAPSES, status["trips"])
        put(table.REST, status["rest_remaining_s"])
        put(table.READY, status["ready_fraction"])
        put(table.REJECTED, len(status["rejected"]))
        put(table.DROPPED, status["dropped_reports"])
        put(table.STORE_FAULT, float(status["store_error"] is not None))
        put(table.UNRECORDED, status["events_not_recorded"])
        self._replicas(status["replicas"], plan["epoch"])
        self._gate_results(plan["releases"][plan["subject"]])

    def _replicas(self, replicas: Mapping[str, Mapping[str, Any]], epoch: int) -> None:
        self._book.put(table.GATEWAYS, len(replicas))
        self._book.put(table.BEHIND, sum(one["epoch"] != epoch for one in replicas.values()))

    def _gate_results(self, release: str) -> None:
        """Also what was told of another release's gates, and is not known of this one."""
        found = self._gates(release)
        for result in table.GATE_RESULTS:
            count = None if found is None else sum(one == result for one in found.values())
            self._book.put(table.GATES, count, result)
        passed = {_word(gate): float(result == "passed") for gate, result in (found or {}).items()}
        for gate in self._told - passed.keys():
            self._book.put(table.GATE, None, gate)
        for gate, value in passed.items():
            self._book.put(table.GATE, value, gate)
        self._told |= passed.keys()


def _word(gate: str) -> str:
    """A gate's name as a label: ``skew: word ids`` is ``skew_word_ids``."""
    return "_".join("".join(sign if sign.isalnum() else " " for sign in gate.lower()).split())
