"""gRPC is off unless a port is asked for, and then it is the one service that Serve's proxy is told of."""

from __future__ import annotations

import socket

import grpc
import pytest

from failsoft.errors import ConfigError
from failsoft.serving.web.protocol.grpc_calls import GrpcMethods
from failsoft.serving.web.protocol.grpc_messages import METHODS, SERVICE
from serve_apps.grpc_port import grpc_options


def test_without_a_port_serve_starts_no_grpc() -> None:
    assert grpc_options(None).grpc_servicer_functions == []


def test_with_one_serve_finds_the_service_and_a_gateway_has_each_of_its_methods() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    options = grpc_options(port)
    (add,) = options.grpc_servicer_func_callable
    found: list[grpc.GenericRpcHandler] = []

    class Server:
        def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
            found.extend(handlers)

    add(GrpcMethods(), Server())
    assert (options.port, options.enable_reflection) == (port, False)
    assert set(found[0]._method_handlers) == {f"/{SERVICE}/{method}" for method in METHODS}


def test_a_port_that_is_taken_is_said_with_its_own_option() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="choose another with --grpc-port"):
            grpc_options(int(other.getsockname()[1]))
