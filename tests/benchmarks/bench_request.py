"""What a gateway itself takes for a request, by this process's own time: while the model answers, and while degraded.

No Ray and no socket (``request_path.py``), ten requests at once.
"""

from __future__ import annotations

import asyncio
import time

from tests.benchmarks.measuring import Contender, interleave
from tests.benchmarks.outcome import Outcome
from tests.benchmarks.request_path import REQUESTS, apps, requests

AT_ONCE = 10


def measure(*, quick: bool) -> Outcome:
    """Both states in turns."""
    outcome, loop = Outcome(name="request"), asyncio.new_event_loop()
    contenders = [Contender(name=name, run=requests(loop, app, clients=AT_ONCE)) for name, app in apps().items()]
    serving, degraded = (one.name for one in contenders)
    timings = interleave(contenders, rounds=5 if quick else 60, control=serving, now=time.process_time)
    loop.close()
    for seconds in timings.seconds.values():
        seconds[:] = [one / REQUESTS for one in seconds]
    outcome.add("one request in a gateway, without HTTP", timings)
    outcome.ratios["degraded_over_serving"] = timings.ratio(degraded, serving)
    fastest = ", ".join(f"{name} {1e6 * min(seconds):.0f} µs" for name, seconds in timings.seconds.items())
    outcome.notes.append(f"fastest rounds, which a busy machine disturbs least: {fastest}")
    return outcome
