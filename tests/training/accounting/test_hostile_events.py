"""Whatever stands in an event's data, nothing that reads a run's story raises; what can't be meant is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from failsoft.health.ledger import Event, Side, parse_event
from failsoft.training.accounting.degraded import degraded
from failsoft.training.accounting.degraded_metrics import as_metrics as degraded_as_metrics
from failsoft.training.accounting.goodput import account, as_metrics
from failsoft.training.letters import history
from failsoft.training.pace.keeper import DIVIDED
from failsoft.training.summary import summarise

STORY: tuple[tuple[float, str, dict[str, Any]], ...] = (
    (0.0, "attempt_began", {}),
    (4.0, "workers_up", {"world": 2}),
    (5.0, "run_started", {"position": 0, "repeated_batches": 0, "attempt": 1, "rollbacks": 0, "total_batches": 99}),
    (6.0, "batch_refused", {"position": 1, "took_s": 0.5, "step": 1, "reproduction": {"rate_factor": 1.0}}),
    (
        8.0,
        "degradation_began",
        {"degradation": "slow_rank", "name": "rank 1", "rank": 1, "level": "2", "factor": 2.5, "host": "a"},
    ),
    (9.0, DIVIDED, {"holds_from": 4, "shares": [3, 5]}),
    (
        10.0,
        "rolled_back",
        {"position": 5, "snapshot_position": 2, "undone_steps": 3, "replayed_from": 2, "rollbacks": 1},
    ),
    (15.0, "checkpoint_handed_over", {"position": 10, "stall_s": 0.5}),
    (16.0, "validated", {"position": 11, "took_s": 0.5, "metrics": {"loss": 1.0}}),
    (25.0, "attempt_failed", {"wait_s": 10.0, "by": "supervisor"}),
    (35.2, "attempt_began", {}),
    (39.0, "workers_up", {"world": 2}),
    (40.0, "run_started", {"position": 10, "repeated_batches": 8, "last_seen_s": 23.0, "attempt": 2, "rollbacks": 1}),
    (60.0, "run_finished", {"position": 30, "step": 28}),
)
HOSTILE = (
    "-1",
    "-1e300",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e308",
    "1" + "0" * 400,
    '"23"',
    '"x"',
    "[]",
    "[1, {}]",
    "{}",
    "null",
    "true",
)
READERS: dict[str, Callable[[list[Event]], object]] = {
    "account": lambda events: as_metrics(account(events, run="run")),
    "degraded": lambda events: degraded_as_metrics(degraded(events), run="run"),
    "summary": lambda events: summarise(events, run="run"),
    "rollbacks": history._rollbacks_told,
    "divided": history._divided,
}


def told(changes: dict[tuple[int, str], str]) -> list[Event]:
    """The story as the ledger's reader gives it, with some values put in as JSON has them."""
    events = []
    for number, (at_s, kind, data) in enumerate(STORY):
        body = {name: json.dumps(value) for name, value in data.items()}
        body |= {name: value for (place, name), value in changes.items() if place == number}
        inner = ", ".join(f'"{name}": {value}' for name, value in body.items())
        head = f'"at_s": {at_s}, "side": "training", "kind": "{kind}", "subject": "run", "why": "w"'
        event = parse_event(f'{{{head}, "data": {{{inner}}}}}'.encode())
        assert event is not None
        assert event.side is Side.TRAINING
        events.append(event)
    return events


PLACES = [(number, name) for number, (_, _, data) in enumerate(STORY) for name in [*data, "by"]]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_in_an_event_ends_the_reading_of_a_run(reader: str, value: str) -> None:
    for place in PLACES:
        READERS[reader](told({place: value}))


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e308", "1" + "0" * 400, '"23"', "[]", "{}", "true", "-1", "1e9", "101"]
)
def test_a_last_sign_of_life_that_can_not_be_is_one_that_is_not_known(value: str) -> None:
    accounts = [account(told({(12, "last_seen_s"): one}), run="run").to_json() for one in (value, "null", "23.0")]
    assert accounts[0] == accounts[1] != accounts[2]
