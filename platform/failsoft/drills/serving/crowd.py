"""Requests of others, from a process of their own: this many clients at once, for so long, and what came of it.

``python -m failsoft.drills.serving.crowd FILE`` reads what to do from a JSON file and prints the counts as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from failsoft.health.clock import Clock, SystemClock

_KEPT_WORDS = 4


class Crowd:
    """Clients that ask as fast as they are answered, or with a pause between.

    Args:
        asked: ``url``, ``method``, ``headers``, ``bodies`` (base64), ``clients``, ``seconds``, ``pause_s``,
            ``patience_s``, and ``may_refuse``: whether 429 and 503 are right answers.
        clock: ends it.
        transport: of the requests; None: the network.
    """

    def __init__(
        self, asked: Mapping[str, Any], clock: Clock, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._asked, self._clock, self._transport = asked, clock, transport
        self._bodies = itertools.cycle([base64.b64decode(body) for body in asked["bodies"]])
        self.answered = 0
        self.wrong = self.served = 0
        self.words: list[str] = []

    async def run(self) -> dict[str, Any]:
        """The counts: ``asked``, ``served``, ``wrong`` and the first words about those; when it began and ended.

        The clock of the system that goes on is the same in each of its processes, so the drill can place the moments.
        """
        began_s = self._clock.monotonic_s()
        until_s = began_s + float(self._asked["seconds"])
        clients = int(self._asked["clients"])
        limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
        how: dict[str, Any] = {"timeout": float(self._asked["patience_s"]), "limits": limits}
        async with httpx.AsyncClient(transport=self._transport, **how) as client, asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._ask_until(client, until_s))
        times = {"began_s": began_s, "ended_s": self._clock.monotonic_s()}
        return {"asked": self.answered, "served": self.served, "wrong": self.wrong, "words": self.words} | times

    async def _ask_until(self, client: httpx.AsyncClient, until_s: float) -> None:
        while True:  # once at least, also where the process started late
            body = next(self._bodies)
            said = await self._status(client, body)
            self.answered += 1
            if said is not None:
                self.wrong += 1
                self.words += [f"{body[:60]!r}: {said}"] if len(self.words) < _KEPT_WORDS else []
            if not self._clock.monotonic_s() < until_s:
                return
            await asyncio.sleep(float(self._asked["pause_s"]))

    async def _status(self, client: httpx.AsyncClient, body: bytes) -> str | None:
        """None: a right answer. Else what was wrong with it."""
        headers = {"content-type": "application/json", **self._asked["headers"]}
        try:
            response = await client.request(self._asked["method"], self._asked["url"], content=body, headers=headers)
        except httpx.HTTPError as error:
            return f"no answer: {error.__class__.__name__}"
        self.served += response.is_success
        if self._asked["may_refuse"] and response.status_code in {429, 503}:
            return None
        return f"{response.status_code} {response.text[:80]}" if response.status_code >= 500 else None


def main(arguments: list[str]) -> int:
    """Exit status 0 once the counts are printed."""
    asked = json.loads(Path(arguments[0]).read_text("utf-8"))
    sys.stdout.write(json.dumps(asyncio.run(Crowd(asked, SystemClock()).run())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
