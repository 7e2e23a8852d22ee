"""Waiting for people."""

from __future__ import annotations

import signal
import threading

from rich.console import Console


def until_interrupted(console: Console) -> None:
    """Return on Ctrl-C or SIGTERM, so that the caller's ``finally`` stops what it started. For the main thread."""
    asked = threading.Event()
    before = {one: signal.signal(one, lambda *_: asked.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        asked.wait()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    console.print("stopping")
