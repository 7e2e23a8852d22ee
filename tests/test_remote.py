"""The operator's client says what went wrong and what to do next."""

from __future__ import annotations

import json

import httpx
import pytest

from failsoft import remote
from failsoft.errors import ConfigError, NotAuthorizedError, ServingError
from failsoft.remote import GatewayClient
from tests.dripping import dripping


def client(answer: httpx.Response | Exception, asked: list[httpx.Request] | None = None) -> GatewayClient:
    def handle(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return GatewayClient("http://127.0.0.1:8000/", token="t" * 20, transport=httpx.MockTransport(handle))


def test_a_forced_degrade_carries_token_time_and_reason() -> None:
    asked: list[httpx.Request] = []
    client(httpx.Response(200, json={}), asked).degrade(for_s=7200.0, why="02:15", by="anna")
    assert asked[0].headers["authorization"] == f"Bearer {'t' * 20}"
    assert json.loads(asked[0].content) == {"for_s": 7200.0, "why": "02:15", "by": "anna"}


class Wires(httpx.MockTransport):
    """Answers, and knows whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_its_connections_end_with_its_block_also_when_that_fails() -> None:
    wires = Wires(lambda _: httpx.Response(503, text="no"))
    with pytest.raises(ServingError), GatewayClient("http://127.0.0.1:8000", transport=wires) as gateway:
        gateway.status()
    assert wires.closed


def test_whatever_drips_an_answer_byte_by_byte_holds_no_command_for_longer_than_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wait for a byte is short: for half a minute, or for ever, there was no end to them."""
    monkeypatch.setattr(remote, "WITHIN_S", 0.3)
    with dripping() as there, GatewayClient(f"http://127.0.0.1:{there.port}") as gateway:
        with pytest.raises(ServingError, match=r"no whole answer of .* within 0\.3 s"):
            gateway.status()
        assert there.asked == 1


def test_nobody_there_names_the_address_and_the_next_command() -> None:
    with pytest.raises(ServingError, match=r"127\.0\.0\.1:8000.*failsoft serve"):
        client(httpx.ConnectError("refused")).status()


def test_a_refused_token_says_how_to_get_the_right_one() -> None:
    with pytest.raises(NotAuthorizedError, match="FAILSOFT_TOKEN"):
        client(httpx.Response(401, json={})).restore(why="done")


def guarded(asked: list[str | None]) -> httpx.MockTransport:
    """A gateway that is read with a token."""

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("authorization"))
        return httpx.Response(200 if asked[-1] == "Bearer right" else 401, json={"plan": {}})

    return httpx.MockTransport(handle)


def test_the_token_that_reads_is_sent_only_to_a_gateway_that_asks_for_it() -> None:
    asked: list[str | None] = []
    found: list[str] = []

    def reader() -> str:
        found.append("right")
        return "right"

    with GatewayClient("http://127.0.0.1:8000", reader=reader, transport=guarded(asked)) as gateway:
        gateway.rollout()
        gateway.rollout()
    assert (asked, found) == ([None, "Bearer right", "Bearer right"], ["right"])
    asked.clear()
    everybodys = httpx.MockTransport(lambda request: httpx.Response(200, json=dict(request.headers)))
    with GatewayClient("http://127.0.0.1:8000", reader=reader, transport=everybodys) as gateway:
        assert "authorization" not in gateway.rollout()
    assert found == ["right"]


@pytest.mark.parametrize(("token", "tries"), [(None, 1), ("wrong", 2)])
def test_who_has_no_token_that_reads_hears_so_after_one_try(token: str | None, tries: int) -> None:
    asked: list[str | None] = []
    gateway = GatewayClient("http://127.0.0.1:8000", reader=lambda: token, transport=guarded(asked))
    with gateway, pytest.raises(NotAuthorizedError, match="this token" if token else "without a token"):
        gateway.rollout()
    assert len(asked) == tries


def test_any_other_answer_is_an_error_with_its_status() -> None:
    with pytest.raises(ServingError, match="503"):
        client(httpx.Response(503, text="no")).status()


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b"7", b"\xff"])
def test_a_server_that_is_no_gateway_is_called_that(body: bytes) -> None:
    with pytest.raises(ServingError, match="no gateway"):
        client(httpx.Response(200, content=body)).status()


@pytest.mark.parametrize("url", ["http://[", "http://\x00", "127.0.0.1:8000", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_an_error_in_words(url: str) -> None:
    with pytest.raises((ConfigError, ServingError)):
        GatewayClient(url).status()


def test_another_servers_status_is_told_from_a_gateways() -> None:
    with pytest.raises(ServingError, match="something else"):
        client(httpx.Response(200, json={"status": "ok"})).status()
