"""How much trouble with the storage a run puts up with. Pure: counts in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from failsoft.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class WriterPolicy:
    """Limits of patience with writer and storage."""

    patience_s: float = 300.0
    """How long a writer at work may say nothing (it speaks after every few megabytes) before it counts as hung."""
    max_failures_in_a_row: int = 5
    """So many checkpoints in a row that could not be written end the run."""
    max_unsaved_s: float = 6.0 * 3600.0
    """So long without any success, while checkpoints fail, ends the run."""

    def __post_init__(self) -> None:
        """Refuse limits that are none."""
        for name in ("patience_s", "max_unsaved_s"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use a time above 0")
        if not self.max_failures_in_a_row >= 1:
            raise ConfigError(f"max_failures_in_a_row is {self.max_failures_in_a_row}; use 1 or more")


@dataclass(frozen=True, kw_only=True)
class WriterRecord:
    """What became of the checkpoints of this attempt."""

    saved_at_s: float
    """Monotonic time of the last success; of the start before the first."""
    published: int = 0
    failed: int = 0
    replaced: int = 0
    """Handed over and replaced by a newer one before they were begun: the storage is slower than the schedule."""
    lost_writers: int = 0
    failures_in_a_row: int = 0
    last_failure: str = ""

    def succeeded(self, now_s: float) -> WriterRecord:
        """One more is published."""
        return replace(self, published=self.published + 1, failures_in_a_row=0, saved_at_s=now_s)

    def failed_with(self, why: str) -> WriterRecord:
        """One more could not be written."""
        return replace(self, failed=self.failed + 1, failures_in_a_row=self.failures_in_a_row + 1, last_failure=why)


def hopeless(record: WriterRecord, policy: WriterPolicy, *, now_s: float) -> str | None:
    """Why the run must not go on unsaved, or None. Without a failure there is no reason, however long ago the last."""
    if record.failures_in_a_row < 1:
        return None
    unsaved_s = now_s - record.saved_at_s
    if record.failures_in_a_row >= policy.max_failures_in_a_row:
        said = f"{record.failures_in_a_row} checkpoints in a row could not be written"
    elif not unsaved_s < policy.max_unsaved_s:
        said = f"no checkpoint could be written for {unsaved_s / 3600.0:.1f} hours"
    else:
        return None
    return (
        f"{said}, the last one because: {record.last_failure}; mend the storage (room, permission, mount) and start "
        "the run again: it goes on from its last checkpoint, which failsoft ckpt ls shows"
    )
