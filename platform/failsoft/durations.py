"""Durations as people write them."""

from __future__ import annotations

import math
import re

from failsoft.errors import ConfigError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration_s(text: str) -> float:
    """Seconds in a duration like ``90s``, ``15m``, ``2h`` or ``1d``.

    Raises:
        ConfigError: not in that form, no time at all, or more than a number holds.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    if not 0.0 < seconds < math.inf:
        raise ConfigError(f"{text[:40]!r} is no duration; write a number above 0 and a unit, like 90s, 15m or 2h")
    return seconds
