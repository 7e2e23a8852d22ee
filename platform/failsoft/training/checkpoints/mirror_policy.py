"""How much trouble with the remote store a run puts up with. Pure: counts in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy


@dataclass(frozen=True, kw_only=True)
class MirrorPolicy:
    """Limits of patience with the remote store. Trouble with it alone stops no run, unless that is asked for."""

    stop_after_s: float | None = None
    """So long without any success, while copies fail, ends the run; None: it goes on, its local disk is fine."""
    patience_s: float = 120.0
    """How long the process that copies may say nothing (it speaks after every few megabytes) before it is killed."""
    backoff: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(cap_s=300.0))
    """Waits between tries."""
    tries_to_read: int = 3
    """Tries to read the remote store before a run that restores gives up on it."""
    wait_at_end_s: float = 600.0
    """How long a finished run waits for its last checkpoint to be copied."""
    wait_when_told_s: float = 20.0
    """The same for a run that was told to leave; the copying goes on without the run as long as the machine lives."""
    orphan_after_s: float = 3600.0
    """A folder that nobody has finished for so long was left by a killed process, and is removed."""

    def __post_init__(self) -> None:
        """Refuse limits that are none."""
        for name in ("patience_s", "orphan_after_s"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use a time above 0")
        for name in ("wait_at_end_s", "wait_when_told_s"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 0 or more")
        if self.stop_after_s is not None and not self.stop_after_s > 0.0:
            raise ConfigError(f"stop_after_s is {self.stop_after_s}; use a time above 0, or None to never stop for it")
        if not self.tries_to_read >= 1:
            raise ConfigError(f"tries_to_read is {self.tries_to_read}; use 1 or more")


@dataclass(frozen=True, kw_only=True)
class MirrorRecord:
    """What became of the copies of this attempt."""

    copied_at_s: float
    """Monotonic time of the last success; of the start before the first."""
    copied: int = 0
    failed: int = 0
    dropped: int = 0
    """Checkpoints that will not be copied: the remote store is slower than the schedule."""
    failures_in_a_row: int = 0
    last_failure: str = ""

    def succeeded(self, now_s: float) -> MirrorRecord:
        """One more is there."""
        return replace(self, copied=self.copied + 1, failures_in_a_row=0, copied_at_s=now_s)

    def failed_with(self, why: str) -> MirrorRecord:
        """One more try failed."""
        return replace(self, failed=self.failed + 1, failures_in_a_row=self.failures_in_a_row + 1, last_failure=why)

    def dropped_one(self) -> MirrorRecord:
        """One more will not be copied."""
        return replace(self, dropped=self.dropped + 1)


def hopeless(record: MirrorRecord, policy: MirrorPolicy, *, now_s: float) -> str | None:
    """Why the run must not go on with its local copy alone, or None; always None where no limit was set."""
    if policy.stop_after_s is None or record.failures_in_a_row < 1:
        return None
    uncopied_s = now_s - record.copied_at_s
    if uncopied_s < policy.stop_after_s:
        return None
    return (
        f"no checkpoint could be copied to the remote store for {uncopied_s / 3600.0:.1f} hours, and after "
        f"{policy.stop_after_s / 3600.0:.1f} the run shall stop; the last try failed because: {record.last_failure}; "
        "mend the store (network, credentials, room) and start the run again: it goes on from its last local checkpoint"
    )
