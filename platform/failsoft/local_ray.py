"""A Ray of one's own on this machine: started, guarded by a throw-away token, on loopback, and stopped by its handle.

Ray reads its ``RAY_*`` settings once, when its library is loaded. That is why nothing here imports ``ray`` at the top:
the settings are put in place first, and a process that loaded Ray before is refused in words.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from failsoft.errors import ConfigError, NoRayError

_NICENESS = "RAY_worker_niceness"
"""Ray's default of 15 would let whatever else runs on this machine, such as a client, starve a model that serves."""


@contextmanager
def local_ray(*, num_cpus: int) -> Iterator[None]:
    """Run a private Ray for the time of the block. The settings stay in this process's environment.

    Args:
        num_cpus: slots that Ray may hand out. They are counts, not cores: light actors may share a core.

    Raises:
        ConfigError: this process loaded Ray with other settings already.
        NoRayError: no Ray came up; it gives itself half a minute, which a busy machine may not have.
    """
    settle_environment()
    _begin(num_cpus)
    import ray  # noqa: PLC0415 -- must come after its environment is settled

    try:
        yield
    finally:
        ray.shutdown()


def _begin(num_cpus: int) -> None:
    import ray  # noqa: PLC0415 -- must come after its environment is settled

    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:  # Ray says by a bare Exception that its node did not come up
        if type(error) is Exception or isinstance(error, RuntimeError | ConnectionError | TimeoutError):
            raise NoRayError(
                f"no Ray came up on this machine: {error} Where other work keeps it busy, start again when it is done"
            ) from error
        raise  # not of Ray's start


def settle_environment() -> None:
    """Put Ray's settings in place. Whoever imports something that imports ``ray`` calls this before.

    Raises:
        ConfigError: this process loaded Ray with other settings already.
    """
    os.environ.setdefault(_NICENESS, "0")
    if os.environ.get("RAY_AUTH_MODE") == "token" and os.environ.get("RAY_AUTH_TOKEN"):
        return
    if "ray" in sys.modules:
        raise ConfigError(
            "Ray was loaded before its token was set, so its ports would stand open; set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN before the first import of ray"
        )
    os.environ["RAY_AUTH_MODE"] = "token"  # nobody else on this machine may submit code to it
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
