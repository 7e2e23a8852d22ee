"""Starts an app's rollout controller on one node, before the app: ``python -m … ADDRESS NODE_IP HOME RELEASE``.

Ray puts it where it likes, on the head as a rule, where a cut between it and a gateway would cut that node off from Ray
as well. The app finds it by its name. Should that node die, Ray makes it again on another.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from failsoft.health.metrics import RaySink
from failsoft.serving.rollout import controller
from failsoft.serving.rollout.control import Controller, ControllerConfig


def main(address: str, node_ip: str, home: str, release: str) -> None:
    ray.init(address=address, log_to_driver=False)
    (node_id,) = [node["NodeID"] for node in ray.nodes() if node["NodeManagerAddress"] == node_ip]
    config = ControllerConfig(home=home, release=release, profile="drill", app="failsoft")
    options: dict[str, Any] = {
        "name": controller.controller_name(home),
        "namespace": controller.NAMESPACE,
        "lifetime": "detached",
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": 4000,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=True),
    }
    actor = ray.remote(num_cpus=0)(Controller).options(**options)
    look = partial(controller._ready_fractions, config.app)
    handle: Any = actor.remote(asdict(config), look, RaySink, controller._end_process)
    print("leads in process", ray.get(handle.status.remote(), timeout=120)["pid"])


if __name__ == "__main__":
    main(*sys.argv[1:5])
