"""What a rollout controller is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from failsoft.errors import ConfigError
from failsoft.serving.rollout.stages import stage_policy


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """What the controller is made from; plain values, since they outlive the process that gave them."""

    home: str
    """Root folder of plan, ledger and releases; absolute, on storage that every node reaches."""
    release: str
    """Serves in the first plan; after that the stored plan rules."""
    profile: str = "production"
    """Name of the stage policy."""
    slots: int = 2
    """Model deployments: 2, or 1 for a model too large for two (see ``one_slot.py``)."""
    app: str = ""
    """Name of the Serve application, by which its metrics are told apart; empty: not known."""

    def __post_init__(self) -> None:
        """Refuse a home that means another folder elsewhere, and unknown profiles."""
        if not Path(self.home).is_absolute():
            raise ConfigError(f"home is {self.home}; give an absolute path, the controller runs in another folder")
        if self.slots not in (1, 2):
            raise ConfigError(f"slots is {self.slots}; use 2, or 1 for a model too large to be loaded twice")
        stage_policy(self.profile)
