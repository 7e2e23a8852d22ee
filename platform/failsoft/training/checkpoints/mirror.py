"""Copies of published checkpoints on a remote store, made behind the training, one at a time, the newest first.

The training thread only says that a checkpoint is published; a process apart copies it. One is being copied and one
waits at most: a newer one takes the place of one that waits, or that failed, and that is counted and said. A try that
fails is followed by another after a wait that grows. What happens here never touches the local checkpoints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from failsoft.artifacts.address import shown
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import Clock
from failsoft.training.checkpoints.landing import Landing
from failsoft.training.checkpoints.mirror_courier import Courier, Request
from failsoft.training.checkpoints.mirror_filesystem import packed
from failsoft.training.checkpoints.mirror_order import Listed, MirrorOrder
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy, MirrorRecord, hopeless
from failsoft.training.checkpoints.retention import Best, Every, Last, to_plain
from failsoft.training.checkpoints.writer_link import MIRROR, Link, Message, ProcessLink
from failsoft.training.checkpoints.writer_news import News, NewsKind, Ticket

_WAIT_STEP_S = 1.0


@dataclass(frozen=True, kw_only=True)
class RemoteShelfNews:
    """What a run may go on from, on the remote store."""

    entries: tuple[Listed, ...]
    """Newest first."""
    foreign: str
    """What is there in a newer format, and what to do about it; empty when nothing is."""


class Mirror:
    """The training's side, on rank 0; other ranks only ask it. None of it but ``drain`` waits.

    Args:
        store: the local checkpoints.
        url: the remote place of this run's checkpoints.
        policy: limits of patience.
        rules: which checkpoints stay there.
        clock: time for patience.
        rng: chance for the waits between tries.
        start: starts the process that copies.
        filesystem: a ``pyarrow.fs.FileSystem`` that ``url`` is a path on; None: ``url`` is an address.
    """

    def __init__(  # noqa: PLR0913 -- each a part of its own, given by name
        self,
        store: ArtifactStore,
        url: str,
        *,
        clock: Clock,
        rng: random.Random,
        policy: MirrorPolicy | None = None,
        rules: Sequence[Last | Best | Every] = (Last(),),
        start: Callable[[], Link] = lambda: ProcessLink(MIRROR),
        filesystem: Any = None,
    ) -> None:
        self._filesystem = filesystem
        self._packed = "" if filesystem is None else packed(filesystem)
        self.store = store
        self.url = url
        self.apart = False
        """The ranks share no storage: their writers bring the shards there, and nothing is left to be copied."""
        self.clock = clock
        self.policy = policy or MirrorPolicy()
        self._rules = to_plain(rules)
        self._rng = rng
        self._courier = Courier(start, clock, patience_s=self.policy.patience_s)
        self._copying: Ticket | None = None
        self._waiting: Ticket | None = None
        self._undone: Ticket | None = None
        self._rest_until_s = clock.monotonic_s()
        self._news: list[News] = []
        self.record = MirrorRecord(copied_at_s=clock.monotonic_s())

    @property
    def shown(self) -> str:
        """The place, as it may be written into ledgers."""
        return shown(self.url) if self._filesystem is None else f"{self._filesystem.type_name}://{self.url}"

    @property
    def address(self) -> str | None:
        """The place as commands find it again; None for a path on a file system that only the job has."""
        return self.url if self._filesystem is None else None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is still to be copied, or taken back there."""
        return any(ticket is not None for ticket in (self._copying, self._waiting, self._undone))

    def hopeless(self) -> str | None:
        """Why the run must not go on without copies, or None; always None where the policy sets no limit."""
        return hopeless(self.record, self.policy, now_s=self.clock.monotonic_s())

    def offer(self, ticket: Ticket) -> None:
        """This checkpoint is published here; it is copied next, in the place of one that waits."""
        if self._waiting is not None:
            self._drop(self._waiting, "a newer one is copied instead: the remote store is slower than the schedule")
        self._waiting = ticket
        self._advance()

    def take_back(self, ticket: Ticket) -> None:
        """Copies of what was taken back here (``.withdrawn`` says which) are to go there, before anything is copied.

        Each copying does so, too; but until the next one, a fresh machine would go on from what was undone.
        """
        self._undone = self._undone or ticket
        self._advance()

    def look(self) -> list[News]:
        """What happened since the last look. Costs microseconds: fit for every step."""
        if self._copying is not None:
            self._hear()
        self._advance()
        news, self._news = self._news, []
        return news

    def drain(self, *, within_s: float) -> bool:
        """Wait until nothing is left to be copied, at most so long; tries go on as ever. Returns whether all is."""
        until_s = self.clock.monotonic_s() + within_s
        while self.busy and (left_s := until_s - self.clock.monotonic_s()) > 0.0:
            self._advance()
            self._courier.hurry()
            if self._copying is not None:
                self._hear(wait_s=min(_WAIT_STEP_S, left_s))
            else:
                self.clock.sleep_s(min(max(0.0, self._rest_until_s - self.clock.monotonic_s()), left_s))
        return not self.busy

    def part(self) -> None:
        """Let the process finish the copy at hand without this one. Usable again afterwards."""
        for ticket in (self._copying, self._waiting):
            if ticket is not None and ticket is not self._undone:
                self._drop(
                    ticket, "the run ends before it is copied; a copy that was begun is finished without the run"
                )
        self._copying = self._waiting = self._undone = None
        self._courier.part()

    def ask_listing(self) -> Request:
        """Ask what is there; what :func:`listing_of` reads out of the result."""
        return self._ask(self._order("list"))

    def ask_fetch(self, folder: str) -> Request:
        """Ask for a checkpoint to be copied from there into the local store, verified."""
        return self._ask(self._order("fetch", folder))

    def ask_part(self, folder: str, files: Sequence[str], into: Path) -> Request:
        """Ask for some files of a checkpoint there, verified, and its manifest, to be brought into a folder here."""
        return self._ask(replace(self._order("part", folder), files=tuple(files), into=str(into)))

    def landing(self, folder: str) -> Landing:
        """Where the shards of a checkpoint meet there."""
        return Landing(url=self.url, folder=folder, filesystem=self._packed)

    def ask_copy(self, name: str) -> Request:
        """Ask for a checkpoint to be copied there now, while others wait for it."""
        return self._ask(self._order("copy", name))

    def _ask(self, order: MirrorOrder) -> Request:
        """What is being copied is let be finished first; what it becomes is not lost: it is offered again."""
        copying, self._copying = self._copying, None
        if copying is not None:
            self._courier.part()
            self._waiting = self._waiting or (None if copying is self._undone else copying)
        return Request(self._courier, order, self.policy.backoff, self.policy.tries_to_read, self.clock, self._rng)

    def _order(self, do: str, what: str = "") -> MirrorOrder:
        return MirrorOrder(
            do=do,
            url=self.url,
            root=str(self.store.root),
            kind=self.store.kind,
            what=what,
            rules=tuple(self._rules),
            orphan_after_s=self.policy.orphan_after_s,
            filesystem=self._packed,
        )

    def _advance(self) -> None:
        ticket = self._undone or self._waiting
        if self._copying is not None or ticket is None or self.clock.monotonic_s() < self._rest_until_s:
            return
        self._copying = ticket
        self._waiting = None if ticket is self._waiting else self._waiting
        try:
            copy = self._order("tidy" if self.apart else "copy", ticket.name)
            self._courier.send(self._order("withdraw") if ticket is self._undone else copy)
        except OSError as error:
            self._failed(ticket, f"no process to copy it: {error}")

    def _hear(self, *, wait_s: float = 0.0) -> None:
        ticket = self._copying
        if ticket is None:
            return
        try:
            message = self._courier.hear(wait_s=wait_s)
        except OSError as error:
            self._failed(ticket, str(error))
            return
        if message is not None:
            self._understand(ticket, message)

    def _understand(self, ticket: Ticket, message: Message) -> None:
        if message["say"] == "withdrawn":
            self._copying = self._undone = None
        elif message["say"] == "copied":
            self._copying = None
            self.record = self.record.succeeded(self.clock.monotonic_s())
            data: dict[str, Any] = {name: message[name] for name in ("folder", "bytes", "removed", "unpruned")}
            kept = {name: value for name, value in data.items() if value}
            self._tell(NewsKind.MIRRORED, self.shown, ticket, took_s=round(float(message["took_s"]), 3), **kept)
        elif message["say"] == "gone":
            self._copying = None
            self._drop(ticket, str(message["why"]))
        else:
            self._failed(ticket, str(message["why"]))

    def _failed(self, ticket: Ticket, why: str) -> None:
        self._copying = None
        self.record = self.record.failed_with(why)
        failures = self.record.failures_in_a_row
        wait_s = self.policy.backoff.wait_s(failures, self._rng)
        self._rest_until_s = self.clock.monotonic_s() + wait_s
        said = f"{why}; the local checkpoints stand, training goes on, the next try comes in {wait_s:.0f} s"
        self._tell(NewsKind.MIRROR_FAILED, said, ticket, in_a_row=failures, remote=self.shown)
        if ticket is self._undone:  # it stays the next thing to do
            return
        if self._waiting is None:
            self._waiting = ticket
        else:
            self._drop(ticket, "it could not be copied, and a newer one is there by now")

    def _drop(self, ticket: Ticket, why: str) -> None:
        if self.apart:  # it is there all the same; only what follows is done with the next one
            return
        self.record = self.record.dropped_one()
        self._tell(NewsKind.MIRROR_DROPPED, why, ticket, remote=self.shown)

    def _tell(self, kind: NewsKind, why: str, ticket: Ticket, **data: Any) -> None:
        self._news.append(News(kind=kind, why=why, ticket=ticket, data=data))


def listing_of(answer: Message) -> RemoteShelfNews:
    """What :meth:`Mirror.ask_listing` was told."""
    entries = tuple(Listed(**entry) for entry in answer["entries"])
    return RemoteShelfNews(entries=entries, foreign=str(answer["foreign"]))


def mirror_behind(  # noqa: PLR0913 -- as above
    store: ArtifactStore,
    url: str,
    clock: Clock,
    *,
    rules: Sequence[Last | Best | Every] = (Last(),),
    policy: MirrorPolicy | None = None,
    seed: int = 0,
    filesystem: Any = None,
) -> Mirror:
    """A mirror in a process of its own: what a run uses."""
    rng = random.Random(seed)
    return Mirror(store, url, clock=clock, rng=rng, policy=policy, rules=rules, filesystem=filesystem)
