"""The training's end of the process that copies: started when needed, killed when it hangs, one order at a time."""

from __future__ import annotations

import random
from collections.abc import Callable

from failsoft.errors import ArtifactError, ArtifactMissingError, DamagedArtifactError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.lifecycle import Lifecycle
from failsoft.training.checkpoints.mirror_order import MirrorOrder
from failsoft.training.checkpoints.writer_link import NO_MEMORY, Link, Message
from failsoft.training.checkpoints.writer_stage import MOVES, Stage

_UNHEALTHY = {"gone": ArtifactMissingError, "damaged": DamagedArtifactError}


class Courier:
    """Sends orders and hears answers; whatever goes wrong with the process is an OSError.

    Args:
        start: starts the process.
        clock: time for patience.
        patience_s: how long it may say nothing while it has an order.
    """

    def __init__(self, start: Callable[[], Link], clock: Clock, *, patience_s: float) -> None:
        self._start = start
        self._clock = clock
        self._patience_s = patience_s
        self._link: Link | None = None
        self._life = Lifecycle(MOVES, Stage.ABSENT)
        self._heard_at_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether an order is being carried out."""
        return self._life.state is Stage.WRITING

    def send(self, order: MirrorOrder) -> None:
        """Hand an order over; only when none is being carried out.

        Raises:
            OSError: there is no process, or it takes nothing.
        """
        if self._link is None:
            self._link = self._start()
            self._life.move(Stage.READY, why="started")
        self._life.move(Stage.WRITING, why=order.do)
        self._heard_at_s = self._clock.monotonic_s()
        try:
            self._link.send(order.to_plain(), NO_MEMORY)
        except ConnectionError as error:
            self._kill(str(error))
            raise

    def hear(self, *, wait_s: float = 0.0) -> Message | None:
        """The answer, or None when there is none yet; waits for it at most ``wait_s``.

        Raises:
            OSError: the process died, or was killed because it said nothing for too long.
        """
        try:
            while self._link is not None and (message := self._link.receive(wait_s)) is not None:
                self._heard_at_s = self._clock.monotonic_s()
                if message["say"] != "beat":
                    self._life.move(Stage.READY, why=str(message["say"]))
                    return message
                wait_s = 0.0
        except ConnectionError as error:
            self._kill(str(error))
            raise
        silent_s = self._clock.monotonic_s() - self._heard_at_s
        if self.busy and not silent_s < self._patience_s:
            why = f"the remote store, or the process that talks to it, said nothing for {silent_s:.0f} s"
            self._kill(why)
            raise TimeoutError(why)
        return None

    def hurry(self) -> None:
        """Somebody waits for the order at hand."""
        if self._link is not None and self.busy:
            self._link.hurry()

    def part(self) -> None:
        """Let the process finish what it is at by itself, however long that takes. Usable again afterwards."""
        link, self._link = self._link, None
        if link is not None:
            link.part()
            self._life.move(Stage.ABSENT, why="parted")

    def _kill(self, why: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.stop()
            self._life.move(Stage.ABSENT, why=why)


class Request:
    """A question with tries and waits between them, asked piece by piece, so that a rank can meet the others meanwhile.

    Args:
        courier: must be idle.
        order: what is asked.
        backoff: waits between the tries.
        tries: how many.
        clock: time for the waits.
        rng: chance for the waits.
    """

    def __init__(
        self, courier: Courier, order: MirrorOrder, backoff: BackoffPolicy, tries: int, clock: Clock, rng: random.Random
    ) -> None:
        self._courier = courier
        self._order = order
        self._backoff = backoff
        self._tries = tries
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._rest_until_s = clock.monotonic_s()
        self._answer: Message | None = None
        self._error: OSError | ArtifactError | None = None

    def poll(self, within_s: float) -> bool:
        """Go on with it for about so long; True when it is over."""
        until_s = self._clock.monotonic_s() + within_s
        while not self._over and (left_s := until_s - self._clock.monotonic_s()) > 0.0:
            self._go_on(left_s)
        return self._over

    def result(self) -> Message:
        """The answer.

        Raises:
            OSError: every try failed.
            DamagedArtifactError: what was asked for is damaged.
            ArtifactMissingError: it is not there any more.
        """
        if self._error is not None:
            raise self._error
        if self._answer is None:
            raise TimeoutError(f"the remote store has not answered yet: {self._order.do}")
        return self._answer

    @property
    def _over(self) -> bool:
        return self._answer is not None or self._error is not None

    def _go_on(self, left_s: float) -> None:
        resting_s = self._rest_until_s - self._clock.monotonic_s()
        if resting_s > 0.0:
            self._clock.sleep_s(min(resting_s, left_s))
            return
        try:
            if not self._courier.busy:
                self._courier.send(self._order)
                self._courier.hurry()
            message = self._courier.hear(wait_s=left_s)
        except OSError as error:
            self._failed(error)
            return
        if message is not None:
            self._understand(message)

    def _understand(self, message: Message) -> None:
        say, why = str(message["say"]), str(message.get("why", ""))
        if say in _UNHEALTHY:
            self._error = _UNHEALTHY[say](why)
        elif say == "refused":
            self._failed(OSError(why))
        else:
            self._answer = message

    def _failed(self, error: OSError) -> None:
        self._failures += 1
        if self._failures >= self._tries:
            self._error = error
        self._rest_until_s = self._clock.monotonic_s() + self._backoff.wait_s(self._failures, self._rng)
