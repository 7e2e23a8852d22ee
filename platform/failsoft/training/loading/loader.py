"""Batches of checked samples at any position, by workers that may die, hang or meet anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from types import TracebackType

from failsoft.errors import ConfigError, LoaderError
from failsoft.health.clock import Clock, SystemClock
from failsoft.training.degradation import Tell
from failsoft.training.loading.board import Board
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.lane import Fallen, Lane, LoaderPolicy
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample import GuardedBatch, Request

WORKER_DIED = "loader_worker_died"


class GuardedLoader:
    """Loads one rank's shares, ahead where there are workers. Its state is the position, and that is the caller's.

    Positions are asked for in order; any other order works, too, at the price of what was loaded ahead.

    Args:
        checked: loads one batch.
        order: the rank's shares by position.
        policy: workers and patience.
        clock: for patience.
        tell: told of each worker that died (``loader_worker_died``, with pid, cause, sample and source).

    Raises:
        ConfigError: what the workers need can't be sent to them.
    """

    def __init__(
        self,
        checked: Checked,
        order: RankOrder,
        *,
        policy: LoaderPolicy | None = None,
        clock: Clock | None = None,
        tell: Tell | None = None,
    ) -> None:
        self.policy = policy or LoaderPolicy()
        self._checked = checked
        self._order = order
        self._tell: Tell = _nobody
        if tell is not None:
            self._tell = tell
        stride = self.policy.workers
        if stride and self.policy.start_method != "fork":
            _refuse_unpicklable(checked)
        if stride > 1:
            checked.share(Board())
        clock = clock or SystemClock()
        self._lanes = [Lane(checked, order, self.policy, clock, stride=stride) for _ in range(stride)]
        self._deaths: Counter[int] = Counter()
        self._in_a_row = 0
        self._barred: dict[int, str] = {}
        self.deaths = 0
        """Workers that died or were ended so far."""

    def fetch(self, position: int, indices: tuple[int, ...] | None = None, *, counted: bool = True) -> GuardedBatch:
        """The rank's share of the batch at ``position``.

        Args:
            position: global batches before it.
            indices: its samples, where they may differ from the order's: batches that people put back on the list.
            counted: whether those samples count at all.

        Raises:
            LoaderError: workers died again and again; or the position is beyond the run's end.
        """
        if not self._lanes:
            return self._checked.load(self._order.ask(Request(position, indices, counted, self._barred)))
        lane = self._lanes[position % len(self._lanes)]
        if indices is not None and position >= self._order.total:
            lane.special[position] = (indices, counted)
        batch = self._from(lane, position)
        if indices is not None and batch.indices != indices:  # another list than the order's
            lane.special[position] = (indices, counted)
            lane.stop()
            batch = self._from(lane, position)
        lane.special.pop(position, None)
        return batch

    @property
    def ahead(self) -> int:
        """Positions beyond the last one fetched for which batches may be ordered already."""
        return self.policy.workers * self.policy.prefetch

    def follow(self, shares_at: Callable[[int], tuple[int, ...]]) -> None:
        """Order batches by these shares of the ranks. Those at positions up to :attr:`ahead` must not change."""
        for lane in self._lanes:
            lane.shares_at = shares_at

    def worker_pids(self) -> tuple[int, ...]:
        """Of the workers that run now."""
        return tuple(lane.pid for lane in self._lanes if lane.pid is not None)

    def close(self) -> None:
        """End all workers and wait for them. The next :meth:`fetch` starts new ones."""
        for lane in self._lanes:
            lane.stop()

    def __enter__(self) -> GuardedLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _from(self, lane: Lane, position: int) -> GuardedBatch:
        while isinstance(found := lane.fetch(position), Fallen):
            self._mourn(found)
            for every in self._lanes:
                every.barred = dict(self._barred)
        self._in_a_row = 0
        return found

    def _mourn(self, fallen: Fallen) -> None:
        """Say who died of what; bar a sample that it happened on twice."""
        self.deaths += 1
        self._in_a_row += 1
        source = "" if fallen.index is None else self._checked.source_of(fallen.index)
        on = "before its first sample" if fallen.index is None else f"on sample {fallen.index}"
        said = f"loader worker {fallen.pid} {fallen.cause}, {on}; another one takes its place"
        about = {"pid": fallen.pid, "cause": fallen.cause, "sample": fallen.index, "source": source}
        self._tell(WORKER_DIED, said, position=fallen.position, **about)
        if self._in_a_row > self.policy.max_deaths_in_a_row:
            raise LoaderError(
                f"{self._in_a_row} loader workers died in a row, the last one {fallen.cause}, {on} ({source}); look at "
                "the memory that a worker may use and at these samples, then start the run again: it goes on"
            )
        if fallen.index is not None:
            self._deaths[fallen.index] += 1
            if self._deaths[fallen.index] >= self.policy.deaths_of_a_sample:
                self._barred[fallen.index] = f"{self._deaths[fallen.index]} workers died of it; the last {fallen.cause}"


def _nobody(kind: str, why: str, **data: object) -> None:
    """Nobody listens."""


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


def _refuse_unpicklable(checked: Checked) -> None:
    try:
        ForkingPickler(_Nowhere()).dump(checked)
    except Exception as error:  # pickling runs foreign code; whatever it raises, the answer is the same
        raise ConfigError(
            f"the dataset, its checks or its collate function can't be sent to a loader's worker ({error}); define "
            "their functions at the top of a module, open files and connections at their first use, or set workers to 0"
        ) from error
