"""Checkpoints written behind the training: handed over in the time of a memory copy, known as published when whole.

At most one is being written and one waits; a newer one takes the place of the waiting one, and that is counted and
said. The writer is a process (``writer_process``). One that dies is started again and given the same work; when it dies
of it again, this process does the work itself, once. One that says nothing for too long is killed and its work given
up. Whatever happens here, the checkpoints that are published stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.lifecycle import Lifecycle
from failsoft.training.checkpoints.retention import Best, Every, Last, to_plain
from failsoft.training.checkpoints.shard_writing import Around
from failsoft.training.checkpoints.tensor_file import Stamp
from failsoft.training.checkpoints.writer_link import Link, Message, ProcessLink
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket
from failsoft.training.checkpoints.writer_order import Order, Written, carry_out, order_for
from failsoft.training.checkpoints.writer_policy import WriterPolicy, WriterRecord, hopeless
from failsoft.training.checkpoints.writer_slot import Slot, Slots
from failsoft.training.checkpoints.writer_stage import MOVES, Stage

_WAIT_STEP_S = 1.0
Rules = Sequence[Last | Best | Every]
_NEWEST: Rules = (Last(),)


@dataclass(frozen=True, kw_only=True)
class _Task:
    ticket: Ticket
    slot: Slot
    losses: int = 0
    """Writers that died of it."""


class CheckpointWriter:
    """The training's side. None of its methods but :meth:`drain` and :meth:`close` waits for the disk.

    Args:
        store: where to publish.
        rules: which checkpoints stay; applied after each publication.
        clock: time for patience.
        policy: limits of patience.
        start: starts a writer; None writes in this process, which then waits for each checkpoint.
    """

    def __init__(
        self,
        store: ArtifactStore,
        *,
        rules: Rules = _NEWEST,
        clock: Clock | None = None,
        policy: WriterPolicy | None = None,
        start: Callable[[], Link] | None = None,
    ) -> None:
        self.store = store
        self.parent: str | None = None
        """Name of the newest checkpoint that is published or was restored."""
        self._rules = to_plain(rules)
        self.clock = clock or SystemClock()
        self._policy = policy or WriterPolicy()
        self._start = start
        self._link: Link | None = None
        self._life = Lifecycle(MOVES, Stage.ABSENT)
        self._writing: _Task | None = None
        self._waiting: _Task | None = None
        self.slots = Slots(shared=start is not None)  # give_back() what was reserved and is not to be written
        self._heard_at_s = 0.0
        self._news: list[News] = []
        self.record = WriterRecord(saved_at_s=self.clock.monotonic_s())

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is on its way."""
        return self._writing is not None or self._waiting is not None

    @property
    def full(self) -> bool:
        """Whether one waits already, whose place a newer one would take."""
        return self._waiting is not None

    @property
    def stage(self) -> Stage:
        """What the writer does."""
        return self._life.state

    @property
    def held_bytes(self) -> int:
        """Memory that waits to be written, or to be filled again."""
        tasks = [task for task in (self._writing, self._waiting) if task is not None]
        return self.slots.held_bytes + sum(task.slot.held_bytes for task in tasks)

    def hopeless(self) -> str | None:
        """Why the run must not go on unsaved, or None."""
        return hopeless(self.record, self._policy, now_s=self.clock.monotonic_s())

    def prepare(self, tensors: Mapping[str, Tensor], *, scalars_bytes: int) -> None:
        """Make the memory and start the process ahead of time, so that the first checkpoint waits for neither."""
        with suppress(OSError):  # what is refused now is tried again, and told, when it is needed
            if not self.busy:
                self.slots.give_back(self.slots.take(tensors, scalars_bytes))
            self._ensure_link()

    def offer(self, ticket: Ticket, tensors: Mapping[str, Tensor], scalars: bytes) -> None:
        """Copy a state and hand it over; it is published when :meth:`look` says so."""
        self._hear()
        self._replace_waiting()
        try:
            slot = self.slots.take(tensors, len(scalars))
            slot.copy(tensors)
        except OSError as error:
            self.fail(ticket, f"no memory to hold it until it is written: {error}")
            return
        self.hand_over(ticket, slot, scalars)

    def reserve(self, tensors: Mapping[str, Tensor], scalars_bytes: int) -> Slot | None:
        """Memory to copy a state into, which is then handed over or let be; None while a checkpoint waits already.

        Raises:
            OSError: no memory.
        """
        self._hear()
        return None if self.full else self.slots.take(tensors, scalars_bytes)

    def hand_over(self, ticket: Ticket, slot: Slot, scalars: bytes) -> None:
        """Have it written that was copied into this memory; nothing may wait already."""
        slot.seal(scalars, Stamp(position=ticket.position, step=ticket.step))
        task = _Task(ticket=ticket, slot=slot)
        if self._writing is None:
            self._begin(task)
        else:
            self._waiting = task
            self._hurry()

    def look(self) -> list[News]:
        """What happened since the last look. Costs microseconds: fit for every step."""
        if self._writing is not None:
            self._hear()
        news, self._news = self._news, []
        return news

    def drain(self, *, within_s: float | None = None) -> None:
        """Wait until nothing is on its way, or the storage's time (``within_s``, else our patience) is over.

        What could not be written in time is news: a failure.
        """
        begun_s = self.clock.monotonic_s()
        while self.busy:
            self._hurry()
            self._hear(wait_s=_WAIT_STEP_S if within_s is None else min(_WAIT_STEP_S, within_s))
            if within_s is not None and not self.clock.monotonic_s() - begun_s < within_s:
                self._give_up(f"not written within {within_s:.0f} s")

    def close(self) -> None:
        """Finish what is on its way, let the process end, give the memory back. Usable again afterwards."""
        self.drain()
        link, self._link = self._link, None
        if link is not None:
            link.close(self._policy.patience_s)
            self._life.move(Stage.ABSENT, why="closed")
        self.slots.close()

    def _hurry(self) -> None:
        """Somebody waits for what is being written now."""
        if self._link is not None and self._writing is not None:
            self._link.hurry()

    def _replace_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.slots.give_back(waiting.slot)
            why = "the one before it is still being written: the storage is slower than the schedule"
            self.leave_out(waiting.ticket, why)

    def leave_out(self, ticket: Ticket, why: str) -> None:
        """It is not written: the storage is slower than the schedule."""
        self.record = replace(self.record, replaced=self.record.replaced + 1)
        self._tell(NewsKind.REPLACED, why, ticket)

    def _begin(self, task: _Task) -> None:
        self._writing = task
        link = self._ensure_link()
        if link is None:
            self._write_here(task)
            return
        self._life.move(Stage.WRITING, why=task.ticket.name)
        self._heard_at_s = self.clock.monotonic_s()
        try:
            link.send(self._order(task).to_plain(), task.slot.handle)
        except ConnectionError as error:
            self._lost(str(error))

    def _ensure_link(self) -> Link | None:
        if self._link is None and self._start is not None:
            try:
                self._link = self._start()
            except OSError as error:
                if self._writing is not None:
                    self._tell(NewsKind.LOST, f"no writer: {error}; this process writes it", self._writing.ticket)
                return None
            self._life.move(Stage.READY, why="started")
        return self._link

    def _order(self, task: _Task) -> Order:
        return order_for(task.ticket, self.store, sizes=task.slot.sizes, parent=self.parent, rules=tuple(self._rules))

    def _hear(self, *, wait_s: float = 0.0) -> None:
        """Take in what the writer says; with ``wait_s``, wait so long for the first word."""
        try:
            while self._link is not None and (message := self._link.receive(wait_s)) is not None:
                self._heard_at_s, wait_s = self.clock.monotonic_s(), 0.0
                self._understand(message)
        except ConnectionError as error:
            self._lost(str(error))
        silent_s = self.clock.monotonic_s() - self._heard_at_s
        if self.stage is Stage.WRITING and not silent_s < self._policy.patience_s:
            self._give_up(f"its writer said nothing for {silent_s:.0f} s")

    def _understand(self, message: Message) -> None:
        task = self._writing
        if message["say"] == "beat" or task is None:
            return
        self._life.move(Stage.READY, why=str(message["say"]))
        if message["say"] == "written":
            self._published(task, Written.heard(message), took_s=float(message["took_s"]))
        else:
            self.fail(task.ticket, str(message["why"]))
        self._settled(task)

    def _lost(self, why: str) -> None:
        self._stop_link(why)
        self.record = replace(self.record, lost_writers=self.record.lost_writers + 1)
        task = self._writing
        if task is None:
            return
        mend = "this process writes it" if task.losses else "another writer is started for it"
        self._tell(NewsKind.LOST, f"{why}; {mend}", task.ticket)
        (self._write_here if task.losses else self._begin)(replace(task, losses=task.losses + 1))

    def _give_up(self, why: str) -> None:
        """Kill the writer and drop its work. Not written here instead: what hangs there would hang here."""
        self._stop_link(why)
        if self._writing is not None:
            task = self._writing
            self.fail(task.ticket, why)
            self._settled(task)

    def _stop_link(self, why: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.stop()
            self._life.move(Stage.ABSENT, why=why)

    def _write_here(self, task: _Task) -> None:
        started_s = self.clock.monotonic_s()
        try:
            with memoryview(task.slot.memory) as memory:
                written = carry_out(self._order(task), memory, self.store, around=Around(clock=self.clock, apart=False))
        except (OSError, FailsoftError) as error:
            self.fail(task.ticket, str(error))
        else:
            self._published(task, written, took_s=self.clock.monotonic_s() - started_s)
        self._settled(task)

    def _published(self, task: _Task, written: Written, *, took_s: float) -> None:
        self.parent = task.ticket.name
        self.record = self.record.succeeded(self.clock.monotonic_s())
        self._tell(NewsKind.PUBLISHED, "on schedule", task.ticket, **written.told(took_s))

    def fail(self, ticket: Ticket, why: str) -> None:
        """It can't be written; counts among the failures that end a run when they are too many."""
        self.record = self.record.failed_with(why)
        said = f"{why}; the older checkpoints stand, training goes on"
        self._tell(NewsKind.FAILED, said, ticket, in_a_row=self.record.failures_in_a_row)

    def _settled(self, task: _Task) -> None:
        self._writing = None
        self.slots.give_back(task.slot)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._begin(waiting)

    def _tell(self, kind: NewsKind, why: str, ticket: Ticket, **data: Any) -> None:
        self._news.append(News(kind=kind, why=why, ticket=ticket, data=data))


def writer_behind(
    store: ArtifactStore, clock: Clock, *, rules: Rules = _NEWEST, policy: WriterPolicy | None = None
) -> CheckpointWriter:
    """A writer in a process of its own: what a run uses."""
    return CheckpointWriter(store, rules=rules, clock=clock, policy=policy, start=ProcessLink)
