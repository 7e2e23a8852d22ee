"""A network is cut between a gateway and the rollout controller; both still reach Ray's head. Callers notice nothing.

Each machine is a network namespace (:mod:`tests.drills.netns`): what is cut off hears nothing, not even a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.drills.epochs import Epochs
from tests.drills.netns import WHY_NOT
from tests.drills.network_callers import all_at, callers, controller_at, looks, serving_cluster, tell, wrong
from tests.drills.network_cluster import NetworkCluster
from tests.drills.serving_support import wait_for

pytestmark = [pytest.mark.drill, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[NetworkCluster]:
    with serving_cluster() as running:
        yield running


def test_a_gateway_cut_off_from_the_controller_stands_by_its_plan_and_agrees_once_it_hears_again(
    cluster: NetworkCluster,
) -> None:
    near = controller_at(cluster)
    (far,) = [machine for machine in cluster.workers if machine != near]
    fault = cluster.home.faults / "broken_weights"
    fault.parent.mkdir(parents=True, exist_ok=True)
    with callers(cluster, cluster.workers) as asked, Epochs(looks(cluster)) as epochs:
        cluster.net.part(near, far)
        before = cluster.status(far)["plan"]["epoch"]
        with cluster.operator(near) as operator:
            ordered = operator.degrade(for_s=None, why="ordered while one gateway is cut off")
        assert ordered["epoch"] > before
        wait_for(lambda: (cluster.status(far).get("controller_silent_s") or 0) > 5, within_s=60, what="silence")
        assert cluster.status(far)["plan"]["epoch"] == before, "it stands by the plan that it has"
        fault.touch()
        tripped_s = wait_for(
            lambda: bool(cluster.status(far).get("tripped_locally")), within_s=60, what="a trip of its own"
        )
        fault.unlink()
        print("why it holds the model back:", (cut_off := cluster.status(far))["tripped_locally"])
        assert (cut_off["plan"]["epoch"], cut_off["stage"]) == (before, "degraded")
        cluster.net.heal(near, far)
        healed_s = wait_for(lambda: all_at(cluster, cluster.workers, "degraded"), within_s=120, what="one plan for all")
        with cluster.operator(far) as operator:
            back = operator.restore(why="the network is whole again")
        assert back["epoch"] > ordered["epoch"]
        wait_for(lambda: all_at(cluster, cluster.workers, "serving"), within_s=120, what="the return to serving")
    print(f"own trip after {tripped_s:.2f} s, one plan {healed_s:.2f} s after the network was whole")
    tell(asked)
    assert epochs.went_back() == {}
    for name, one in asked.items():
        assert one.lost() == [], name
        assert wrong(one.replies) == [], name
