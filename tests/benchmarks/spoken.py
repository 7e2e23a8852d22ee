"""Waiting for the line that a host prints once it is ready, no longer than told; in vain, its last words are told."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from pathlib import Path

from tests.benchmarks.process_tree import descendants

LAST_WORDS = 3000
"""So many characters of a host's log are told."""
_WRITES_S, _CLOSED_S = 1.0, 5.0
"""For a few lines into a log; a process closes its output a moment before it is gone."""


class SilentHostError(AssertionError):
    """A host said nothing in time, or ended before it did."""


def line_of(process: subprocess.Popen[bytes], *, within_s: float, log: Path) -> str:
    """The next line that the process prints.

    Args:
        process: its standard output is a pipe that nobody else reads.
        within_s: seconds.
        log: where its errors go.

    Raises:
        SilentHostError: it ended, or it said no whole line in time. With the last of its log.
    """
    assert process.stdout is not None
    end_s, said = time.monotonic() + within_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in said:
            if not selector.select(max(0.0, end_s - time.monotonic())):
                below = len(descendants(process.pid)) - 1
                _ask_where(process)
                raise SilentHostError(f"not ready within {within_s:g} s, {below} processes below it; {last_words(log)}")
            part = os.read(process.stdout.fileno(), 65536)
            if not part:
                raise SilentHostError(f"ended before it was ready{_status(process)}; {last_words(log)}")
            said += part
    return said.decode("utf-8").partition("\n")[0]


def _ask_where(process: subprocess.Popen[bytes]) -> None:
    """A host that is led writes where it stands into its log; another one ends, and nobody waits for it any more."""
    process.send_signal(signal.SIGUSR1)
    time.sleep(_WRITES_S)


def _status(process: subprocess.Popen[bytes]) -> str:
    try:
        return f", status {process.wait(_CLOSED_S)}"
    except subprocess.TimeoutExpired:
        return f", and runs on as {process.pid}"


def last_words(log: Path) -> str:
    """What a log ends with, for people."""
    said = log.read_text("utf-8", "replace").strip()[-LAST_WORDS:]
    return f"it said last: {said}" if said else "it said nothing at all"
