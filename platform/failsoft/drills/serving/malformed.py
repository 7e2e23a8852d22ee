"""What no app should choke on: requests that are no JSON, JSON of another form, and texts as no training text was."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

_NESTED = 2_000
_LONG = 20_000
_EMOJI = "\U0001f600\U0001f525\U0001f468\u200d\U0001f469\u200d\U0001f467"
_JOINERS = ("\u200b", "\u200d", "\u2060", "\ufeff")
_FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_BYTES = (
    b"",
    b"{",
    b'{"text": "cut of',
    b"\xff\xfe\x00\x00",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"[" * _NESTED,
    b'{"text": 1e999}',
    b"name=value&other=1",
)
"""Of another form, whatever the app takes."""


def malformed_bodies(payloads: Sequence[Any], chance: random.Random) -> list[bytes]:
    """Bodies that must be refused or answered, and neither break an app nor hurt whoever asks beside them.

    Args:
        payloads: what the app takes; each is bent in many ways.
        chance: draws how.
    """
    bent = [_encoded(_bent(payload, how, chance)) for payload in payloads for how in _WAYS]
    bodies = [*_BYTES, *bent]
    chance.shuffle(bodies)
    return bodies


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _bent(value: Any, how: str, chance: random.Random) -> Any:
    """The payload with each of its leaves bent."""
    if isinstance(value, dict):
        return {name: _bent(part, how, chance) for name, part in value.items()}
    if isinstance(value, list) and value:
        return [_bent(part, how, chance) for part in value]
    return _leaf(value, how, chance)


_WAYS = ("null", "list", "number", "long", "emoji", "joined", "wide", "surrogate", "control")


def _leaf(value: Any, how: str, chance: random.Random) -> Any:
    text = value if isinstance(value, str) else ""
    bent = {
        "null": None,
        "list": [value, value],
        "number": chance.choice((-1e308, 1e308, 2**63, -0.0)),
        "long": (text or "a ") * (_LONG // max(1, len(text or "a "))),
        "emoji": " ".join(word + _EMOJI for word in (text or "word").split(" ")),
        "joined": chance.choice(_JOINERS).join(text or "word"),
        "wide": (text or "word").translate(_FULL_WIDTH),
        "surrogate": f"{text}\ud800",
        "control": f"{text}\x00\x1b[31m",
    }
    return bent[how]
