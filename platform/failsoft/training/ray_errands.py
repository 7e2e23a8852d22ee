"""Small pieces of work sent to nodes of a Ray cluster, each waited for only so long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from failsoft.health.clock import Clock
from failsoft.training.ray_settings import first_lines

Key = TypeVar("Key")
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Errand(Generic[Found]):
    """Work for one node."""

    node: str
    """Ray's id of it. No other node takes it over."""
    work: Callable[[], Found]
    """Picklable."""
    patience_s: float
    gpus: int = 0
    """Of the node's; the process that used them ends with the work. CPUs are not asked for: nothing waits for one."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why an errand brought nothing back."""

    why: str
    in_time: bool
    """It failed; else it was waited for in vain, and called off."""


def send(errands: Mapping[Key, Errand[Found]], clock: Clock) -> dict[Key, Found | Trouble]:
    """Send all at once, wait for each as long as its patience lasts; one outcome for each."""
    began_s = clock.monotonic_s()
    waiting = {_begun(errand): key for key, errand in errands.items()}
    found: dict[Key, Found | Trouble] = {}
    while waiting:
        passed_s = clock.monotonic_s() - began_s
        left_s = min(errands[key].patience_s for key in waiting.values()) - passed_s
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=max(0.0, left_s))
        found |= {waiting.pop(reference): _brought(reference) for reference in ready}
        passed_s = clock.monotonic_s() - began_s
        for reference, key in list(waiting.items()):
            if errands[key].patience_s <= passed_s:
                ray.cancel(reference, force=True)
                found[waiting.pop(reference)] = Trouble(why=f"no answer in {passed_s:.1f} s", in_time=False)
    return found


def _begun(errand: Errand[Any]) -> Any:
    there = NodeAffinitySchedulingStrategy(errand.node, soft=False)
    plain: Any = ray.remote(_do)
    task = plain.options(num_cpus=0, num_gpus=errand.gpus, max_retries=0, scheduling_strategy=there)
    return task.remote(errand.work)


def _do(work: Callable[[], Found]) -> Found:
    return work()


def _brought(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:  # also what the work itself raised
        return Trouble(why=first_lines(error), in_time=True)
