"""A colour's model behind a Serve handle. Every way in which a call can fail becomes a value.

Never imports torch: the gateway must start and answer when no model can.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from failsoft.errors import NotLoadedError, SaturatedError, ServingError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.window import Outcome
from failsoft.serving.arms.coalescer import Coalescer, CoalescerPolicy
from failsoft.serving.arms.replies import ModelReply, read_reply
from failsoft.serving.request import NoReading, Reading
from failsoft.serving.seam import Quality
from failsoft.serving.web.problems import whole

_log = logging.getLogger(__name__)
_LOG_AGAIN_S = 10.0
"""A model that fails at every call is written of this often."""


class Due(NamedTuple):
    """A text, and when its caller will have left."""

    text: Any
    until_s: float
    asker: Any = None
    """Who asks, where somebody wants to know which call carried it."""


class HandleArm:
    """Asks one colour. Texts that come while calls are out travel together.

    Args:
        handle: of the model's deployment.
        quality: what scores mean, and which are credible.
        max_held: texts of this gateway that wait for the model or are with it; beyond that they are shed, which says
            nothing about the model.
        together: how texts travel together.
        weigh: how much of a call's room an item takes; characters unless told otherwise.
        clock: how much of a caller's time is left when the call goes out; the system's unless given.
    """

    def __init__(
        self,
        handle: DeploymentHandle[Any],
        quality: Quality,
        *,
        max_held: int = 64,
        together: CoalescerPolicy | None = None,
        weigh: Callable[[Any], int] = len,
        clock: Clock | None = None,
    ) -> None:
        self._handle = handle
        self._predict: Any = None
        """The handle of the method: Serve makes a new one each time that it is asked for by name."""
        self._quality = quality
        self._clock = clock or SystemClock()
        self._logged_s = -math.inf
        self._weigh = weigh
        self._coalescer = Coalescer(self._ask_all, policy=together, max_held=max_held, weigh=self._weight)
        self.starting = True
        """No replica has been found yet. Callers don't wait for that, and it says nothing about the model."""

    @property
    def held(self) -> int:
        """Texts that wait for the model or are with it."""
        return self._coalescer.held

    async def warm_up(self, *, within_s: float) -> None:
        """Find the replicas before callers pay for it; after ``within_s`` a model that is not there counts as late."""
        try:
            async with asyncio.timeout(within_s):
                await self._handle.describe.remote()
        except (TimeoutError, RayError, RayServeException) as error:
            _log.warning("%s was not found within %.0f s: %s", self._handle.deployment_name, within_s, last_line(error))
        finally:
            self.starting = False

    async def ask(self, text: Any, *, within_s: float = math.inf) -> Reading | NoReading:
        """Ask the model; cancelling this cancels the call, unless others wait for it too.

        ``within_s`` travels with the call, since a cancellation may come late, or not at all when this process dies.
        """
        if self.starting:
            return NoReading(outcome=Outcome.SHED, why="the model is still starting")
        try:
            return await self._coalescer.ask(self._due(text, self._clock.monotonic_s() + within_s))
        except SaturatedError as error:
            return NoReading(outcome=Outcome.SHED, why=f"the model's queue is full: {error}")
        except ServingError as error:
            return NoReading(outcome=Outcome.ERROR, why=f"the model failed: {error}")

    def _due(self, text: Any, until_s: float) -> Due:
        return Due(text, until_s)

    def _weight(self, due: Due) -> int:
        """One that can't be weighed fills a call: anybody's inputs weigh, and their item is asked all the same."""
        try:
            return int(self._weigh(due.text))
        except Exception as error:  # noqa: BLE001 -- at the head of the line it would hold up all that come after it
            _log.warning("an item can't be weighed and travels alone: %s", last_line(error))
            return sys.maxsize

    async def _ask_all(self, dues: Sequence[Due]) -> Sequence[Reading | NoReading]:
        texts = [due.text for due in dues]
        try:
            return self._judged(await self._call(texts, self._left_s(dues)), texts=len(texts))
        except BackPressureError as error:
            return [NoReading(outcome=Outcome.SHED, why=f"the model's queue is full: {error}")] * len(texts)
        except (NotLoadedError, SaturatedError) as error:
            return [NoReading(outcome=Outcome.SHED, why=f"the model could not begin: {last_line(error)}")] * len(texts)
        except (RayError, RayServeException) as error:
            if len(texts) > 1 and _raised_over_a_text(error):
                return [(await self._ask_all([due]))[0] for due in dues]
            return self._failed("the model failed", error, texts=len(texts))
        except Exception as error:  # noqa: BLE001 -- another process's reply may be anything; its callers get the fallback
            return self._failed("the model's reply can't be read", error, texts=len(texts))

    def _judged(self, reply: ModelReply, *, texts: int) -> Sequence[Reading]:
        return read_reply(reply, self._quality, texts=texts)

    def _failed(self, how: str, error: Exception, *, texts: int) -> list[NoReading]:
        """Callers hear of which kind the error is; its words go to the log, now and then.

        They may name a secret of the model's host, or another caller's text.
        """
        now_s = self._clock.monotonic_s()
        if not now_s - self._logged_s < _LOG_AGAIN_S:
            self._logged_s = now_s
            _log.warning("%s: %s: %s", self._handle.deployment_name, how, last_line(error))
        return [NoReading(outcome=Outcome.ERROR, why=f"{how}: {kind_of(error)}")] * texts

    def _left_s(self, dues: Sequence[Due]) -> float:
        """As long as the most patient of those who travel together."""
        return max(due.until_s for due in dues) - self._clock.monotonic_s()

    async def _call(self, texts: Sequence[Any], within_s: float) -> ModelReply:
        if self._predict is None:
            self._predict = self._handle.predict
        response = self._predict.remote(texts, within_s)
        try:
            reply: ModelReply = await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        return reply


def last_line(error: Exception) -> str:
    """What went wrong, without the remote traceback above it; half characters of an instance in it become U+FFFD."""
    lines = str(error).strip().splitlines() or [""]
    return whole(f"{error.__class__.__name__}: {lines[-1][:200]}")


def kind_of(error: Exception) -> str:
    """The class of an error, or of what it was in the model's process."""
    return type(getattr(error, "cause", None) or error).__name__


def _raised_over_a_text(error: Exception) -> bool:
    """Whether the model itself raised: one text of several may have done that, and must not cost the others theirs.

    A replica that is gone is not asked the same again: the text that killed it would kill the next one.
    """
    return isinstance(error, RayTaskError) and not isinstance(error, ServingError)
