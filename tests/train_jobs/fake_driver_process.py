"""A driver's process without Ray: answers orders as its first argument says, then takes the handle for answers."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, TextIO


def main(kind: str, handle: int, stacks: int) -> None:
    faulthandler.register(signal.SIGUSR2, file=stacks)
    with os.fdopen(handle, "w", encoding="utf-8") as answers:
        config = json.loads(sys.stdin.readline())
        looks = 0
        for line in sys.stdin:
            order = json.loads(line)
            looks += order["do"] == "rooms"
            if order["do"] == "end" or (order["do"] == "attempt" and kind == "leaving"):
                return
            if order["do"] == "attempt" and kind.startswith("torn "):
                os.write(handle, kind.removeprefix("torn ").encode("latin-1"))
                os.kill(os.getpid(), signal.SIGKILL)
            if order["do"] == "attempt" and kind in {"frozen", "still", "moving"}:
                stand_still(kind, answers, Path(config["home"]) / "runs" / config["run"])
            answers.write(json.dumps({"id": order["id"]} | answer(kind, order, config, looks)) + "\n")
            answers.flush()


def stand_still(kind: str, answers: TextIO, folder: Path) -> None:
    """Frozen: not even a beat. Still: beats, and nothing moves. Moving: workers get on, for 3 s."""
    if kind == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    folder.mkdir(parents=True, exist_ok=True)
    for beat in range(1000 if kind != "moving" else 30):
        answers.write('{"beat": 1}\n')
        answers.flush()
        if kind == "moving":
            (folder / "position").write_bytes(beat.to_bytes(8, "little"))
        threading.Event().wait(0.1)


def answer(kind: str, order: dict[str, Any], config: dict[str, Any], looks: int) -> dict[str, Any]:
    if order["do"] == "rooms":
        if kind == "never-knows" or (kind == "forgets" and looks > 1):
            return {"value": None}
        room = {"node": "ab", "name": "here", "free": {"CPU": 1.0}, "total": {"CPU": 2.0}, "state": "draining"}
        return {"value": [room]}
    if order["do"] == "start" and kind == "refusing":
        return {"error": "CorpusError", "says": f"the data of {config['run']} can't be read"}
    if order["do"] == "start" and (kind == "no-ray" or (kind.startswith("late-ray ") and is_first(kind.split()[1]))):
        return {"error": "NoRayError", "says": "no Ray here"}
    return attempt(kind, order) if order["do"] == "attempt" else {"value": None}


def attempt(kind: str, order: dict[str, Any]) -> dict[str, Any]:
    if kind == "failed-by-ray":
        return {"error": "DriverLostError", "says": "the attempt failed of what the run stands on: RaySystemError: x"}
    if kind == "dying":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": f"{order['workers']} without {order['excluded']} in {os.getpid()}"}


def is_first(mark: str) -> bool:
    """Of all processes that ask."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
