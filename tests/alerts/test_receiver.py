"""Only an alert that a rule names acts, only for who has the token, and only within what there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from failsoft.alerts.receiver import MAX_BODY_BYTES, build_receiver
from failsoft.alerts.remedies import Remedies
from failsoft.alerts.settings import Rule
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import ManualClock
from failsoft.training.survival.notice import read_notice

TOKEN = "t" * 24
RULES = [
    Rule.model_validate({"alert": "Burn", "action": "degrade", "for": "30m"}),
    Rule.model_validate({"alert": "Drop", "action": "stop_run"}),
    Rule.model_validate({"alert": "DropOfTwo", "action": "stop_run", "run": "two"}),
]


class Gateway:
    """Counts what it is told; refuses while ``is_away``."""

    def __init__(self) -> None:
        self.forced: list[tuple[float | None, str, str]] = []
        self.is_away = False

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def degrade(self, *, for_s: float | None, why: str, by: str) -> dict[str, Any]:
        if self.is_away:
            raise ServingError("no gateway answers")
        self.forced.append((for_s, why, by))
        return {"epoch": 7}


class World:
    """A receiver over a home with two runs and a gateway that counts."""

    def __init__(self, root: Path, rules: Sequence[Rule] = RULES) -> None:
        self.home, self.clock, self.gateway = Home(root=root), ManualClock(), Gateway()
        for run in ("one", "two"):
            self.home.run(run).mkdir(parents=True)
        self.acts = Remedies(self.home, lambda: self.gateway, self.clock)  # type: ignore[arg-type, return-value]
        self.http = TestClient(build_receiver(rules=lambda: rules, acts=self.acts, token=TOKEN))

    def send(self, *alerts: dict[str, Any], token: str = TOKEN) -> tuple[int, str]:
        body = {"version": "4", "groupKey": "{}", "alerts": list(alerts)}
        answer = self.http.post("/v1/alerts", json=body, headers={"Authorization": f"Bearer {token}"})
        return answer.status_code, answer.text

    def told(self, run: str) -> str | None:
        word = read_notice(self.home.run(run))
        return None if word is None else word.why


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def alert(name: str, *, status: str = "firing", **labels: str) -> dict[str, Any]:
    return {"status": status, "labels": {"alertname": name} | labels, "annotations": {"summary": "it burns"}}


def test_a_firing_alert_that_is_named_holds_the_model_back_for_its_time(world: World) -> None:
    assert world.send(alert("Burn"))[0] == 200
    assert world.gateway.forced == [(1800.0, "alert Burn: it burns", "alert")]


def test_an_alert_that_repeats_itself_is_one_force_until_half_of_its_time_is_over(world: World) -> None:
    world.send(alert("Burn"), alert("Burn"))
    world.clock.advance(899.0)
    world.send(alert("Burn"))
    assert len(world.gateway.forced) == 1
    world.clock.advance(2.0)
    world.send(alert("Burn"))
    assert len(world.gateway.forced) == 2


def test_of_two_alerts_the_longer_force_holds(world: World) -> None:
    rules = [*RULES, Rule.model_validate({"alert": "Flood", "action": "degrade", "for": "2h"})]
    world.http = TestClient(build_receiver(rules=lambda: rules, acts=world.acts, token=TOKEN))
    world.send(alert("Burn"))
    world.send(alert("Flood"))
    world.clock.advance(3660.0)
    world.send(alert("Burn"))
    assert [forced[0] for forced in world.gateway.forced] == [1800.0, 7200.0], "the last one would have ended it sooner"


def test_a_reason_is_never_longer_than_the_gateway_takes(world: World) -> None:
    name = "x" * 200
    rules = [Rule.model_validate({"alert": name, "action": "degrade"})]
    world.http = TestClient(build_receiver(rules=lambda: rules, acts=world.acts, token=TOKEN))
    world.send(alert(name) | {"annotations": {"summary": "y" * 1000}})
    assert [len(forced[1]) for forced in world.gateway.forced] == [500]


def test_a_run_is_told_to_leave_by_label_or_by_rule(world: World) -> None:
    world.send(alert("Drop", run="one"), alert("DropOfTwo", run="one"))
    assert (world.told("one"), world.told("two")) == ("alert Drop: it burns", "alert DropOfTwo: it burns")


@pytest.mark.parametrize("run", ["", "..", "../../etc", "a/b", ".hidden"])
def test_a_label_that_names_no_run_stops_nothing(world: World, run: str) -> None:
    status, text = world.send(alert("Drop", run=run))
    assert (status, "nothing is done" in text) == (200, True)
    assert (world.told("one"), world.told("two")) == (None, None)


@pytest.mark.parametrize("given", [alert("Unknown"), alert("Burn", status="resolved"), {"status": "firing"}])
def test_all_other_alerts_do_nothing(world: World, given: dict[str, Any]) -> None:
    assert world.send(given)[0] == 200
    assert world.gateway.forced == []


def test_what_could_not_be_done_is_answered_so_that_it_comes_again_and_the_rest_is_done(world: World) -> None:
    world.gateway.is_away = True
    status, text = world.send(alert("Burn"), alert("Drop", run="one"), alert("Drop", run="none"))
    assert (status, "no gateway answers" in text, "no run 'none'" in text) == (503, True, True)
    assert world.told("one") == "alert Drop: it burns"
    world.gateway.is_away = False
    world.send(alert("Burn"))
    assert len(world.gateway.forced) == 1


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}t"])
def test_nobody_without_the_token_orders_anything(world: World, token: str) -> None:
    status, text = world.send(alert("Burn"), token=token)
    assert (status, world.gateway.forced) == (401, [])
    assert TOKEN not in text


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"alerts": 3}', b'{"alerts": [{"status": "odd"}]}'])
def test_what_is_no_notice_is_refused_in_words(world: World, body: bytes) -> None:
    answer = world.http.post("/v1/alerts", content=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 422
    assert "Alertmanager" in answer.text


def test_a_body_has_a_bound(world: World) -> None:
    body = b" " * (MAX_BODY_BYTES + 1)
    answer = world.http.post("/v1/alerts", content=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 413


def test_rules_that_cannot_be_read_stop_nothing_and_are_said(tmp_path: Path) -> None:
    def broken() -> Sequence[Rule]:
        raise ConfigError("alerts.toml: receive.0.action")

    app = build_receiver(rules=broken, acts=World(tmp_path).acts, token=TOKEN)
    answer = TestClient(app).post(
        "/v1/alerts", json={"alerts": [alert("Burn")]}, headers={"Authorization": f"Bearer {TOKEN}"}
    )
    assert (answer.status_code, "receive.0.action" in answer.text) == (503, True)
