"""Who answered, span by span: what an incident's report is drawn from. One JSON line a span and gateway.

A line (version 1) has ``at_s`` (wall time of its end), ``span_s``, ``gateway``, ``epoch``, ``stage``, ``release``,
``answers`` (source → why not the model in service → count), ``confidence`` (counts of tenths, of answers by a model),
``slowest_ms`` and ``specimens``. A span without a request writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failsoft.health.clock import Clock
from failsoft.health.ledger_files import append_line, put_away
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.watching.few_names import one_of_few
from failsoft.serving.watching.specimens import Specimens, Whose
from failsoft.serving.web.messages import Answer

_log = logging.getLogger(__name__)
FILE_NAME = "answers.jsonl"
VERSION = 1
SPAN_S = 5.0
HELD = 720
"""Spans that a gateway holds for who looks at it: an hour."""
FULL_BYTES = 8 * 1024 * 1024
"""Of one file; how many stay is a matter of :class:`failsoft.health.retention.RetentionPolicy`."""
NONE = "none"
_TENTHS = 10


class AnswerHistory:
    """Of one gateway replica. Counting is O(1) and never waits.

    Args:
        gateway: its name.
        plan: the plan in force.
        clock: for the time of a span.
        specimens: takes those that the model in service did not answer.
    """

    def __init__(self, gateway: str, plan: Callable[[], RoutingPlan], clock: Clock, specimens: Specimens) -> None:
        self._gateway = gateway
        self._plan = plan
        self._clock = clock
        self._specimens = specimens
        self._began_s = clock.monotonic_s()
        self._answers: dict[str, Counter[str]] = {}
        self._tenths = [0] * _TENTHS
        self._slowest_ms = 0.0
        self.held: deque[dict[str, Any]] = deque(maxlen=HELD)
        """The last spans, oldest first, without their specimens."""

    def answered(self, answer: Answer, why: str, asked: Any, caller: int | None = None) -> None:
        """One item was answered; ``why``: why not the model in service, in a word."""
        self._answers.setdefault(one_of_few(answer.source, self._answers), Counter())[why] += 1
        if answer.release is not None and answer.confidence is not None and 0.0 <= answer.confidence <= 1.0:
            self._tenths[min(_TENTHS - 1, int(answer.confidence * _TENTHS))] += 1
        self._slowest_ms = max(self._slowest_ms, answer.latency_ms)
        if why != NONE:
            self._specimens.offer(asked, why, answer.degrade_reason or "", Whose(answer.request_id, caller))

    def take(self) -> dict[str, Any] | None:
        """The span since the last one, which it ends; None when nothing was answered."""
        now_s, began_s = self._clock.monotonic_s(), self._began_s
        self._began_s = now_s
        if not self._answers:
            return None
        plan = self._plan()
        line: dict[str, Any] = {
            "v": VERSION,
            "at_s": round(self._clock.wall_s(), 3),
            "span_s": round(now_s - began_s, 3),
            "gateway": self._gateway,
            "epoch": plan.epoch,
            "stage": str(plan.stage),
            "release": plan.subject_release,
            "answers": {source: dict(whys) for source, whys in self._answers.items()},
            "confidence": self._tenths,
            "slowest_ms": round(self._slowest_ms, 2),
            "specimens": self._specimens.take(),
        }
        self._answers, self._tenths, self._slowest_ms = {}, [0] * _TENTHS, 0.0
        self.held.append(line | {"specimens": []})  # what is removed from the disk must not live on in here
        return line

    async def keep(self, path: Path) -> None:
        """Write each span, for ever. A disk that refuses costs that span's line, with a word in the log."""
        while True:
            await asyncio.sleep(SPAN_S)
            line = self.take()
            if line is not None:
                try:
                    await asyncio.to_thread(_write, path, line)
                except OSError as error:
                    _log.warning("%s can't be written (%s); who answered in this span is not kept", path, error)


def _write(path: Path, body: dict[str, Any]) -> None:
    size = append_line(path, json.dumps(body, separators=(",", ":")).encode() + b"\n")
    if size >= FULL_BYTES:
        put_away(path, full_bytes=FULL_BYTES)
