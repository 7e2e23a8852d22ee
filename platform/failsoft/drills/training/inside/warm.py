"""A process that has loaded torch already and becomes the script by a fork: starts in 0.1 s instead of 2.

``python -m failsoft.drills.training.inside.warm MODULE ...`` loads these modules, then reads one order a line from its
standard input: a start (answered with the process number), or a process number to be waited for (answered with its exit
status). Exits when its input ends.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from failsoft.drills.training.inside.arrive import arrive

READY = "ready"


def main(modules: list[str]) -> dict[str, Any] | None:
    """Serve; returns in each child what it shall run, and in the server itself None."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:  # of a module that the script makes itself: it will load it then
            continue
    _say(READY if threading.active_count() == 1 and _threads() == 1 else "threads")
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _say(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]))
            continue
        child = os.fork()
        if child == 0:
            return dict(order)
        _say(child)
    return None


def become(order: dict[str, Any]) -> None:
    """Be the process that the user would have started."""
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 -- lives as long as the process
    sys.stdout = open(1, "w", 1, closefd=False, encoding="utf-8")  # noqa: SIM115 -- the same
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [order["script"] or order["module"], *order["arguments"]]
    sys.path[0] = os.getcwd() if order["module"] else str(Path(order["script"]).parent)
    sys.path[1:1] = [place for place in order["search"] if place not in sys.path]
    arrive()


def run(order: dict[str, Any]) -> None:
    """The script itself, as ``python SCRIPT`` or ``python -m MODULE`` runs it."""
    if order["module"]:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(order["script"], run_name="__main__")


def _say(value: str | int) -> None:
    print(json.dumps(value), flush=True)


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    given = main(sys.argv[1:])
    if given is not None:
        become(given)
        run(given)
