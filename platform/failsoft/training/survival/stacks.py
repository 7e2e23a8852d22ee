"""Where every thread of this process is: a file for people, and a short form for the ledger."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType

MAX_STACKS_CHARS = 12_000
"""Of a ledger event, which holds 64 KiB at most."""


def stacks_of_all_threads(*, first: int | None = None) -> str:
    """The Python stacks of all threads, innermost call last, without the one that asks.

    Args:
        first: identifier of the thread to put first, for what comes first survives a cut.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != threading.get_ident()}
    order = sorted(frames, key=lambda ident: ident != first)
    return "\n".join(_stack(names.get(ident, str(ident)), frames[ident]) for ident in order)


def frame_of(thread: int | None) -> FrameType | None:
    """The call that a thread is in; None when there is no such thread."""
    return None if thread is None else sys._current_frames().get(thread)


def innermost(thread: int | None) -> str:
    """The call that a thread is in, as ``file:line function``; empty when there is no such thread."""
    frame = frame_of(thread)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"


def bounded(text: str, limit: int = MAX_STACKS_CHARS) -> str:
    """The text, or its beginning and a note of how much is missing."""
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit} more characters in the file"


def _stack(name: str, frame: FrameType) -> str:
    return f"thread {name}:\n" + "".join(traceback.format_stack(frame))
