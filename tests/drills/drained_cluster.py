"""The troubled toy run on a Ray of a head and two nodes, one of which Ray drains: ``python -m … FOLDER``.

A process of its own, since it starts a cluster of its own. Prints what each attempt ended with.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray

from tests.drills.private_cluster import PrivateCluster
from tests.drills.troubled_job import TroubledJob
from tests.drills.troubled_run import attempt, told

DEADLINE_S = 60.0


def drain_in_the_step(job: TroubledJob, address: str, node: str) -> None:
    while not (job.folder / "in-step").exists():
        time.sleep(0.05)
    until_ms = int((time.time() + DEADLINE_S) * 1000)
    raylet: Any = importlib.import_module("ray._raylet")  # the same as ray's hidden `ray drain-node`
    reasons: Any = importlib.import_module("ray.core.generated.autoscaler_pb2").DrainNodeReason
    preemption = reasons.Value("DRAIN_NODE_REASON_PREEMPTION")
    raylet.GcsClient(address=address).drain_node(node, preemption, "the spot market", until_ms)
    while not told(job.folder, "notice_heard"):
        time.sleep(0.05)
    (job.folder / "go").touch()


def main(folder: Path) -> None:
    cluster = PrivateCluster()
    try:
        node, _ = (cluster.add_node() for _ in range(2))
        ray.init(address=cluster.address, log_to_driver=False)
        job = TroubledJob(folder=folder)
        draining = threading.Thread(target=drain_in_the_step, args=(job, cluster.address, node.node_id), daemon=True)
        draining.start()
        ends = [attempt(job)]
        cluster.add_node()
        ends.append(attempt(job))
        print(json.dumps({"node": node.node_id, "ends": ends, "deadline_s": DEADLINE_S}))
    finally:
        ray.shutdown()
        cluster.shut_down()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
