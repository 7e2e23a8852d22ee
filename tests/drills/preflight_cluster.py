"""Runs and preflights on a Ray of a head and four nodes, some of them not fit: ``python -m … FOLDER toy|looks|job``.

A process of its own, since it starts a cluster of its own. Prints what came of it as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from failsoft.artifacts.home import Home
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.ray_preflight import preflight
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.survival.preflight import PreflightPolicy
from failsoft.training.survival.preflight_faults import NodeFault, NodeFaultKind
from tests.drills.toy_job import ToyJob, build_toy
from train_jobs.config import JobConfig, Preset
from train_jobs.job import run_job

STORE: dict[str, Any] = {"object_store_memory": 80 * 1024 * 1024}
POLICY = PreflightPolicy(meeting_s=30.0)


def build_noting_its_node(job: ToyJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    (job.folder / f"node-{ranks.rank}").write_text(ray.get_runtime_context().get_node_id(), "utf-8")
    return build_toy(job, ranks, deliver)


def run_without_the_bad(settings: RaySettings, nodes: list[str]) -> dict[str, Any]:
    """Two of four nodes are bad, in two ways; the run needs two."""
    faults = [
        NodeFault(kind=NodeFaultKind.WRONG_PRODUCT, node=nodes[0], mended=settings.folder / "mended"),
        NodeFault(kind=NodeFaultKind.READ_ONLY_DISK, node=nodes[1]),
    ]
    cleared = preflight(settings, policy=POLICY, faults=faults)
    end = run_attempt(
        build_noting_its_node, ToyJob(folder=settings.folder), replace(settings, excluded=cleared.excluded)
    )
    used = [(settings.folder / f"node-{rank}").read_text("utf-8") for rank in range(settings.workers)]
    (settings.folder / "mended").touch()
    excluded_then = [sorted(preflight(settings, policy=POLICY, faults=faults).excluded) for _ in range(2)]
    return {"bad": nodes[:2], "excluded": sorted(cleared.excluded), "used": used, "end": end, "later": excluded_then}


def looked_at(settings: RaySettings, nodes: list[str]) -> dict[str, Any]:
    """What becomes of each kind of fault of the last node, and how long the preflight took; a new run's each time."""
    kinds = (None, NodeFaultKind.WRONG_SUM, NodeFaultKind.AWAY_FROM_MEETING, NodeFaultKind.NO_ANSWER)
    found: dict[str, Any] = {"node": nodes[-1]}
    quick = replace(POLICY, answer_s=20.0, meeting_s=15.0)  # of processes that the first look has started
    for kind in kinds:
        folder = settings.folder / f"as-{kind}"
        faults = [] if kind is None else [NodeFault(kind=kind, node=nodes[-1])]
        cleared = preflight(replace(settings, folder=folder), policy=quick if faults else POLICY, faults=faults)
        found[str(kind)] = {
            "excluded": sorted(cleared.excluded),
            "why": "".join(cleared.why.values()),
            "took_s": cleared.took_s,
        }
    return found


def turns_bad(settings: RaySettings, nodes: list[str]) -> dict[str, Any]:
    """A job whose worker dies twice; from the first death on, a node computes wrongly."""
    home, run = Home.find(settings.folder), "job"
    deaths = tuple(Fault(kind=FaultKind.KILL_WORKER, position=position) for position in (4, 8))
    bad = NodeFault(kind=NodeFaultKind.WRONG_PRODUCT, node=nodes[0], since=home.run(run) / "struck" / deaths[0].mark)
    config = JobConfig(
        home=home.root,
        run=run,
        preset=Preset.DEMO,
        workers=2,
        max_batches=20,
        faults=FaultPlan(faults=deaths),
        node_faults=(bad,),
        backoff=BackoffPolicy(first_s=0.0, cap_s=0.0),
        publish=False,
    )
    run_job(config)
    return {"bad": nodes[0]}


WHAT = {"toy": run_without_the_bad, "looks": looked_at, "job": turns_bad}


def main(folder: Path, what: str) -> None:
    head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head | STORE)
    try:
        nodes = [cluster.add_node(num_cpus=1, **STORE).node_id for _ in range(4)]
        ray.init(address=cluster.address, log_to_driver=False)
        settings = RaySettings(folder=folder, ledger=folder / "ledger.jsonl", workers=2)
        print(json.dumps(WHAT[what](settings, nodes)))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
