from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from failsoft.training.ray_train import kind_of


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
