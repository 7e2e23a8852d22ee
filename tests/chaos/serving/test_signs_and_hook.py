"""What the processes of a drilled app are told to do wrong, and that they do it."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.drills.serving.garbage import spoilt, spoilt_body
from failsoft.drills.serving.hook import Trouble, install
from failsoft.drills.serving.signs import Sign, Signs, Told


def trouble(signs: Signs) -> Trouble:
    """As it is after its next look."""
    made = Trouble(signs)
    made._told = signs.read()
    return made


def test_a_sign_is_read_while_it_is_up_and_struck_is_said_by_who_did_it(tmp_path: Path) -> None:
    signs = Signs(tmp_path)
    assert signs.read() == {}
    signs.raise_(Sign.SLOW, Told(amount=2.5, deployments=("model",)))
    assert signs.read() == {Sign.SLOW: Told(amount=2.5, deployments=("model",))}
    assert signs.struck(Sign.SLOW) == 0
    signs.say_struck(Sign.SLOW)
    assert signs.struck(Sign.SLOW) == 1
    signs.lower(Sign.SLOW)
    signs.lower(Sign.SLOW)
    assert signs.read() == {}
    signs.say_struck(Sign.GARBAGE)
    signs.forget(Sign.SLOW)
    assert (signs.struck(Sign.SLOW), signs.struck(Sign.GARBAGE)) == (0, 1)


def test_a_torn_sign_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / Sign.CLOCK).write_text('{"amount": ', "utf-8")
    assert Signs(tmp_path).read() == {}


def test_only_the_named_deployment_is_slow_and_only_while_the_sign_is_up(tmp_path: Path) -> None:
    signs = Signs(tmp_path)
    signs.raise_(Sign.SLOW, Told(amount=60.0, deployments=("model",)))
    slow = trouble(signs)

    async def both() -> bool:
        waiting = asyncio.create_task(slow.delay("model"))
        await slow.delay("gateway")
        await asyncio.sleep(0)
        held = not waiting.done()
        slow._told = {}
        await waiting
        return held

    assert asyncio.run(both())
    assert signs.struck(Sign.SLOW) == 1


def test_garbage_is_given_by_the_named_deployment_only(tmp_path: Path) -> None:
    signs = Signs(tmp_path)
    signs.raise_(Sign.GARBAGE, Told(deployments=("model",)))
    ill = trouble(signs)
    assert ill.returned({"label": "cat"}, "gateway") == {"label": "cat"}
    assert ill.returned({"label": "cat"}, "model") == {"label": "tac"}
    assert signs.struck(Sign.GARBAGE) == 1


def test_what_an_asgi_app_sends_keeps_its_length_and_loses_its_sense(tmp_path: Path) -> None:
    signs, sent = Signs(tmp_path), list[Any]()
    signs.raise_(Sign.GARBAGE, Told())

    async def send(message: Any) -> None:
        sent.append(message)

    async def answer() -> None:
        spoiling = trouble(signs).spoiling(send, "front")
        await spoiling({"type": "http.response.start", "status": 200})
        await spoiling({"type": "http.response.body", "body": b'{"label": "cat"}'})

    asyncio.run(answer())
    assert sent[0] == {"type": "http.response.start", "status": 200}
    assert len(sent[1]["body"]) == len(b'{"label": "cat"}')
    assert json.loads(sent[1]["body"]) == {"label": "tac"}


def test_the_hook_does_nothing_outside_a_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.delenv("FAILSOFT_DRILL_SIGNS", raising=False)
    before = time.time  # noqa: TID251 -- the clock that the hook would change
    install()
    assert time.time is before  # noqa: TID251 -- the same


class Span(NamedTuple):
    text: str
    start: int


@dataclass(frozen=True)
class ReplyLike:
    """As a model of failsoft's replies."""

    scores: Any
    release: str


def test_every_kind_of_reply_is_spoilt_in_its_form() -> None:
    chance = random.Random(0)
    reply = ReplyLike(scores={"logits": np.array([[9.0, -9.0]]), "spans": [Span("Berlin", 3)]}, release="r1")
    ill = spoilt(reply, chance)
    assert ill.release == "r1"
    assert ill.scores["logits"].shape == (1, 2)
    assert not np.allclose(ill.scores["logits"], reply.scores["logits"])
    assert ill.scores["spans"][0].text == "nilreB"
    assert spoilt(None, chance) is None
    assert isinstance(spoilt(True, chance), bool)


def test_tensors_are_spoilt_too() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(64.0).view(8, 8)
    ill = spoilt({"x": tensor}, random.Random(0))["x"]
    assert ill.shape == tensor.shape
    assert not torch.equal(ill, tensor)


@given(st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)))
def test_a_spoilt_body_never_changes_its_length(body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    assert len(spoilt_body(content, random.Random(1))) == len(content)
