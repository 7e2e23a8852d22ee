"""What a dead controller of Ray Train leaves behind: places that nobody works at, and a cleaner that can't see them.

Ray takes a placement group away when its creator and its job are both gone. Ray Train has a cleaner of its own for the
case between, a detached actor; but it asks Ray's dashboard whether the controller lives, so without a dashboard it
waits for ever (Ray 2.60, seen): the next workers would find no room, and 200 MB and 1.5 % of a core would go with each
dead controller. So the places are removed here, and then the cleaner, which has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import grpc
import ray
from ray._private.grpc_utils import init_grpc_channel
from ray._private.state import state
from ray._raylet import PlacementGroupID
from ray.core.generated.gcs_pb2 import (  # type: ignore[attr-defined]  # generated
    ActorTableData,
    JobTableData,
    PlacementGroupTableData,
)
from ray.core.generated.gcs_service_pb2 import KillActorViaGcsRequest  # type: ignore[attr-defined]  # generated
from ray.core.generated.gcs_service_pb2_grpc import ActorInfoGcsServiceStub
from ray.util.placement_group import PlacementGroup, remove_placement_group

_head: Any = ActorInfoGcsServiceStub
_CLEANER = "PlacementGroupCleaner"
_RPC_S = 5.0


def sweep_leftovers() -> int:
    """Remove the placement groups of this job whose creator is dead, then cleaners that have nothing left to do.

    Returns:
        How many groups. Nothing without a Ray.
    """
    if not ray.is_initialized():
        return 0
    mine = ray.get_runtime_context().get_job_id()
    accessor = state._connect_and_get_accessor()
    groups = (PlacementGroupTableData.FromString(entry) for entry in accessor.get_placement_group_table())
    left = [group for group in groups if group.creator_job_id.hex() == mine and _is_left(group)]
    for group in left:
        remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))
    jobs = (JobTableData.FromString(entry) for entry in accessor.get_job_table())
    over = frozenset(job.job_id.hex() for job in jobs if job.is_dead)
    actors = [ActorTableData.FromString(entry) for entry in accessor.get_actor_table(None, None)]
    _end(idle_cleaners(actors, jobs=over | {mine}))
    return len(left)


def idle_cleaners(actors: Iterable[ActorTableData], *, jobs: frozenset[str]) -> list[bytes]:
    """Ids of cleaners whose controller is dead.

    Args:
        actors: all that Ray's head knows.
        jobs: whose cleaners may be ended: those of this job, whose places were just removed, and of jobs that are over,
            whose places Ray itself removes once their controller is dead, too. Cleaners of other jobs are left alone.
    """
    living = [actor for actor in actors if actor.state != ActorTableData.DEAD]
    at_work = {actor.address.worker_id for actor in living}
    return [
        actor.actor_id
        for actor in living
        if actor.class_name.rpartition(".")[2] == _CLEANER
        and actor.is_detached
        and actor.job_id.hex() in jobs
        and actor.owner_address.worker_id not in at_work
    ]


def _end(actors: list[bytes]) -> None:
    """``ray.kill`` needs a handle or a name, and these have neither; this is what it asks of Ray's head."""
    if not actors:
        return
    with init_grpc_channel(ray.get_runtime_context().gcs_address) as channel, suppress(grpc.RpcError):
        head = _head(channel)  # one that stays costs memory, but no attempt
        for actor in actors:
            head.KillActorViaGcs(
                KillActorViaGcsRequest(actor_id=actor, force_kill=True, no_restart=True), timeout=_RPC_S
            )


def _is_left(group: PlacementGroupTableData) -> bool:
    return group.creator_actor_dead and not group.is_detached and group.state != PlacementGroupTableData.REMOVED
