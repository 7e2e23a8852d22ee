"""Runs in every Python process of a drilled app before the app's own code: makes a model slow, or it speak nonsense.

Ray calls :func:`install` as the job's ``worker_process_setup_hook``. It stands around Serve's one call of the user's
code, so no line of the app is changed; while no sign is up, that costs one look into a dictionary.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from failsoft.drills.serving.garbage import spoilt, spoilt_body
from failsoft.drills.serving.signs import FOLDER_VARIABLE, Sign, Signs, Told

LOOK_S = 0.05
"""How soon a sign is seen."""
_ASGI_ARGUMENTS = 3
"""Scope, receive and send."""

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Trouble:
    """What this process does wrong now.

    Args:
        signs: where it is told.
    """

    def __init__(self, signs: Signs) -> None:
        self._signs = signs
        self._told: Mapping[Sign, Told] = {}
        self._chance = random.Random(os.getpid())
        self._turn: asyncio.Lock | None = None
        self._said: set[Sign] = set()

    def start(self) -> None:
        """Look from now on."""
        threading.Thread(target=self._look, name="drill-signs", daemon=True).start()

    def told(self, sign: Sign, deployment: str = "") -> Told | None:
        """What this process, or this deployment in it, is told."""
        told = self._told.get(sign)
        return told if told is not None and told.concerns(deployment) else None

    def wall_off_s(self) -> float:
        """How far the wall clock is off."""
        told = self._told.get(Sign.CLOCK)
        if told is None:
            return 0.0
        self._say(Sign.CLOCK)
        return told.amount

    async def delay(self, deployment: str) -> None:
        """One call after the other waits its time, as for a model that computes; it ends with the sign."""
        if self.told(Sign.SLOW, deployment) is None:
            return
        self._say(Sign.SLOW)
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:
            waited_s = 0.0
            while (told := self.told(Sign.SLOW, deployment)) is not None and waited_s < told.amount:
                await asyncio.sleep(LOOK_S)
                waited_s += LOOK_S

    def returned(self, value: Any, deployment: str) -> Any:
        """What the model returned, or garbage of its form."""
        if self.told(Sign.GARBAGE, deployment) is None:
            return value
        self._say(Sign.GARBAGE)
        return spoilt(value, self._chance)

    def spoiling(self, send: Send, deployment: str) -> Send:
        """The same for what an ASGI app sends."""

        async def sent(message: MutableMapping[str, Any]) -> None:
            if (
                message.get("type") == "http.response.body"
                and message.get("body")
                and self.told(Sign.GARBAGE, deployment)
            ):
                self._say(Sign.GARBAGE)
                message = {**message, "body": spoilt_body(message["body"], self._chance)}
            await send(message)

        return sent

    def _say(self, sign: Sign) -> None:
        if sign not in self._said:
            self._said.add(sign)
            self._signs.say_struck(sign)

    def _look(self) -> None:
        never = threading.Event()
        while not never.wait(LOOK_S):
            self._told = self._signs.read()
            self._said &= set(self._told)


def install() -> None:
    """For Ray, in each worker process of the drilled app. Does nothing where no drill says where its signs are."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    trouble = Trouble(Signs(Path(folder)))
    trouble.start()
    _stand_before_clock(trouble)
    _stand_around_calls(trouble)


def _stand_before_clock(trouble: Trouble) -> None:
    """Whoever asks ``time`` by its module's name; a clock jump meets those who keep real time by it."""
    right_s, right_ns = time.time, time.time_ns  # noqa: TID251 -- the clock that is to be wrong

    def wrong_s() -> float:
        return right_s() + trouble.wall_off_s()

    def wrong_ns() -> int:
        return right_ns() + int(trouble.wall_off_s() * 1e9)

    time.time, time.time_ns = wrong_s, wrong_ns  # noqa: TID251 -- likewise


def _stand_around_calls(trouble: Trouble) -> None:
    from ray.serve._private.replica import UserCallableWrapper  # noqa: PLC0415 -- only processes of a drilled app load it

    wrapper: Any = UserCallableWrapper
    called = wrapper._call_func_or_gen

    async def call(self: Any, function: Callable[..., Any], **how: Any) -> Any:
        if "is_streaming" not in how:  # the constructor, a health check: a sick model passes them, too
            return await called(self, function, **how)
        deployment = str(self._deployment_id.name)
        await trouble.delay(deployment)
        arguments: list[Any] = list(how.get("args") or ())
        if len(arguments) == _ASGI_ARGUMENTS and callable(arguments[-1]):
            how["args"] = (*arguments[:-1], trouble.spoiling(arguments[-1], deployment))
            return await called(self, function, **how)
        result, consumed = await called(self, function, **how)
        return trouble.returned(result, deployment), consumed

    wrapper._call_func_or_gen = call
