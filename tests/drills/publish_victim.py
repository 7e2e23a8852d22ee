"""Publishes a release again and again, each time killed one line later; prints what a kill left that it should not.

``python -m tests.drills.publish_victim ROOT``: the gates are left out, since they only read; all that writes is real.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactError, FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.release import publish
from failsoft.release.candidate import contents_of
from failsoft.release.leftovers import leftovers
from failsoft.release.report import GateReport, GateResult

_TRACED = ("publish.py", "leftovers.py", "store.py", "asides.py", "manifest.py")
_NAME = "r-1"


def passed(candidate: Any, *_: Any, **__: Any) -> GateReport:
    """A report of gates that all passed."""
    fine = GateResult(name="a gate", passed=True, value=None, limit=None, why="fine")
    return GateReport(release=candidate.name, results=(fine,), facts={"contents": contents_of(candidate.path)})


def fill(folder: Path) -> None:
    """Two parts."""
    (folder / "weights").write_bytes(b"w" * 5000)
    (folder / "labels").write_text("labels")


def publish_once(home: Home, name: str = _NAME) -> None:
    """What a training run does at its end."""
    publish.Publisher(home=home, clock=SystemClock()).publish(fill, name=name, provenance={"run": name})


def doomed(home: Home, line: int) -> None:
    """Publish in this process, and be killed before the n-th line of our own code."""
    left = line

    def step(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(_TRACED):
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return step

    sys.settrace(step)
    publish_once(home)


def wrong_after(home: Home) -> list[str]:
    """What must not be, whenever the process died."""
    store, found, damage = home.releases(SystemClock()), list[str](), list[str]()
    names = [artifact.name for artifact in store.listing()]
    newest = store.newest(on_damage=lambda name, why: damage.append(f"{name}: {why}"))
    if damage or not set(names) <= {"r-0", _NAME} or "r-0" not in names:
        found.append(f"listed {names}, damaged {damage}")
    if newest is None or newest.name != names[-1]:
        found.append(f"the newest is {newest and newest.name} of {names}")
    try:
        publish_once(home)
        if _NAME in names:
            found.append("a published release was published over")
    except ArtifactError as error:
        if _NAME not in names:
            found.append(f"it can't be published again: {error}")
    for leftover in leftovers(home, releases=store.root, keep_newest=0):
        leftover.remove()
    stay = [path.name for folder in (home.candidates, store.root) for path in folder.iterdir()]
    if sorted(stay) != ["r-0", _NAME]:
        found.append(f"after a clean-up there is {stay}")
    return found


def main(root: Path) -> int:
    """Exit status 0 when no kill left anything wrong; prints how many there were."""
    vars(publish)["gate_bundle"] = passed
    pristine, line = root / "pristine", 0
    publish_once(Home.find(pristine), "r-0")
    while True:
        tried = root / f"killed-{line}"
        shutil.copytree(pristine, tried)
        child = os.fork()
        if not child:
            try:
                doomed(Home.find(tried), line)
            except FailsoftError as error:
                print(f"line {line}: {error}", flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        for wrong in wrong_after(Home.find(tried)):
            print(f"killed before line {line}: {wrong}", flush=True)
        shutil.rmtree(tried)
        if not os.WIFSIGNALED(status):
            print(f"{line} kills", flush=True)
            return os.WEXITSTATUS(status)
        line += 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
