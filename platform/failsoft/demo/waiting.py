"""Waiting for people."""

from __future__ import annotations

import threading

from rich.console import Console


def until_interrupted(console: Console) -> None:
    """Return when Ctrl-C is pressed."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print("stopping")
