"""Requests of others: what they send, and what counts as wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from failsoft.drills.serving.crowd import Crowd
from failsoft.drills.serving.crowd_hand import CrowdHand
from failsoft.drills.serving.malformed import malformed_bodies
from failsoft.health.clock import ManualClock


class TickingClock(ManualClock):
    """Each look takes a second."""

    def monotonic_s(self) -> float:
        self.advance(1.0)
        return super().monotonic_s()


def asked(**more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"url": "http://app/", "method": "POST", "headers": {}, "clients": 2, "seconds": 20.0}
    given |= {"pause_s": 0.0, "patience_s": 1.0, "may_refuse": False}
    return given | {"bodies": [base64.b64encode(b"{}").decode()]} | more


def counts(status: int, **more: Any) -> dict[str, Any]:
    transport = httpx.MockTransport(lambda _request: httpx.Response(status, text="words"))
    return asyncio.run(Crowd(asked(**more), TickingClock(), transport).run())


@pytest.mark.parametrize(
    ("status", "may_refuse", "wrong"),
    [
        (200, False, False),
        (422, False, False),
        (500, False, True),
        (503, False, True),
        (429, True, False),
        (503, True, False),
    ],
)
def test_an_error_of_the_server_is_wrong_and_a_refusal_is_only_where_there_is_too_much(
    status: int, may_refuse: bool, wrong: bool
) -> None:
    said = counts(status, may_refuse=may_refuse)
    assert said["asked"] > 2
    assert (said["wrong"] == said["asked"]) is wrong
    assert (said["wrong"] == 0) is not wrong
    assert said["served"] == (said["asked"] if status == 200 else 0)
    assert said["ended_s"] > said["began_s"] > 0.0


def test_silence_is_wrong() -> None:
    def silent(_request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("late")

    said = asyncio.run(Crowd(asked(), TickingClock(), httpx.MockTransport(silent)).run())
    assert said["wrong"] == said["asked"] > 0
    assert "no answer: ReadTimeout" in said["words"][0]


def test_malformed_bodies_are_the_same_for_the_same_seed_and_bend_what_the_app_takes() -> None:
    payload = {"text": "play some jazz", "deep": [{"n": 1}]}
    bodies = malformed_bodies([payload], random.Random(3))
    assert bodies == malformed_bodies([payload], random.Random(3))
    assert json.dumps(payload).encode() not in bodies
    assert b"" in bodies
    assert any(b"\xf0\x9f\x98\x80" in body for body in bodies), "emoji glued to words"


def test_a_crowd_is_a_process_of_its_own_and_reports_what_it_saw(tmp_path: Path) -> None:
    hand = CrowdHand(
        asked(url="http://127.0.0.1:9/", seconds=0.2, pause_s=0.05), [b"{}"], folder=tmp_path, role="malformed requests"
    )
    assert hand.reached() is False
    assert "2 clients" in hand.strike()
    hand.mend()
    assert hand.reached() is True
    assert hand.wave().wrong == hand.wave().asked > 0, "nobody listens on that port"
    assert 0.0 < hand.wave().lasted_s < 60.0
