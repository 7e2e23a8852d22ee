"""A remote store is looked at before any worker starts, while somebody still watches the command."""

from __future__ import annotations

from collections.abc import Callable

from failsoft.artifacts.address import hushed, shown
from failsoft.artifacts.home import Home
from failsoft.artifacts.remote_access import access_trouble
from failsoft.artifacts.remote_place import Place
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.progress import PositionMark
from train_jobs.config import JobConfig


def look_at_remote(find: Callable[[], Place], config: JobConfig, clock: Clock, *, patience_s: float = 30.0) -> None:
    """Refuse a remote store that can't be used; a run that is under way goes on without, and says so.

    Its local checkpoints are enough to go on from, and a store that is away for an hour is no reason to stop. A run
    that has not begun might have copies there to go on from, and whoever started it may have mistyped the address.

    Args:
        find: the place of this run's checkpoints there.
        config: the job; its ``home`` is absolute.
        clock: for the ledger.
        patience_s: how long the store may take to answer.

    Raises:
        ConfigError: it is no address, nothing here speaks to such a store, or a run that has not begun has no access.
    """
    why = access_trouble(find, patience_s=patience_s)
    if why is None:
        return
    why = hushed(why, config.remote or "")
    home, where = Home.find(config.home), "the storage_filesystem" if config.remote is None else shown(config.remote)
    if PositionMark(home.run(config.run)).read() is None:
        raise ConfigError(
            f"remote {where} can't be used: {why}; check the address, the network and the credentials that the "
            "store's library takes from the environment, or train without --remote"
        )
    ledger = Ledger(home.ledger, clock, side=Side.TRAINING, subject=config.run)
    ledger.record("remote_unreachable", f"{why}; the local checkpoints stand, training goes on", remote=where)
