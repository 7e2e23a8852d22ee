"""Names a process so that a signal meets it or nobody: by machine, namespace, number and birth."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STACKS_SIGNAL = signal.SIGUSR2
"""Has a worker write where all its threads are; handled outside of Python, so also where Python stands still."""
_BIRTH_FIELD = 19
"""Of ``/proc/PID/stat``, counted behind the name, which may hold blanks: when it began, in ticks since the boot."""


@dataclass(frozen=True, kw_only=True)
class ProcessMark:
    """One process of some machine."""

    process: int
    """0 for one that takes no :data:`STACKS_SIGNAL`: a handler of the user's may be there."""
    born: str = ""
    place: str = ""
    """The boot of a machine, and the namespace that numbers its processes; "" where the system does not say."""

    def nudge(self) -> bool:
        """Have it write its stacks, from a process of the same place; returns whether it was sent the signal."""
        here = mark_of(self.process)
        if not self.process or not self.place or here != self:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.process, STACKS_SIGNAL)
            return True
        return False


def mark_of(process: int) -> ProcessMark:
    """Of a process of this machine, as this one sees it."""
    try:
        behind = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return ProcessMark(
            process=process, born=behind[_BIRTH_FIELD], place=f"{boot} {os.readlink('/proc/self/ns/pid')}"
        )
    except (OSError, IndexError):  # no such process, or no such system
        return ProcessMark(process=process)
