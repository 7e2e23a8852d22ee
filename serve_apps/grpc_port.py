"""Serve's gRPC proxy for the Open Inference Protocol: off unless a port is asked for."""

from __future__ import annotations

from ray.serve.config import gRPCOptions

from failsoft.errors import ConfigError
from failsoft.ingress import EVERYWHERE
from failsoft.serving.start_up import check_port

SERVICER = "failsoft.serving.web.protocol.grpc_calls:add_inference_service"
"""What a Serve config names under ``grpc_options: grpc_servicer_functions:``."""


def grpc_options(port: int | None) -> gRPCOptions:
    """What Serve is started with; None: without gRPC.

    Reflection stays off: it would answer whoever can reach the port, which Serve opens on all interfaces.

    Raises:
        ConfigError: the port is taken.
    """
    if port is None:
        return gRPCOptions()
    try:
        check_port(EVERYWHERE, port)
    except ConfigError as error:
        raise ConfigError(f"port {port} can't be opened for gRPC; choose another with --grpc-port") from error
    return gRPCOptions(port=port, grpc_servicer_functions=[SERVICER], enable_reflection=False)
