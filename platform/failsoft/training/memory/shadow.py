"""Does DDP's part on a rank whose passes broke off, so that no other rank waits for it.

A rank that runs out of memory in the forward pass, or in the middle of the backward pass, leaves the others in DDP's
reduction of gradients. Nobody has to know beforehand: the rank counts which reductions it has begun (the process group
numbers its collectives) and takes part in the rest with zeros, as DDP's own ``join`` does for a rank without data.
The others end their passes, and all meet in the verdict. On the top rung this costs two readings of a counter a step,
and DDP goes on to reduce while the backward pass runs.

DDP hands out buffers before each forward pass. A loss may call the model several times (two views of a sample, say):
how often an update does so is known from the one before, and in the very first update taken to be once.

It holds for collectives that DDP itself makes: buffers, buckets (with any hook of one collective each), unused
parameters. A forward pass with collectives of its own (SyncBatchNorm, FSDP, tensor parallel) can't be shadowed, nor
PowerSGD, nor a static graph; there the error goes up, the others end by the time-out of the process group, and the
restarted run begins a notch lower (:mod:`failsoft.training.memory.note`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel

from failsoft.training.backward import Compute


class Shadow:
    """Counts one rank's reductions, and makes up for those that it left out.

    Args:
        model: in its DDP wrapper.
    """

    def __init__(self, model: DistributedDataParallel) -> None:
        self._ddp: Any = model  # what follows is what DDP's own `join` and unpickling call, none of it typed
        self._count = _counter(model)
        self._at_start = self._at_backward = 0
        self._handed_out = 0
        self._usual: dict[bool, int] = {}
        self._from_the_first = True
        model.register_forward_pre_hook(self._notice)

    @staticmethod
    def possible(model: nn.Module) -> str | None:
        """None, or why passes of this model can't be shadowed."""
        if not isinstance(model, DistributedDataParallel):
            return "the guard does not hold the model in its DDP wrapper"
        if model.static_graph:
            return "DDP was told of a static graph, whose first pass reduces otherwise than all later ones"
        if any(isinstance(state, PowerSGDState) for _, state in _hooks(model)):
            return "PowerSGD reduces each bucket in several stages, of which nobody knows how many are begun"
        if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
            return "SyncBatchNorm talks to the other ranks in the middle of the passes"
        return None

    def begins(self) -> None:
        """Before the first forward pass of an update."""
        self._at_start = self._at_backward = self._count()
        self._handed_out, self._from_the_first = 0, bool(self._ddp.require_forward_param_sync)

    def _notice(self, *_called: object) -> None:
        """Buffers are handed out now, unless nothing was learnt since: within `no_sync`, after a look without it."""
        self._handed_out += self._ddp._check_sync_bufs_pre_fwd()

    def marked(self, compute: Compute) -> Compute:
        """The last micro-batch's forward pass; what follows it are the reductions of the backward pass."""

        def marked() -> Tensor:
            loss = compute()
            self._at_backward = self._count()
            self._usual[self._from_the_first] = self._handed_out
            self._forward_ended = True
            return loss

        self._forward_ended = False
        return marked

    def make_up(self) -> None:
        """Take part in what this rank has not yet, with zeros. After everything else of the passes is let go of."""
        ddp, now = self._ddp, self._count()
        if not self._forward_ended:
            if now == self._at_start:  # maybe before the wrapper's own forward pass began
                ddp.reducer._rebuild_buckets()
            at_least = self._handed_out or int(ddp._check_sync_bufs_pre_fwd())
            for _ in range(self._usual.get(self._from_the_first, at_least) - self._handed_out):
                ddp._sync_buffers()
        begun = now - self._at_backward if self._forward_ended else 0
        buckets = ddp.reducer._get_zeros_like_grad_buckets()
        works = [ddp.reducer._run_comm_hook(bucket) for bucket in buckets[begun:]]
        for work in works:
            work.wait()
        if ddp.find_unused_parameters and begun <= len(buckets):
            ddp._match_unused_params_allreduce()

    def renew(self) -> None:
        """A fresh reducer, on all ranks; as DDP itself makes it when it is unpickled.

        One whose backward pass broke off takes up no other, and the orders of buckets must agree.
        """
        ddp = self._ddp
        parameters, sparse = ddp._build_params_for_reducer()
        names = ddp._build_debug_param_to_name_mapping(parameters)
        ddp.logger = ddp.reducer = None  # its hooks leave the parameters with it
        ddp._ddp_init_helper(parameters, sparse, names, ddp.static_graph)
        register: Any = getattr(dist, "_register_comm_hook")  # noqa: B009 -- not among what torch says it exports
        for hook, state in ddp._comm_hooks:
            register(ddp.reducer, state, hook)
        ddp.require_forward_param_sync = True


def _hooks(model: DistributedDataParallel) -> list[tuple[object, object]]:
    """Hook and state of each that the wrapper has; it was registered before the guard was made."""
    hooks: list[tuple[object, object]] = getattr(model, "_comm_hooks", [])
    return hooks


def _counter(model: DistributedDataParallel) -> Callable[[], int]:
    """How many collectives the group has begun on this rank, by the backend that reduces this model's gradients."""
    group: Any = model.process_group
    device = next(parameter.device for parameter in model.parameters())
    read: Callable[[], int] = group._get_backend(device)._get_sequence_number_for_group
    return read
