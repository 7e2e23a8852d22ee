"""What the drills on a :mod:`tests.drills.network_cluster` share: callers at each entrance, and what they saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from tests.drills.flats_app import FLATS, right
from tests.drills.netns import Machine, machine_of
from tests.drills.network_cluster import NetworkCluster, network_cluster
from tests.drills.serving_support import Reply, Traffic, wait_for

RATE_HZ = 10.0


@contextmanager
def serving_cluster() -> Iterator[NetworkCluster]:
    """A head and two machines, whose gateways both serve."""
    with network_cluster() as running:
        wait_for(lambda: all_at(running, running.workers, "serving"), within_s=120, what="both gateways serving")
        yield running


def all_at(cluster: NetworkCluster, machines: list[Machine], stage: str) -> bool:
    """Whether the gateway of each machine has the same plan, in this stage, and no trip of its own."""
    said = [cluster.status(machine) for machine in machines]
    if not all(said) or len({one["gateway"] for one in said}) != len(machines):
        return False
    return {(one["stage"], one["plan"]["epoch"], one["tripped_locally"], one["starting"] == []) for one in said} == {
        (stage, said[0]["plan"]["epoch"], None, True)
    }


@contextmanager
def callers(cluster: NetworkCluster, machines: list[Machine]) -> Iterator[dict[str, Traffic]]:
    """Steady callers at the entrance of each machine."""
    with ExitStack() as stack:
        entrances = {
            machine.name: stack.enter_context(
                Traffic(cluster.url(machine), FLATS, rate_hz=RATE_HZ, field_name="instance")
            )
            for machine in machines
        }
        wait_for(lambda: all(len(one.replies) > 20 for one in entrances.values()), within_s=60, what="warm callers")
        yield entrances


def wrong(replies: list[Reply]) -> list[Reply]:
    """Answers that neither the model nor a rung gives to this flat."""
    return [reply for reply in replies if reply.status == 200 and not right(reply.body, reply.text)]


def controller_at(cluster: NetworkCluster) -> Machine:
    """Where the rollout controller runs."""
    with cluster.operator(cluster.workers[0]) as operator:
        return machine_of(int(operator.rollout()["pid"]), [cluster.head, *cluster.workers])


def looks(cluster: NetworkCluster) -> list[partial[dict[str, object]]]:
    return [partial(cluster.status, machine) for machine in cluster.workers]


def many_since(asked: dict[str, Traffic], moment_s: float) -> bool:
    return all(len(one.since(moment_s)) > 10 * RATE_HZ for one in asked.values())


def tell(asked: dict[str, Traffic]) -> None:
    """What callers saw, in a line for each entrance."""
    for name, one in asked.items():
        tally = dict(Counter(str(reply.body["source"]) for reply in one.replies if reply.status == 200))
        slowest_s = max(reply.done_s - reply.sent_s for reply in one.replies)
        print(f"at {name}: {tally}, lost {len(one.lost())}, slowest {slowest_s:.2f} s", *one.lost()[:3], sep="\n  ")
