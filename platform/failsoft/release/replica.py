"""What a real replica process said: the online half of the comparison between training and serving.

A child process loads the release with serving's own code and answers texts by serving's own path; what comes back is
plain data. Who starts that process is the composition root's affair.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failsoft.errors import DamagedArtifactError
from failsoft.health.json_object import json_value

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class OnlineAnswer:
    """What the replica made of one text."""

    ids: tuple[int, ...] | None
    """Word numbers that reached the network; None when the model was not asked."""
    logits: tuple[float, ...] | None
    """Intent logits that left it."""
    intent: str
    source: str
    """Who gave the answer: the model, or a rung of the fallback ladder."""
    latency_ms: float
    """Of the whole path, from the text as a caller wrote it to the answer."""


@dataclass(frozen=True, kw_only=True)
class ReplicaReport:
    """One start of a replica."""

    answers: tuple[OnlineAnswer, ...]
    """In the order asked."""
    load_s: float
    rss_mb: float
    """Memory of the process when all was answered, in 10^6 bytes."""
    pid: int

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads."""
        return json.dumps({"format": _FORMAT} | asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ReplicaReport:
        """Read what a replica wrote.

        Raises:
            DamagedArtifactError: it is not such a text.
        """
        try:
            body = json_value(text)
            if body.pop("format") != _FORMAT:
                raise ValueError("another format")
            answers = tuple(_answer(entry) for entry in body.pop("answers"))
            return cls(answers=answers, **body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedArtifactError(f"the replica said what is no report ({error!r}): {text[:200]!r}") from error

    def latency_ms(self, quantile: float) -> float:
        """Of the texts that the model answered, nearest rank; NaN without any. The first one warms up."""
        times = sorted(answer.latency_ms for answer in self.answers[1:] if answer.ids is not None)
        return times[math.ceil(quantile * len(times)) - 1] if times else math.nan


Probe = Callable[[Path, Sequence[str]], ReplicaReport]
"""Starts a replica of the release in a folder and has it answer texts; raises a FailsoftError when it can't."""


def _answer(entry: dict[str, Any]) -> OnlineAnswer:
    ids, logits = entry.pop("ids"), entry.pop("logits")
    return OnlineAnswer(
        ids=None if ids is None else tuple(ids), logits=None if logits is None else tuple(logits), **entry
    )
