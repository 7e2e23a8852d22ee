"""Puts the protocol on a gateway's app: its routes over HTTP, and the calls that Serve hands on from gRPC."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from failsoft.serving.config import GatewayConfig
from failsoft.serving.task import Task
from failsoft.serving.web.protocol.grpc_calls import GrpcCalls
from failsoft.serving.web.protocol.http_routes import add_protocol
from failsoft.serving.web.protocol.inference import Inference, Standing
from failsoft.serving.web.turnstile import Room


def open_protocol(app: FastAPI, config: GatewayConfig, task: Task, standing: Callable[[], Standing]) -> GrpcCalls:
    """Add the routes to an app of ``build_routes``; the calls share its room for items."""
    room: Room = app.state.room
    inference = Inference(model=config.model_name, task=task, answer=room.predict, standing=standing)
    add_protocol(app, inference)
    return GrpcCalls(inference, max_bytes=config.max_body_bytes, peers=config.grpc_from)
