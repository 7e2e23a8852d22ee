"""The loops that the guard is measured against, each of them one step at a time."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]  # it ships no types
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Optimizer

from failsoft.training.guard import StepGuard
from failsoft.training.late_guard import LateStepGuard

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what a foreign package warns of on import is not ours to mend
    import lightning

MAX_NORM, RATE = 1.0, 1e-4
Step = Callable[[], object]
Check = Callable[[Sequence[Tensor]], bool]


@dataclass(frozen=True, kw_only=True)
class Size:
    """One model to step."""

    name: str
    width: int
    layers: int
    rounds: int
    batch: int = 32

    @property
    def calls(self) -> int:
        """Steps in one timing: small ones are over too soon to be timed alone."""
        return 10 if self.width < 256 else 1


def network(size: Size) -> nn.Module:
    """A stack of linear layers with the same weights each time."""
    torch.manual_seed(7)
    layers = [part for _ in range(size.layers) for part in (nn.Linear(size.width, size.width), nn.GELU())]
    return nn.Sequential(*layers)


def batch_of(size: Size) -> Tensor:
    """The one batch that everybody steps on."""
    return torch.randn(size.batch, size.width, generator=torch.Generator().manual_seed(3))


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Something to go down."""
    return torch.as_tensor(model(batch)).square().mean()


def gradients(model: nn.Module) -> list[Tensor]:
    """Every gradient there is."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def holds_nan_or_inf(tensors: Sequence[Tensor]) -> bool:
    """The guard most people write: ask each tensor."""
    return any(bool(torch.isnan(tensor).any() or torch.isinf(tensor).any()) for tensor in tensors)


def common_step(model: nn.Module, batch: Tensor, *, fused: bool = False, parts: int = 1) -> Step:
    """The loop most people write: AdamW as it comes, and ``clip_grad_norm_``."""
    optimizer, pieces = adamw(model, fused=fused), batch.chunk(parts)

    def step() -> None:
        optimizer.zero_grad()
        for piece in pieces:
            (loss_of(model, piece) / parts).backward()
        clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

    return step


def naive_step(model: nn.Module, batch: Tensor) -> Step:
    """The common loop, with the guard most people write."""
    optimizer = adamw(model)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if holds_nan_or_inf([loss.detach()]) or holds_nan_or_inf(gradients(model)):
            return
        clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

    return step


def guarded_step(model: nn.Module, batch: Tensor, *, fused: bool = True, parts: int = 1) -> Step:
    """Ours."""
    guard = StepGuard(model=model, optimizer=adamw(model, fused=fused))
    if parts == 1:
        return lambda: guard.step(lambda: loss_of(model, batch))
    pieces = batch.chunk(parts)
    return lambda: guard.step([lambda piece=piece: loss_of(model, piece) for piece in pieces])  # type: ignore[misc]


def late_step(model: nn.Module, batch: Tensor) -> Step:
    """Ours, with the verdict left on the device."""
    late = LateStepGuard(StepGuard(model=model, optimizer=adamw(model, fused=True)))
    return lambda: late.step(lambda: loss_of(model, batch))


def accelerate_step(model: nn.Module, batch: Tensor) -> Step:
    """Accelerate, as its documentation writes the loop. The batch is at hand: its data loader is not timed."""
    accelerator = Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, adamw(model))

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(prepared, batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(prepared.parameters(), MAX_NORM)
        optimizer.step()

    return step


def adamw(model: nn.Module, *, fused: bool = False) -> Optimizer:
    """AdamW as it comes (foreach on CUDA, one parameter at a time on a CPU), or fused."""
    return AdamW(model.parameters(), lr=RATE, fused=fused)


class LightningSteps:
    """Lightning's own loop (a real ``Trainer.fit``) in a thread, let go ``calls`` batches at a time.

    The trainer asks its data for the next batch; there it waits until it is let go, so everything that it does between
    two batches is timed, and its set-up is not. Logger, checkpoints, progress bar and summary are off. Handing over to
    the thread and back is timed with it, once for ``calls`` steps: some 20 µs.
    """

    def __init__(self, model: nn.Module, batch: Tensor, calls: int) -> None:
        self._batch, self._calls = batch, calls
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._fit, args=(model,), daemon=True)

    def __enter__(self) -> Step:
        """Start the trainer; what comes back takes ``calls`` steps."""
        self._thread.start()
        self._done.acquire()
        return self._run

    def __exit__(self, *_: object) -> None:
        """Let the trainer end."""
        self._over = True
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        self._go.release()
        self._done.acquire()
        if self._failure is not None:
            raise self._failure

    def __iter__(self) -> Iterator[Tensor]:
        """One endless epoch."""
        while True:
            self._done.release()
            self._go.acquire()
            for _ in range(self._calls):
                if self._over:
                    return
                yield self._batch

    def _fit(self, model: nn.Module) -> None:
        torch.set_num_threads(1)  # each thread has its own setting
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._trainer().fit(_Module(model), train_dataloaders=self)
        except BaseException as error:  # noqa: BLE001 -- the boundary of a thread; whoever waits for it raises it
            self._failure = error
            self._done.release()

    @staticmethod
    def _trainer() -> lightning.Trainer:
        return lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            gradient_clip_val=MAX_NORM,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )


class _Module(lightning.LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Tensor) -> Tensor:
        """One loss."""
        return loss_of(self.model, batch)

    def configure_optimizers(self) -> Optimizer:
        """The same as in the common loop."""
        return adamw(self.model)
