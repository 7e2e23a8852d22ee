"""How long a rank itself works on a batch: not how long it waits for others.

Under DDP the backward pass ends in waiting, so its end says nothing of this rank. What does is the moment when the
gradient of the *first* parameter is there: the passes go through the layers backwards, and DDP waits only after that.
(Where that parameter gets no gradient in a batch, the time up to the last gradient that it got does not count: no time
is better than one of another batch.) On CUDA the host runs ahead of the device, so there the device's own events are
asked; a batch whose events are not over yet tells no time either.

One thing of others is in the time: a wrapper with buffers (batch norm) has rank 0 hand them out before the forward
pass. Rank 0's bookkeeping between two steps is so short that ``min_excess_s`` of the policy leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from failsoft.health.clock import Clock
from failsoft.training.backward import Compute, Passes


class Stopwatch:
    """Times the passes of a guard, batch by batch; several updates of one batch add up, without the waits in between.

    Args:
        model: bare.
        clock: this process's own.
    """

    def __init__(self, model: nn.Module, clock: Clock) -> None:
        first = next((parameter for parameter in model.parameters() if parameter.requires_grad), None)
        self._timer = None if first is None else _OnDevice(first) if first.is_cuda else _OnHost(first, clock)
        self._parts: list[Callable[[], float | None]] = []

    def timed(self, passes: Passes) -> Passes:
        """The same passes, timed; for ``guard.run_passes``."""
        timer = self._timer
        if timer is None:
            return passes

        def around(compute: Compute | Sequence[Compute], shares: Sequence[float] | None) -> Tensor:
            timer.start()
            try:
                return passes(compute, shares)
            finally:
                self._parts.append(timer.stop())

        return around

    def add(self, duration_s: float) -> None:
        """Count other work on this batch: the loading of its samples."""
        self._parts.append(lambda: duration_s)

    def take(self) -> float | None:
        """Seconds of work since the last taking; None when a part of it is not known, or there was none."""
        parts, self._parts = [read() for read in self._parts], []
        known = [part for part in parts if part is not None]
        return sum(known) if parts and len(known) == len(parts) else None


class _OnHost:
    def __init__(self, first: nn.Parameter, clock: Clock) -> None:
        self._now_s = clock.monotonic_s
        self._began_s = 0.0
        self._reached_s: float | None = None
        _hook(first, self._reached)

    def _reached(self, _parameter: Tensor) -> None:
        self._reached_s = self._now_s()

    def start(self) -> None:
        self._reached_s = None
        self._began_s = self._now_s()

    def stop(self) -> Callable[[], float | None]:
        took_s = None if self._reached_s is None else self._reached_s - self._began_s
        return lambda: took_s


class _OnDevice:
    def __init__(self, first: nn.Parameter) -> None:
        self._device = first.device
        self._began = self._reached = self._event()
        self._seen = False
        _hook(first, self._mark)

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves this one untyped

    def _mark(self, _parameter: Tensor) -> None:
        self._seen = True
        self._reached.record(torch.cuda.current_stream(self._device))

    def start(self) -> None:
        self._began, self._reached, self._seen = self._event(), self._event(), False
        self._began.record(torch.cuda.current_stream(self._device))

    def stop(self) -> Callable[[], float | None]:
        began, reached, seen = self._began, self._reached, self._seen
        return lambda: float(began.elapsed_time(reached)) / 1000.0 if seen and reached.query() else None


def _hook(first: nn.Parameter, reached: Callable[[Tensor], None]) -> None:
    first.register_post_accumulate_grad_hook(reached)  # type: ignore[no-untyped-call]  # as above
