"""One worker process of the loader: a torch ``DataLoader`` of its own, so that its death concerns nobody else.

Workers of one common ``DataLoader`` share a queue, and one that is killed while it holds the queue's lock stops all.
Its death raises in whatever line of the training happens to run when the signal arrives, which may be half-way through
an optimizer step. Here each worker has queues of its own, and its death is found where its batch is waited for.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from failsoft.errors import ConfigError, LoaderError
from failsoft.health.clock import Clock
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample import GuardedBatch, Request
from failsoft.training.loading.wording import in_words
from failsoft.training.loading.worker_end import keep_apart

_PID, _INDEX = range(2)
_NO_SAMPLE = -1
_STARTS_WITHIN_S = 120.0
"""A worker loads torch and the dataset before its first sample; a busy machine takes its time over that."""


@dataclass(frozen=True, kw_only=True)
class LoaderPolicy:
    """How samples are loaded, and how much patience there is."""

    workers: int = 0
    """Processes that load; 0 loads in the training's own process, where nothing survives a sample that kills it."""
    prefetch: int = 2
    """Batches that each worker is ahead."""
    start_method: str = "forkserver"
    """``forkserver`` and ``spawn`` begin clean; ``fork`` copies threads' locks and open sockets into the worker."""
    hang_after_s: float = 300.0
    """A worker that has been on one sample for so long is ended."""
    look_every_s: float = 0.25
    """How soon a death is noticed while its batch is waited for."""
    deaths_of_a_sample: int = 2
    """A sample that so many workers died of is bad."""
    max_deaths_in_a_row: int = 20
    """Deaths without a batch between them, before the run stops."""
    pin_memory: bool = False
    """Hand batches over in pinned memory, from which copies to a GPU need not wait."""

    def __post_init__(self) -> None:
        """Refuse what can't load."""
        if self.workers < 0:
            raise ConfigError(f"workers is {self.workers}; use 0 to load in this process, or a positive number")
        for name in ("prefetch", "deaths_of_a_sample", "max_deaths_in_a_row"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        for name in ("hang_after_s", "look_every_s"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use more than 0 s")
        if self.start_method not in multiprocessing.get_all_start_methods():
            known = ", ".join(multiprocessing.get_all_start_methods())
            raise ConfigError(f"start_method is {self.start_method!r}; this system knows {known}")


@dataclass(frozen=True, kw_only=True)
class Fallen:
    """A worker that is no more."""

    pid: int
    cause: str
    """Signal, exit status, or how long it hung, in words."""
    index: int | None
    """The sample that it was on; None when it had not begun one."""
    position: int
    """The batch that was waited for."""


class Lane:
    """Loads every ``stride``-th position. Starts its worker when it is first asked, and anew after :meth:`stop`."""

    def __init__(self, checked: Checked, order: RankOrder, policy: LoaderPolicy, clock: Clock, *, stride: int) -> None:
        self._checked = checked
        self._order = order
        self._policy = policy
        self._clock = clock
        self._stride = stride
        self._iterator: Any = None
        self._cell = torch.zeros(2, dtype=torch.int64)
        self._cell.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves this one untyped
        self._last: int | None = None
        self._cursor = 0
        self.special: dict[int, tuple[tuple[int, ...], bool]] = {}
        """Samples of positions where the order does not say them, and whether they count."""
        self.barred: dict[int, str] = {}
        """Samples that nobody loads any more, and why."""
        self.shares_at: Callable[[int], tuple[int, ...]] | None = None
        """Of the ranks, by position; asked when a batch is ordered. None: even ones."""

    @property
    def pid(self) -> int | None:
        """Of the worker; None while there is none."""
        return None if self._iterator is None else int(self._iterator._workers[0].pid)

    def fetch(self, position: int) -> GuardedBatch | Fallen:
        """The batch at ``position``, or word of the worker's end; the lane has no worker then."""
        self._aim(position)
        waits = _Patience(self._clock, self._policy.hang_after_s, self._seen)
        while True:
            try:
                batch = next(self._iterator)
            except StopIteration:
                self._begin_anew(position)
                continue
            except (RuntimeError, OSError, EOFError) as error:  # its end, a torn message, or nothing for a while
                fallen = self._fallen(position, waits, error)
                if fallen is not None:
                    return fallen
                continue
            except Exception as error:  # noqa: BLE001 -- what it sent is made again by foreign code; it is lost
                return self._lost(position, error)
            if batch.position == position:
                self._last = position
                return batch  # type: ignore[no-any-return]  # torch types the items of a loader as Any

    def stop(self) -> None:
        """End the worker and wait for it; what it had loaded ahead is lost."""
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            return
        iterator._shutdown_workers()

    def _aim(self, position: int) -> None:
        """Make the worker load ``position`` next, unless it is on its way."""
        coming = self._last is not None and self._last < position < self._cursor
        if self._iterator is None or not (coming or position == self._cursor):
            self._cursor = position
        if self._iterator is None:
            self._start()

    def _begin_anew(self, position: int) -> None:
        """The worker had come to the end of the run and asks for nothing any more, but there is something to load."""
        self.stop()
        self._cursor = position
        if not self._is_left(position):
            raise LoaderError(f"position {position} is beyond the {self._order.total} of the run")
        self._start()

    def _is_left(self, position: int) -> bool:
        return position < self._order.total or position in self.special

    def _start(self) -> None:
        self._last = None
        self._cell.copy_(torch.tensor([0, _NO_SAMPLE]))
        context = multiprocessing.get_context(self._policy.start_method)
        if self._policy.start_method == "forkserver":
            multiprocessing.set_forkserver_preload(["failsoft.training.loading.lane"])  # a restart need not load torch
        loader: DataLoader[GuardedBatch] = DataLoader(
            _InWorker(self._checked, self._order, self._cell),  # type: ignore[arg-type]  # it is asked for batches only
            batch_sampler=_Requests(self._requests),  # type: ignore[arg-type]  # torch hands on what it yields
            collate_fn=_as_it_is,
            num_workers=1,
            prefetch_factor=self._policy.prefetch,
            multiprocessing_context=context,
            timeout=self._policy.look_every_s,
            pin_memory=self._policy.pin_memory,
            generator=torch.Generator(),  # else each start draws from the training's own generator
        )
        self._iterator = iter(loader)
        keep_apart(self._iterator)

    def _requests(self) -> Iterator[Request]:
        while self._is_left(self._cursor):
            position = self._cursor
            self._cursor += self._stride
            indices, counted = self.special.get(position, (None, True))
            shares = None if self.shares_at is None else self.shares_at(position)
            yield Request(position, indices, counted, self.barred, shares)

    def _seen(self) -> tuple[int, ...]:
        return tuple(self._cell.tolist())

    def _fallen(self, position: int, waits: _Patience, error: Exception) -> Fallen | None:
        worker = self._iterator._workers[0]
        if worker.is_alive():
            if not waits.over():
                return None
            cause = f"hung for {self._policy.hang_after_s:g} s ({error})"
        else:
            cause = _end_in_words(worker.exitcode)
        _, index = self._seen()
        pid = int(worker.pid)
        self.stop()
        return Fallen(pid=pid, cause=cause, index=None if index == _NO_SAMPLE else index, position=position)

    def _lost(self, position: int, error: Exception) -> Fallen:
        """The worker is ahead by now: which sample it was, nobody knows."""
        pid = int(self._iterator._workers[0].pid)
        self.stop()
        return Fallen(pid=pid, cause=f"sent what can't be read: {in_words(error)}", index=None, position=position)


class _Patience:
    """Whether the worker has been on the same sample for too long, or for very long on its start."""

    def __init__(self, clock: Clock, limit_s: float, seen: Callable[[], tuple[int, ...]]) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._look = seen
        self._before = seen()
        self._since_s = clock.monotonic_s()

    def over(self) -> bool:
        now, seen = self._clock.monotonic_s(), self._look()
        if seen != self._before:
            self._before, self._since_s = seen, now
        limit_s = self._limit_s if seen[_PID] else max(self._limit_s, _STARTS_WITHIN_S)
        return now - self._since_s >= limit_s


class _Requests:
    """What torch calls a batch sampler; asked for the next batch whenever one arrived."""

    def __init__(self, make: Callable[[], Iterator[Request]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Request]:
        return self._make()


class _InWorker:
    """The worker's side: writes down what it is on before it begins, so that its death has a name."""

    def __init__(self, checked: Checked, order: RankOrder, cell: torch.Tensor) -> None:
        self._checked = checked
        self._order = order
        self._cell = cell
        self._ready = False

    def __getitem__(self, request: Request) -> GuardedBatch:
        """What torch's types ask for; torch itself takes the method below."""
        return self.__getitems__(request)

    def __getitems__(self, request: Request) -> GuardedBatch:
        """The batch."""
        if not self._ready:
            self._begin()
        return self._checked.load(self._order.ask(request))

    def _begin(self) -> None:
        seen = memoryview(self._cell.numpy())  # type: ignore[arg-type]  # arrays are buffers, whatever numpy's types say
        seen[_PID] = os.getpid()

        def began(index: int) -> None:
            seen[_INDEX] = index

        self._checked.watched_by(began)
        threading.Thread(target=_end_with_training, name="failsoft-parent", daemon=True).start()
        self._ready = True


def _end_with_training() -> None:
    """Leave when the training is no more: torch watches its parent process, which may be a fork server."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _as_it_is(batch: Any) -> Any:
    return batch


def _end_in_words(status: int | None) -> str:
    if status is None:
        return "ended in an unknown way"
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory? see the kernel's log)" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    return f"left with status {status}"
