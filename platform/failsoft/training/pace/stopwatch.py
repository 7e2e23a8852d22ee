"""How long a rank itself works on a batch: not how long it waits for others.

Under DDP the backward pass ends in waiting, so its end says nothing of this rank. What does is the moment when the
gradient of the *first* parameter is there: the passes go through the layers backwards, and DDP waits only after that.
(Where that parameter gets no gradient in a batch, the time up to the last gradient that it got does not count: no time
is better than one of another batch.) On CUDA the host runs ahead of the device, so there the device's own events are
asked; a batch whose events are not over yet tells no time either.

Before the forward pass DDP hands out rank 0's buffers (batch norm has some), and there, too, ranks wait for each other:
the time between the wrapper's call and the model's own is left out. What waits within the layers (SyncBatchNorm, the
gathering of shards by FSDP) can't be told from work: there all ranks take the same time, and none is found slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from failsoft.health.clock import Clock
from failsoft.training.backward import Compute, Passes


class Stopwatch:
    """Times the passes of a guard, batch by batch; several updates of one batch add up, without the waits in between.

    Args:
        model: in its DDP wrapper, where there is one.
        clock: this process's own.
    """

    def __init__(self, model: nn.Module, clock: Clock) -> None:
        first = next((parameter for parameter in model.parameters() if parameter.requires_grad), None)
        self._timer = None if first is None else _OnDevice(first) if first.is_cuda else _OnHost(first, clock)
        self._parts: list[Callable[[], float | None]] = []
        if self._timer is not None and isinstance(model, DistributedDataParallel):
            model.register_forward_pre_hook(self._timer.pause)
            model.module.register_forward_pre_hook(self._timer.resume)

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
        self._paused_s: float | None = None
        self._waited_s = 0.0
        _hook(first, self._reached)

    def _reached(self, _parameter: Tensor) -> None:
        self._reached_s = self._now_s()

    def pause(self, *_called: object) -> None:
        self._paused_s = self._now_s()

    def resume(self, *_called: object) -> None:
        if self._paused_s is not None:
            self._waited_s += self._now_s() - self._paused_s
            self._paused_s = None

    def start(self) -> None:
        self._reached_s, self._paused_s, self._waited_s = None, None, 0.0
        self._began_s = self._now_s()

    def stop(self) -> Callable[[], float | None]:
        took_s = None if self._reached_s is None else self._reached_s - self._began_s - self._waited_s
        return lambda: took_s


class _OnDevice:
    def __init__(self, first: nn.Parameter) -> None:
        self._device = first.device
        self._began: Any = None
        self._reached: Any = None
        self._paused: Any = None
        self._waits: list[tuple[Any, Any]] = []
        _hook(first, self._mark)

    def _now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves this one untyped
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _mark(self, _parameter: Tensor) -> None:
        self._reached = self._now()

    def pause(self, *_called: object) -> None:
        self._paused = self._now()

    def resume(self, *_called: object) -> None:
        if self._paused is not None:
            self._waits.append((self._paused, self._now()))
            self._paused = None

    def start(self) -> None:
        self._reached, self._paused, self._waits = None, None, []
        self._began = self._now()

    def stop(self) -> Callable[[], float | None]:
        began, reached, waits = self._began, self._reached, self._waits

        def read() -> float | None:
            if reached is None or not reached.query():
                return None
            waited_ms = sum(float(before.elapsed_time(after)) for before, after in waits)
            return (float(began.elapsed_time(reached)) - waited_ms) / 1000.0

        return read


def _hook(first: nn.Parameter, reached: Callable[[Tensor], None]) -> None:
    first.register_post_accumulate_grad_hook(reached)  # type: ignore[no-untyped-call]  # as above
