"""A served app is left by Ctrl-C or SIGTERM, and either way what was started is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, threading
from rich.console import Console
from failsoft.demo.waiting import until_interrupted

default, poll = signal.getsignal(signal.SIGTERM), threading.Event()

def tell_when_it_listens():
    while signal.getsignal(signal.SIGTERM) == default:
        poll.wait(0.01)
    print("ready", flush=True)

threading.Thread(target=tell_when_it_listens).start()
try:
    until_interrupted(Console())
finally:
    print("stopped all", flush=True)
"""


@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting_and_lets_the_caller_clean_up(one: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(one)
        rest = process.stdout.read()
    assert "stopped all" in rest
