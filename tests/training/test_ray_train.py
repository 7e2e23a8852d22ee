from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError, WorkerHealthCheckTimeoutError

from failsoft.training.ray_eyes import RoomLostError
from failsoft.training.ray_train import is_bug, kind_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("label"), "worker_failed"),
        (RuntimeError("shapes do not fit"), "worker_failed"),
        (KeyError("igloo"), "worker_failed"),
        (ValueError("rows are not sorted by peer"), "worker_failed"),
        (RuntimeError("[../gloo/transport/tcp/pair.cc:525] Connection closed by peer"), "peer_lost"),
        (dist.DistNetworkError("timed out"), "peer_lost"),
        (OSError(116, "Stale file handle"), "surroundings_failed"),
        (TimeoutError("no answer"), "surroundings_failed"),
        (MemoryError(), "surroundings_failed"),
        (torch.OutOfMemoryError("CUDA out of memory"), "surroundings_failed"),
    ],
)
def test_only_an_error_of_the_code_itself_can_be_taken_for_a_bug(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def of_a_task(cause: Exception) -> BaseException:
    """As Ray hands it on, which is an error of the cause's type as well."""
    handed_on: BaseException = RayTaskError("work", "Traceback", cause).as_instanceof_cause()
    return handed_on


@pytest.mark.parametrize(
    ("failure", "bug"),
    [
        (TypeError("after_exception() takes 2 positional arguments but 3 were given"), True),
        (KeyError("rank"), True),
        (of_a_task(ValueError("GLOO_SOCKET_IFNAME is of no interface")), True),
        (of_a_task(dist.DistNetworkError("timed out")), False),
        (of_a_task(OSError(116, "Stale file handle")), False),
        (RoomLostError("the nodes that are left hold 1 of 2 workers at most"), False),
        (WorkerGroupStartupTimeoutError(2), False),
        (WorkerHealthCheckTimeoutError("no answer for 60 s"), False),
        (ActorDiedError(), False),
        (GetTimeoutError("no answer"), False),
        (OSError(28, "No space left on device"), False),
        (MemoryError(), False),
        (SystemExit(1), False),
    ],
)
def test_an_error_of_code_in_rays_controller_is_a_bug_and_what_it_says_of_the_cluster_is_none(
    failure: BaseException, *, bug: bool
) -> None:
    assert is_bug(failure) is bug
