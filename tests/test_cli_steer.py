"""The commands that look at a running app and steer it, against a gateway that is only its routes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from failsoft.artifacts.bundle import Baseline
from failsoft.cli import steer
from failsoft.cli.app import app
from failsoft.cli.rollout_words import rollout_rows
from failsoft.health.likeness import Likeness
from failsoft.remote import GatewayClient
from failsoft.serving.web import examples, status_examples

GATEWAY: dict[str, Any] = status_examples.STATUS | {
    "plan": examples.PLAN | {"stage": "canary", "share": 0.05},
    "health": status_examples.STATUS["health"] | {"rule": "20 %"},
    "controller_silent_s": 0.1,
}
BASELINE: dict[str, Any] = {
    "samples": 700,
    "weak_fraction": 0.01,
    "entropy_mean": 0.02,
    "entropy_std": 0.05,
    "logit_std": 4.0,
    "oov_fraction": 0.05,
    "words_mean": 7.0,
    "label_mix": {"play_music": 0.5, "get_weather": 0.5},
}
ROLLOUT: dict[str, Any] = {
    "plan": examples.PLAN | {"epoch": 13, "stage": "canary", "relapses": 2},
    "waits_for": "412 of 450 answers",
    "health": {"status": "healthy", "reason": "1 bad of 100 (1.00%), below 20.00%"},
    "evidence": {"in_stage": [3, 412], "active_s": 301.0},
    "rest_remaining_s": 0.0,
    "gateways": 2,
    "replicas": {"g1": {"epoch": 13, "silent_s": 0.1}, "g2": {"epoch": 12, "silent_s": 4.0}},
    "order": "",
    "held": "held by anna: freeze",
    "rejected": {"r0": "fell 3 times"},
    "store_error": None,
    "events_not_recorded": 4,
}


class Wires(httpx.MockTransport):
    """Answers, and knows whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


class FakeGateway:
    """Answers as the routes do, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, controller_away: bool = False) -> None:
        self.asked: list[httpx.Request] = []
        self.wires: list[Wires] = []
        self.away = controller_away

        def client(url: str, **given: Any) -> GatewayClient:
            self.wires.append(Wires(self._answer))
            return GatewayClient(url, transport=self.wires[-1], **given)

        monkeypatch.setattr(steer, "GatewayClient", client)
        monkeypatch.setenv("FAILSOFT_TOKEN", "t" * 20)

    def run(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert all(wires.closed for wires in self.wires), "a connection was left to the garbage collector"
        return done.output

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if request.url.path == "/v1/status":
            return httpx.Response(200, json=GATEWAY)
        if request.url.path == "/v1/rollout":
            return httpx.Response(503, text="away") if self.away else httpx.Response(200, json=ROLLOUT)
        return httpx.Response(200, json=examples.PLAN)


def rows(gateway: dict[str, Any] = GATEWAY, rollout: dict[str, Any] = ROLLOUT) -> dict[str, str]:
    return dict(rollout_rows(gateway, rollout))


def test_the_status_says_what_the_stage_waits_for_and_who_is_behind() -> None:
    shown = rows()
    assert shown["waits for"] == "412 of 450 answers"
    assert shown["answers of the subject in this stage"] == "412, 3 of them bad, in 301 s"
    assert shown["replicas"] == "1 of 2 at epoch 13; behind: g2 at 12"
    assert (shown["relapses"], shown["rest"], shown["held"]) == ("2", "none", "held by anna: freeze")
    assert shown["given up"] == "r0: fell 3 times"
    assert shown["events of controller not in the ledger"].startswith("4;")


def test_the_status_says_how_many_answers_each_stage_and_the_comparison_need() -> None:
    stages = {"shadow": {"answers": 450, "seconds": 900.0}, "canary": {"answers": 100, "seconds": 300.0}}
    shown = rows(rollout=ROLLOUT | {"needs": {"stages": stages, "answers_to_compare": 237}})
    assert shown["answers that stages need"] == "shadow 450 in 900 s or more, canary 100 in 300 s or more"
    assert shown["answers that a comparison needs"] == "237 since shadow"
    shown = rows(rollout=ROLLOUT | {"needs": {"stages": stages, "answers_to_compare": None}})
    assert shown["answers that a comparison needs"].startswith("no number")


def test_the_status_shows_how_copies_compare_with_the_live_answers() -> None:
    pairs = {"confidence_shift": -0.02, "confidence_kl": 0.0123, "latency_ms": 4.0, "live_latency_ms": 6.0}
    plan = ROLLOUT["plan"] | {"mirror_share": 0.013}
    mirror = {"agree": 8, "compared": 9, "pairs": 9}
    shown = rows(rollout=ROLLOUT | {"plan": plan, "mirror": mirror | pairs})["copies beside live answers"]
    assert shown == "1.3% of the traffic, 8 of 9 agree, confidence -0.020 (KL 0.012), 4.0 ms against 6.0 ms"
    assert "copies beside live answers" not in rows()


def test_the_status_shows_what_is_out_of_order_in_the_replica_that_was_asked() -> None:
    ill = GATEWAY | {
        "rungs_resting": {"gbdt": "5 failures in a row"},
        "stand_ins_resting": {"green": "late"},
        "tripped_locally": "blue: 7 of 20 weak",
        "shared_window_lag": {"last_ms": 21.4, "max_ms": 88.0, "reports": 7},
        "events_not_recorded": 1,
    }
    shown = rows(ill)
    assert shown["arms that rest here"] == "gbdt: 5 failures in a row, green: late"
    assert shown["held back by this replica"] == "blue: 7 of 20 weak"
    assert shown["shared window is behind by"] == "21 ms now, 88 ms at most in 7 reports"
    assert "events of this replica not in the ledger" in shown


def test_the_status_shows_live_texts_and_answers_beside_those_of_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    likeness = Likeness(Baseline(**BASELINE))
    for _ in range(100):
        likeness.record(words=9.0, oov_share=0.2, label="play_music")
    signals = {"warnings": {}, "callers_apart": {}, "beside_baseline": likeness.status()}
    monkeypatch.setitem(GATEWAY, "health", GATEWAY["health"] | {"signals": signals})
    shown = FakeGateway(monkeypatch).run("status")
    words = " ".join(shown.replace("│", " ").split())
    assert "unknown words 20.0% (healthy 5.0%); words a text 9.0 (healthy 7.0)" in words
    assert "play_music 100% (50%)" in words


def test_the_status_says_what_each_model_has_loaded_and_how_long_a_swap_took() -> None:
    plain = {"pid": 7, "release": "r2", "load_generation": 3, "refusal": None, "loading": False, "swap": None}
    slot = plain | {
        "swap": "r2 was read from host memory in 3.20 s",
        "in_host_memory": ["r1"],
        "not_in_host_memory": {"r2": "5 bytes of memory are free"},
    }
    empty = plain | {"release": None, "load_generation": None, "loading": True}
    shown = rows(rollout=ROLLOUT | {"models": {"green-1": plain, "blue-1": slot, "blue-2": empty}})
    assert shown["model green-1"] == "r2, load 3"
    assert shown["model blue-1"] == (
        "r2, load 3; r2 was read from host memory in 3.20 s; in host memory: r1; r2 is not: 5 bytes of memory are free"
    )
    assert shown["model blue-2"] == "nothing; reading"


def test_a_controller_that_is_away_is_said_and_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    output = FakeGateway(monkeypatch, controller_away=True).run("status")
    assert "the last plan holds" in " ".join(output.replace("│", " ").split())
    assert "stage" in output


def test_status_as_json_holds_the_gateway_and_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = json.loads(FakeGateway(monkeypatch).run("status", "--json"))
    assert shown["rollout"]["waits_for"] == "412 of 450 answers"
    assert shown["gateway"] == GATEWAY["gateway"]


@pytest.mark.parametrize("verb", ["abort", "hold", "resume", "advance"])
def test_an_order_names_release_reason_and_person(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway(monkeypatch)
    gateway.run("release", verb, "r/2", "--why", "looks wrong")
    request = gateway.asked[-1]
    assert request.url.raw_path == f"/v1/releases/r%2F2/{verb}".encode()
    assert request.headers["authorization"] == f"Bearer {'t' * 20}"
    body = json.loads(request.content)
    assert body.pop("by")
    assert body == {"why": "looks wrong"} | ({"from_stage": "canary"} if verb == "advance" else {})


def test_an_order_for_two_hours_is_sent_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway(monkeypatch)
    gateway.run("degrade", "--for", "2h", "--why", "02:15")
    assert json.loads(gateway.asked[-1].content)["for_s"] == 7200.0
