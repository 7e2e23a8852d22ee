"""Which errors end an attempt, and which end the run: what Ray raises for itself, and what our own code raises."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError, RaySystemError, RayTaskError, RpcError

from failsoft.errors import ConfigError, DriverLostError
from failsoft.training.ray_trouble import lost_to_ray


def raised_in_a_task(cause: Exception) -> Exception:
    error: Exception = RayTaskError("work", "Traceback …", cause).as_instanceof_cause()
    return error


@pytest.mark.parametrize(
    "error",
    [
        RaySystemError("the head is gone"),
        RpcError("unavailable", rpc_code=14),
        GetTimeoutError("no answer"),
        ActorDiedError(),
        OSError(116, "Stale file handle"),
        ConnectionError("refused"),
        raised_in_a_task(ActorDiedError()),
    ],
)
def test_what_a_run_stands_on_may_fail_and_costs_an_attempt(error: Exception) -> None:
    with pytest.raises(DriverLostError, match="the sweep failed of what the run stands on"), lost_to_ray("the sweep"):
        raise error


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("ours"), raised_in_a_task(KeyError("ours")), ConfigError("meant otherwise")]
)
def test_an_error_of_our_own_code_goes_on_its_way(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, lost_to_ray("the sweep"):
        raise error
    assert caught.value is error


def test_nothing_raised_is_nothing_lost() -> None:
    with lost_to_ray("the sweep"):
        pass
