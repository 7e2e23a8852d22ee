"""Who answers at an address is said before anything is sent there, and each way it can fail has its own words."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import ray

from failsoft.cli.clusters import cluster_at, dashboard_url, settle, token_of
from failsoft.errors import ConfigError, NoRayError

AT = "http://127.0.0.1:8265"
HEAD = {"version": "4", "ray_version": ray.__version__}


def answering(status: int, body: object) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _asked: httpx.Response(status, json=body))


def raising(error: Callable[[str], httpx.TransportError]) -> httpx.MockTransport:
    def refuse(_asked: httpx.Request) -> httpx.Response:
        raise error("no")

    return httpx.MockTransport(refuse)


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (AT, AT),
        (f"{AT}/", AT),
        ("head", "http://head:8265"),
        ("10.0.0.7:9000", "http://10.0.0.7:9000"),
        ("https://ray.example/ray/", "https://ray.example/ray"),
        ("[::1]:8265", "http://[::1]:8265"),
    ],
)
def test_a_dashboard_is_found_in_what_people_type(given: str, meant: str) -> None:
    assert dashboard_url(given) == meant


@pytest.mark.parametrize(
    "given", ["", "ray://head:10001", "auto://x", "http://", "head:port", "http://me:pw@head:8265"]
)
def test_what_is_no_dashboard_is_said_with_an_example(given: str) -> None:
    with pytest.raises(ConfigError, match=r"give the dashboard's address, as http://127\.0\.0\.1:8265"):
        dashboard_url(given)


@pytest.mark.parametrize(
    ("transport", "kind", "words"),
    [
        (raising(httpx.ConnectError), NoRayError, "nobody listens there.*must be reachable from here"),
        (raising(httpx.ReadTimeout), NoRayError, "no answer within 10 s"),
        (raising(httpx.RemoteProtocolError), NoRayError, "6379 is Ray's own port"),
        (answering(401, {}), ConfigError, "asks for a token, and there is none here; export RAY_AUTH_MODE=token"),
        (answering(404, {}), NoRayError, r"answers \(404\), and is no dashboard of Ray"),
        (answering(200, ["hello"]), NoRayError, "no dashboard of Ray"),
        (answering(200, {"ray_version": "2.9.3"}), ConfigError, "runs Ray 2.9.3, and here is Ray.*pip install"),
    ],
)
def test_each_way_not_to_reach_a_cluster_is_told_apart(
    transport: httpx.BaseTransport, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        cluster_at(AT, transport=transport)


def test_a_token_that_is_not_the_clusters_is_told_apart_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "old")
    with pytest.raises(ConfigError, match="does not accept the token of this shell"):
        cluster_at(AT, transport=answering(403, {}))


def test_a_patch_release_of_the_same_ray_is_taken() -> None:
    near = ".".join([*ray.__version__.split(".")[:2], "99"])
    assert cluster_at(AT, transport=answering(200, HEAD | {"ray_version": near})).ray == near


def test_rays_clients_then_go_there_whatever_the_shell_says_and_send_the_token_that_lies_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RAY_ADDRESS wins over the address that a client of Ray's is given, and a token's file alone is not sent."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret\n")
    monkeypatch.setenv("RAY_ADDRESS", "10.9.9.9:6379")
    asked: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=HEAD)

    found = cluster_at(AT, transport=httpx.MockTransport(note))
    assert (str(asked[0].url), asked[0].headers["Authorization"]) == (f"{AT}/api/version", "Bearer secret")
    assert (os.environ.get("RAY_ADDRESS"), os.environ["RAY_AUTH_MODE"]) == (None, "token")
    assert found.remarks == []


def test_a_token_over_plain_http_to_elsewhere_is_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    (remark,) = cluster_at("http://10.0.0.7:8265", transport=answering(200, HEAD)).remarks
    assert "others on the way can read it" in remark
    assert cluster_at("https://head:8265", transport=answering(200, HEAD)).remarks == []


def test_a_shell_that_says_no_token_sends_none(tmp_path: Path) -> None:
    environ = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "secret"}
    assert token_of(environ) is None
    settle(environ)
    assert environ["RAY_AUTH_MODE"] == "disabled"
    with pytest.raises(ConfigError, match="RAY_AUTH_TOKEN_PATH names"):
        token_of({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "absent")})


def test_rays_own_port_given_by_mistake_is_recognised_over_a_real_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1024)
                peer.sendall(b"\x00\x00\x18\x04\x00\x00\x00\x00\x00")  # the first frame of HTTP/2, as gRPC sends it

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(NoRayError, match="speaks no HTTP"):
            cluster_at(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
