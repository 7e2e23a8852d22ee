"""The ``traceparent`` header of W3C Trace Context, level 1 and what later versions promise to keep of it."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1
HEADER = b"traceparent"


class Parent(NamedTuple):
    """The span of somebody else in which a request was made."""

    trace_id: int
    span_id: int
    sampled: bool


def parent_of(headers: list[tuple[bytes, bytes]]) -> Parent | None:
    """The one parent that a request's headers name; None when they name none, several, or what is none."""
    values = [value for name, value in headers if name == HEADER]
    found = _FORM.fullmatch(values[0].strip()) if len(values) == 1 else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more) or not int(trace, 16) or not int(span, 16):
        return None
    return Parent(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))
