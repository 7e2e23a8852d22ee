"""What a dead controller of Ray Train leaves behind in a job that lives on: places that nobody works at.

Ray takes a placement group away when its creator and its job are both gone. Ray Train has a cleaner of its own for the
case between, but it asks Ray's dashboard whether the controller lives, so without a dashboard it waits for ever (Ray
2.60, seen), and the next workers would find no room.
"""

from __future__ import annotations

import ray
from ray._private.state import state
from ray._raylet import PlacementGroupID
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]  # generated
from ray.util.placement_group import PlacementGroup, remove_placement_group


def sweep_leftovers() -> int:
    """Remove the placement groups of this job whose creator is dead; returns how many. Nothing without a Ray."""
    if not ray.is_initialized():
        return 0
    mine = ray.get_runtime_context().get_job_id()
    table = state._connect_and_get_accessor().get_placement_group_table()
    groups = (PlacementGroupTableData.FromString(entry) for entry in table)
    left = [group for group in groups if group.creator_job_id.hex() == mine and _is_left(group)]
    for group in left:
        remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))
    return len(left)


def _is_left(group: PlacementGroupTableData) -> bool:
    return group.creator_actor_dead and not group.is_detached and group.state != PlacementGroupTableData.REMOVED
