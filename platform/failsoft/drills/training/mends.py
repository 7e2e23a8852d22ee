"""What to do about a fault that a script did not survive."""

from __future__ import annotations

from failsoft.drills.fault import DrillFault

_GUARD = "guard the step: three lines, docs/guard_your_loop.md"
_SAVE = "save checkpoints and go on from the newest whole one: docs/guard_your_loop.md, Checkpoints that are never ill"
_LEAVE = "on SIGTERM save, then exit: failsoft's loop and Lightning do it; failsoft.training.survival.notice"
_DISK = "write aside, then rename, and go on training when a save fails: checkpoints_of in docs/guard_your_loop.md"

_MENDS: dict[DrillFault, str] = {
    DrillFault.NAN: _GUARD,
    DrillFault.INF: _GUARD,
    DrillFault.SPIKE: f"refuse spikes: GuardPolicy(norm_spikes=SpikePolicy()); {_GUARD}",
    DrillFault.POISONED_SAMPLE: _GUARD,
    DrillFault.OUT_OF_MEMORY: "split the batch when memory runs out: failsoft's TrainLoop does (docs/own_job.py)",
    DrillFault.HANG: "watch the run from outside of its main thread: failsoft.training.survival.watchdog.Watchdog",
    DrillFault.KILL_WORKER: _SAVE,
    DrillFault.KILL_DRIVER: f"run it under the supervisor (failsoft train); {_SAVE}",
    DrillFault.SIGTERM: f"{_LEAVE}; {_SAVE}",
    DrillFault.DRAIN: f"{_LEAVE}; {_SAVE}",
    DrillFault.TORN_CHECKPOINT: f"verify a checkpoint before it is loaded, and keep the one before; {_SAVE}",
    DrillFault.FLIPPED_CHECKPOINT: f"keep a digest of each checkpoint and look at it before loading; {_SAVE}",
    DrillFault.MISSING_CHECKPOINT: f"keep more than one checkpoint; {_SAVE}",
    DrillFault.FULL_DISK: _DISK,
    DrillFault.SLOW_DISK: _DISK,
    DrillFault.READ_ONLY_DISK: _DISK,
    DrillFault.CLOCK_JUMP: "measure durations with time.monotonic(), not time.time()",
}


def mend_of(kind: DrillFault) -> str:
    """What to do, with the page or the class that does it."""
    return _MENDS.get(kind, "docs/runbook.md")
