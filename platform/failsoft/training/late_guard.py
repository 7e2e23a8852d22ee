"""The guarded step without a wait: the verdict stays on the device, and the host reads it one step late.

A fused optimizer takes ``found_inf`` and ``grad_scale`` as tensors, so the device itself decides whether the update
happens; the host never stops the queue to ask. It learns of step k while step k + 1 is under way, *before* that step's
update, and makes up then for what only the host can do:

- the scheduler and the EMA move, and the learning rate's relief and the usual levels of spikes learn of it: all before
  step k + 1's update, so that it uses the right rate and an EMA of the right weights;
- the refusal is told, with the name of the first bad gradient (from the norms that the device kept).

Weights, optimizer moments and step counts, buffers and the loss scale are right at once. Three things differ from
:class:`~failsoft.training.guard.StepGuard`: generators are not rewound (the next forward pass has drawn from them by
then), a GradScaler backs off for spikes too (its own kernel decides), and finite gradients of one parameter whose norm
overflows are called not finite (the gradients are gone when somebody asks).

Where the device can't decide, the step is carried out the other way: the first ones of SGD with momentum (a refused
*first* fused step leaves ``momentum_buffer`` uninitialised memory, and the next good step writes that into the
weights), all of them with embeddings that have a ``max_norm``, and those after a checkpoint that switched the fused
kernels off. An EMA waits, too: torch's AveragedModel copies its count to the device at each update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from failsoft.errors import ConfigError
from failsoft.training.backward import Compute
from failsoft.training.gradients import whole
from failsoft.training.guard import StepGuard
from failsoft.training.update import close_round, decides_on_device
from failsoft.training.verdict import SPIKES, Limits, Reading, Refusal, StepOutcome, judge, plain_ids


class _Pending(NamedTuple):
    """A step whose verdict the device knows and the host does not."""

    position: int
    sample_ids: tuple[int, ...]
    numbers: Tensor
    """Own loss and norm, summed loss and norm; in host memory once ``arrived``."""
    arrived: torch.cuda.Event | None
    norms: Tensor
    """Norm of each gradient; stays on the device unless somebody must be blamed."""
    owners: list[nn.Parameter]
    limits: Limits


class LateStepGuard:
    """Carries out steps as the guard it is made from, without waiting for the device.

    Args:
        guard: what to step, and how; it must not be stepped beside this.

    Raises:
        ConfigError: the optimizer is not fused, so the device can't skip its update; use the guard itself.
    """

    def __init__(self, guard: StepGuard) -> None:
        if not decides_on_device(guard.optimizer):
            raise ConfigError(
                f"{type(guard.optimizer).__name__} is not fused, so the device can't decide about its update; make it "
                "with fused=True, or use StepGuard, which waits for the device once a step"
            )
        self.guard = guard
        self._pending: _Pending | None = None

    def step(
        self,
        compute: Compute | Sequence[Compute],
        *,
        shares: Sequence[float] | None = None,
        sample_ids: Sequence[int] = (),
        position: int = 0,
    ) -> tuple[StepOutcome, ...]:
        """Do one step; arguments and errors are those of :meth:`StepGuard.step`.

        Returns:
            The verdicts that became known: usually one, that of the step before.
        """
        guard = self.guard
        if not self._device_decides():
            return (*self.settle(), guard.step(compute, shares=shares, sample_ids=sample_ids, position=position))
        ids = plain_ids(sample_ids)
        guard.begin()
        guard.optimizer.zero_grad(set_to_none=True)
        try:
            loss = guard.backward.run(compute, shares)
            with guard.traces.as_noted():  # the EMA takes buffers on, too: not those of a batch that is not judged yet
                known = self.settle()
        except BaseException:  # as in StepGuard: no trace of half a step may stay; re-raised
            guard.go_back()
            raise
        if guard.scaler is not None and guard.scaler.is_enabled():
            guard.scaler.unscale_(guard.optimizer)
        self._pending = self._carry_out(loss, ids, position)
        return known

    def settle(self) -> tuple[StepOutcome, ...]:
        """Wait for the last step's verdict and make up for it: before a snapshot, a checkpoint, and at the end."""
        pending, self._pending = self._pending, None
        if pending is None:
            return ()
        if pending.arrived is not None:
            pending.arrived.synchronize()
        loss, norm, losses, norms = pending.numbers.tolist()
        world = self.guard.ranks.world
        reading = Reading(loss, norm, losses / world, norms / world)
        refusal = judge(reading, pending.limits)
        name = None if refusal is None or refusal is Refusal.LOSS_SPIKE else self._blame(pending, refusal)
        if refusal is Refusal.GRADIENT and name is None:
            refusal, name = Refusal.OVERFLOW, self._largest(pending)
        outcome = StepOutcome(
            pending.position, pending.sample_ids, self.guard.ranks.rank, refusal, loss, reading.mean_loss, norm, name
        )
        outcome = outcome._replace(why=self.guard.why(refusal, reading))
        if refusal is None:
            self.guard.moved_on(reading.mean_loss, reading.mean_norm)
        else:
            self.guard.backward.forget()
            self.guard.relief.refused()
            self.guard.on_refused(outcome)
        return (outcome,)

    @torch.no_grad()
    def _carry_out(self, loss: Tensor, ids: tuple[int, ...], position: int) -> _Pending:
        """Verdict, update and way back, all in the device's queue."""
        guard, limits = self.guard, self.guard.limits
        norms = _norms(guard.gradients.tensors(), loss.device)
        norm = torch.linalg.vector_norm(norms)
        own = torch.stack([loss.double(), norm.double()])
        shared = guard.ranks.sum_(own.clone())
        mean_loss, mean_norm = (shared / guard.ranks.world).unbind()
        fine = torch.isfinite(mean_loss) & torch.isfinite(mean_norm)
        fine &= (mean_loss <= limits.loss) & (mean_norm <= limits.norm)
        refused = (~fine).float()
        with guard.relief.lowered(guard.optimizer):
            self._update(refused, guard.update.divisor(norm))
        guard.traces.undo_buffers_where(refused)
        numbers, arrived = _sent_home(torch.cat([own, shared]))
        return _Pending(position, ids, numbers, arrived, norms, guard.gradients.owners(), limits)

    def _update(self, refused: Tensor, divisor: Tensor | None) -> None:
        """The fused step; a GradScaler's own finding and ours become one, since it overwrites the optimizer's."""
        optimizer, scaler = self.guard.optimizer, self.guard.scaler
        optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        if scaler is not None and scaler.is_enabled():
            _merge(scaler, optimizer, refused)
            scaler.step(optimizer)  # takes both attributes away again
            close_round(scaler)
            if scaler._scale is not None:
                scaler._scale.clamp_(min=self.guard.policy.min_loss_scale)
            return
        optimizer.found_inf = refused  # type: ignore[attr-defined]
        try:
            optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]

    def _device_decides(self) -> bool:
        """Whether an update that the device skips leaves nothing behind; if not, the host decides about this step.

        Asked at each step, since a rollback to the start takes the momentum away again.
        """
        optimizer, traces = self.guard.optimizer, self.guard.traces
        return (
            decides_on_device(optimizer)
            and not traces.rescaling
            and all(map(self._has_momentum, optimizer.param_groups))
        )

    def _has_momentum(self, group: dict[str, Any]) -> bool:
        state = self.guard.optimizer.state
        return not group.get("momentum") or all(
            state.get(parameter, {}).get("momentum_buffer") is not None
            for parameter in group["params"]
            if parameter.requires_grad
        )

    def _blame(self, pending: _Pending, refusal: Refusal) -> str | None:
        if refusal in SPIKES:
            return self._largest(pending)
        bad = [number for number, norm in enumerate(pending.norms.tolist()) if not math.isfinite(norm)]
        return self.guard.gradients.names(pending.owners)[bad[0]] if bad else None

    def _largest(self, pending: _Pending) -> str | None:
        if not pending.owners:
            return None
        return self.guard.gradients.names(pending.owners)[int(pending.norms.argmax())]


def _norms(gradients: list[Tensor], device: torch.device) -> Tensor:
    if not gradients:
        return torch.zeros(0, device=device)
    return whole(torch.stack([norm.float() for norm in torch._foreach_norm(gradients)]))


def _merge(scaler: GradScaler, optimizer: torch.optim.Optimizer, refused: Tensor) -> None:
    for found in scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values():
        torch.maximum(found, refused.to(found), out=found)


def _sent_home(numbers: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """The numbers on their way to pinned host memory, and the event of their arrival (None: they are there)."""
    if numbers.device.type != "cuda":
        return numbers, None
    home = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    home.copy_(numbers, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()
    return home, arrived
