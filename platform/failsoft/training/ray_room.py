"""What the nodes of the Ray cluster that this process is connected to have left, asked of Ray's head and of each node.

Ray's own view is one call (0.4 ms) and half a second old; but it lists a node whose machine is gone as idle until it
has missed its heartbeats (13.5 s at Ray's defaults, measured), and would place workers there. So each node is knocked
at.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
import ray.exceptions
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled; its names have no stubs
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.core.generated.autoscaler_pb2 import NodeStatus  # type: ignore[attr-defined]  # generated

from failsoft.training.survival.room import NodeRoom, NodeState

_KNOCK_S = 1.0
_MAX_KNOCKS = 32
"""At once; a thousand nodes that all answer take a fraction of a second."""


def rooms_here() -> tuple[NodeRoom, ...] | None:
    """All nodes that Ray lists as living; None when Ray does not say."""
    try:
        client = GcsClient(address=ray.get_runtime_context().gcs_address)
        view = get_cluster_resource_state(client)
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        doors = {node["NodeID"]: node for node in nodes if node["Alive"]}
    except (ray.exceptions.RayError, RuntimeError, ConnectionError, TimeoutError):  # a head that is away: not known
        return None
    states = [state for state in view.node_states if state.status != NodeStatus.DEAD]
    listed = [(state, doors[state.node_id.hex()]) for state in states if state.node_id.hex() in doors]
    with ThreadPoolExecutor(max_workers=_MAX_KNOCKS) as knocks:
        answers = list(knocks.map(_answers, (door for _, door in listed)))
    rooms = (_room(state, door, alive=alive) for (state, door), alive in zip(listed, answers, strict=True))
    return tuple(sorted(rooms, key=lambda room: room.name))


def _room(state: Any, door: Mapping[str, Any], *, alive: bool) -> NodeRoom:
    how = NodeState.DRAINING if state.status == NodeStatus.DRAINING else NodeState.READY
    return NodeRoom(
        node=door["NodeID"],
        name=f"{door['NodeManagerHostname']}/{door['NodeID'][:8]}",
        free=dict(state.available_resources),
        total=dict(state.total_resources),
        state=how if alive else NodeState.SILENT,
    )


def _answers(door: Mapping[str, Any]) -> bool:
    """Whether the node's own daemon takes a call; a machine that is gone takes none, a dead daemon refuses at once."""
    try:
        with socket.create_connection((door["NodeManagerAddress"], int(door["NodeManagerPort"])), timeout=_KNOCK_S):
            return True
    except OSError:
        return False
