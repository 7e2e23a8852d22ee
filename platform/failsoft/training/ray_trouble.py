"""Where Ray itself fails in the process that holds the workers: the attempt is over, the run is not.

Ray's head that went away, an actor system in disorder, a sweep that nobody answers: all of these are faults of what the
run stands on, as a killed worker is. An error of our own code is none of them and goes on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray.exceptions import RayError, RayTaskError

from failsoft.errors import DriverLostError
from failsoft.training.ray_settings import first_lines


@contextmanager
def lost_to_ray(doing: str) -> Iterator[None]:
    """Turn what Ray, the network or the storage raises within the block into the end of an attempt.

    Args:
        doing: for people: what was being done.

    Raises:
        DriverLostError: Ray failed; whoever holds the workers should connect anew.
    """
    try:
        yield
    except (RayError, OSError) as error:
        if not rays_own(error):
            raise
        said = f"{doing} failed of what the run stands on: {type(error).__name__}: {first_lines(error)}"
        raise DriverLostError(said) from error


def rays_own(error: RayError | OSError) -> bool:
    """Whether no code of ours is to blame: an error that a task or actor raised is its own, whatever wraps it."""
    if isinstance(error, RayTaskError):
        return isinstance(error.cause, RayError | OSError) and not isinstance(error.cause, RayTaskError)
    return True
