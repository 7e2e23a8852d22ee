"""An app on a head and two machines of a real network loses one part after the other; callers go on being answered.

Each machine is a network namespace (:mod:`tests.drills.netns`): what is lost is silent or gone with all of its
processes. Both gateways lie on machines of their own, with an entrance on each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from failsoft.errors import FailsoftError
from tests.drills.epochs import Epochs
from tests.drills.netns import WHY_NOT, Machine
from tests.drills.network_callers import (
    all_at,
    callers,
    controller_at,
    looks,
    many_since,
    serving_cluster,
    tell,
    wrong,
)
from tests.drills.network_cluster import NetworkCluster
from tests.drills.serving_support import wait_for

pytestmark = [pytest.mark.drill, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[NetworkCluster]:
    with serving_cluster() as running:
        yield running


def test_a_machine_with_gateway_and_controller_dies_and_the_next_one_takes_its_place(cluster: NetworkCluster) -> None:
    dead = controller_at(cluster)
    (left,) = [machine for machine in cluster.workers if machine != dead]
    before = cluster.status(left)["plan"]["epoch"]
    with callers(cluster, [dead, left]) as asked, Epochs([partial(cluster.status, left)]) as epochs:
        killed = dead.lose_power()
        died_s = time.monotonic()
        cluster.workers.remove(dead)
        wait_for(partial(controller_answers, cluster, left), within_s=120, what="the controller, on another machine")
        led_s = time.monotonic() - died_s
        new = cluster.add_worker("c")
        epochs.watch(partial(cluster.status, new))
        joined_s = time.monotonic()
        wait_for(lambda: all_at(cluster, [left, new], "serving"), within_s=120, what="two gateways again")
        full_s = time.monotonic() - joined_s
    print(
        f"{killed} processes killed; controller again {led_s:.1f} s later; full {full_s:.1f} s after a machine joined"
    )
    tell(asked)
    assert cluster.status(left)["plan"]["epoch"] >= before
    assert epochs.went_back() == {}
    after = [reply for reply in asked[dead.name].replies if reply.sent_s > died_s]
    assert {reply.status for reply in after} == {0}, "a dead machine's entrance refuses, and lies to nobody"
    assert asked[left.name].lost() == []
    assert wrong(asked[left.name].replies) == []


def test_a_head_that_dies_costs_no_caller_anything_and_returns_with_app_and_plan(cluster: NetworkCluster) -> None:
    before = cluster.status(cluster.workers[0])
    pids = {machine.name: set(machine.processes()) for machine in cluster.workers}
    with callers(cluster, cluster.workers) as asked, Epochs(looks(cluster)) as epochs:
        killed = cluster.head.lose_power()
        began_s = time.monotonic()
        assert cluster.app_state() == ""
        wait_for(partial(many_since, asked, began_s), within_s=60, what="answers without a head")
        cluster.start_head()
        wait_for(lambda: cluster.app_state() == "RUNNING", within_s=120, what="the app, which nobody deployed again")
        back_s = time.monotonic() - began_s
        with cluster.operator(cluster.workers[0]) as operator:
            ordered = operator.degrade(for_s=1.0, why="is somebody there?")
        wait_for(lambda: all_at(cluster, cluster.workers, "serving"), within_s=120, what="the return to serving")
    print(f"{killed} processes of the head killed; app and controller back after {back_s:.1f} s")
    tell(asked)
    assert ordered["epoch"] > before["plan"]["epoch"]
    assert ordered["releases"] == before["plan"]["releases"]
    assert epochs.went_back() == {}
    assert all(pids[machine.name] & set(machine.processes()) for machine in cluster.workers)
    for name, one in asked.items():
        assert one.lost() == [], name
        assert wrong(one.replies) == [], name


def controller_answers(cluster: NetworkCluster, machine: Machine) -> bool:
    silent_s = cluster.status(machine).get("controller_silent_s")
    return silent_s is not None and silent_s < 1.0 and controller_lives(cluster, machine)


def controller_lives(cluster: NetworkCluster, machine: Machine) -> bool:
    try:
        with cluster.operator(machine) as operator:
            operator.rollout()
    except FailsoftError:
        return False
    return True
