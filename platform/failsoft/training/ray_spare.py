"""One spare process on Ray, from the order to standing by. Loads little: every process of a run begins with this.

Ray keeps started but idle processes and makes actors in them, if they were started with the very same runtime
environment for the same job. ``PrestartWorkers`` has a node's raylet start one; Ray's hook for a worker's start warms
it up.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import ray
from ray._private.grpc_utils import init_grpc_channel
from ray._private.runtime_env.setup_hook import load_and_execute_setup_hook
from ray.core.generated import common_pb2, node_manager_pb2
from ray.core.generated.node_manager_pb2_grpc import NodeManagerServiceStub

from failsoft.health.clock import SystemClock
from failsoft.training.survival.warmth import (
    VARIABLE,
    Order,
    Script,
    SparePolicy,
    Tickets,
    ordered,
    surroundings,
    warm_up,
)

NEXT_HOOK = "FAILSOFT_NEXT_SETUP_HOOK"
"""A hook that the user gave the job, in the run's processes; ours calls it first, for Ray knows but one."""
HOOK = f"{__name__}.at_start"
RPC_S = 5.0
_messages: Any = node_manager_pb2  # made when loaded, so no checker sees what is in it
_kinds: Any = common_pb2


def at_start() -> None:
    """Called by Ray in each new process of the run, before it is given any work; only an ordered spare warms up."""
    theirs = os.environ.get(NEXT_HOOK)
    if theirs is not None and (error := load_and_execute_setup_hook(theirs)) is not None:
        raise RuntimeError(error)  # as Ray itself does: the process ends
    try:
        if Tickets(_tickets_folder()).taken():
            warm_up(Script.read(os.environ[VARIABLE]), SystemClock())
    except Exception:  # noqa: BLE001 -- Ray ends a process whose hook raises, and one that is not warm works as well
        traceback.print_exc()


def order_spares(policy: SparePolicy, total: int, count: int) -> Order:
    """Have the raylet of this node start processes like this one; returns what was ordered.

    Args:
        policy: what they may take.
        total: spares that all who order on this node want together.
        count: of these, the ones that this process wants.
    """
    order = ordered(policy, surroundings(), total=total, count=count)
    if order.count == 0:
        return order
    Tickets(_tickets_folder()).lay_out(order.count)
    here = ray.get_runtime_context()
    request = _messages.PrestartWorkersRequest(
        language=_kinds.Language.PYTHON,
        job_id=bytes.fromhex(here.get_job_id()),
        keep_alive_duration_secs=int(policy.keep_s),
        num_workers=order.count,
    )
    request.runtime_env_info.serialized_runtime_env = here.get_runtime_env_string()
    (node,) = (node for node in ray.nodes() if node["NodeID"] == here.get_node_id())
    channel = init_grpc_channel(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}")
    with channel:
        NodeManagerServiceStub(channel).PrestartWorkers(request, timeout=RPC_S)
    return order


def _tickets_folder() -> Path:
    """Of this node, below the folder that goes with Ray's session."""
    node: Any = ray._private.worker.global_worker.node
    return Path(node.get_session_dir_path()) / "failsoft-spares" / ray.get_runtime_context().get_node_id()
