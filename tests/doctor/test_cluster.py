"""What listens where: nobody, a gateway, somebody else; Ray, and who may use it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from failsoft.doctor import cluster
from failsoft.doctor.finding import Mark
from failsoft.serving.plan.plan import Stage


@pytest.fixture
def somebody() -> Iterator[int]:
    """A port where somebody listens who says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        yield int(there.getsockname()[1])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as there:
        return int(there.getsockname()[1])


def test_a_free_port_is_good() -> None:
    assert cluster.gateway(host="127.0.0.1", port=free_port()).mark is Mark.GOOD


def test_a_port_of_somebody_else_is_bad(somebody: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failsoft.remote.httpx.Client.request", lambda *_a, **_k: (_ for _ in ()).throw(_refused()))
    found = cluster.gateway(host="127.0.0.1", port=somebody)
    assert (found.mark, found.mend) == (Mark.BAD, "another one with --port")


def _refused() -> Exception:
    return httpx.ReadTimeout("nothing was said")


@pytest.mark.parametrize(
    ("stage", "mark"), [(stage, Mark.GOOD if stage is Stage.SERVING else Mark.REMARK) for stage in Stage]
)
def test_a_gateway_says_in_which_stage_it_is(
    somebody: int, monkeypatch: pytest.MonkeyPatch, stage: str, mark: Mark
) -> None:
    monkeypatch.setattr("failsoft.remote.GatewayClient.status", lambda _self: {"stage": stage})
    assert cluster.gateway(host="127.0.0.1", port=somebody).mark is mark


def test_a_gateway_that_may_not_be_read_is_no_stranger_and_no_fault(
    somebody: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("failsoft.remote.httpx.Client.request", lambda *_a, **_k: httpx.Response(401))
    found = cluster.gateway(host="127.0.0.1", port=somebody)
    assert found.mark is Mark.UNKNOWN
    assert "--home" in found.mend


def test_without_an_address_ray_is_private_and_good() -> None:
    (found,) = cluster.ray({})
    assert found.mark is Mark.GOOD


def test_a_ray_that_is_not_there_is_bad_with_the_command_that_starts_it() -> None:
    found = cluster.ray({"RAY_ADDRESS": f"127.0.0.1:{free_port()}"})[0]
    assert found.mark is Mark.BAD
    assert "ray start --head" in found.mend


def test_somebody_who_is_not_ray_is_bad(somebody: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_RAY_ANSWERS_S", 0.2)
    found = cluster.ray({"RAY_ADDRESS": f"127.0.0.1:{somebody}"})[0]
    assert found.mark is Mark.BAD
    assert "did not answer as Ray" in found.said


@pytest.mark.parametrize(
    ("address", "settings", "mark"),
    [
        ("127.0.0.1:1", {}, Mark.REMARK),
        ("10.0.0.1:1", {}, Mark.BAD),
        ("10.0.0.1:1", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "secret" * 6}, Mark.GOOD),
        ("10.0.0.1:1", {"RAY_AUTH_MODE": "token"}, Mark.BAD),
    ],
)
def test_a_ray_without_a_token_is_bad_where_others_reach_it(
    monkeypatch: pytest.MonkeyPatch, address: str, settings: dict[str, str], mark: Mark
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setattr("socket.create_connection", lambda *_a, **_k: (_ for _ in ()).throw(OSError("no")))
    found = cluster.ray({"RAY_ADDRESS": address, **settings})[1]
    assert found.mark is mark
    assert "secret" not in str(found)


def test_an_address_whose_port_cannot_be_told_is_unknown() -> None:
    assert cluster.ray({"RAY_ADDRESS": "auto"})[0].mark is Mark.UNKNOWN


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:6²", "a..b:6379", f"{'x' * 70}.example:6379"])
def test_an_address_that_no_machine_can_have_is_said_and_ends_nothing(address: str) -> None:
    found = cluster.ray({"RAY_ADDRESS": address})
    assert found[0].mark in {Mark.BAD, Mark.UNKNOWN}
