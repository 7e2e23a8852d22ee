from __future__ import annotations

import pytest

from failsoft.errors import ConfigError
from failsoft.training.survival.fabric import FabricConfig, check_environment, ib_timeout_s


def test_the_defaults_are_five_minutes_for_whatever_may_be_silent() -> None:
    assert FabricConfig().collective_timeout_s == 300
    assert FabricConfig().variables() == {
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "300",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    }


@pytest.mark.parametrize(("exponent", "seconds"), [(14, 0.0671), (18, 1.074), (20, 4.295), (22, 17.18)])
def test_the_timeout_of_infiniband_is_an_exponent(exponent: int, seconds: float) -> None:
    assert ib_timeout_s(exponent) == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize("seconds", [300, 32, 0, -1])
def test_seconds_given_for_the_exponent_are_refused_with_the_exponent_that_was_meant(seconds: int) -> None:
    with pytest.raises(ConfigError, match=f"ib_timeout_exponent is {seconds}; it is no number of seconds"):
        FabricConfig(ib_timeout_exponent=seconds)
    with pytest.raises(ConfigError, match=f"NCCL_IB_TIMEOUT is {seconds}; it is no number of seconds"):
        check_environment({"NCCL_IB_TIMEOUT": str(seconds)})


def test_the_exponent_that_is_proposed_is_the_smallest_that_waits_as_long() -> None:
    with pytest.raises(ConfigError, match=r"For 300 s in all use 24, which waits 68\.7 s each"):
        FabricConfig(ib_timeout_exponent=300)
    assert ib_timeout_s(23) * 8 < 300 <= ib_timeout_s(24) * 8


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"collective_timeout_s": 0}, "collective_timeout_s is 0"),
        ({"heartbeat_s": -5}, "heartbeat_s is -5"),
        ({"ib_retries": 8}, "ib_retries is 8"),
        ({"interface": " "}, "interface is empty"),
        ({"ib_timeout_exponent": 25}, "a dead link is noticed after 1100 s, later than collective_timeout_s 300"),
    ],
)
def test_settings_that_mean_something_else_than_they_seem_to_are_refused(setting: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FabricConfig(**setting)  # type: ignore[arg-type]


def test_what_the_user_set_stands() -> None:
    config = FabricConfig(interface="eth0", ib_timeout_exponent=22)
    environment = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_TIMEOUT": "20", "GLOO_SOCKET_IFNAME": ""}
    missing = config.missing_from(environment)
    assert missing["GLOO_SOCKET_IFNAME"] == "eth0"
    assert not {"NCCL_SOCKET_IFNAME", "NCCL_IB_TIMEOUT"} & missing.keys()
    told = config.explained(environment)
    assert told["NCCL_SOCKET_IFNAME"] == "ib0 (yours)"
    assert told["NCCL_IB_TIMEOUT"] == "20 (yours): 4.29 s"
    assert told["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "300 (failsoft)"


@pytest.mark.parametrize(("name", "value"), [("NCCL_IB_TIMEOUT", "20s"), ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "0")])
def test_a_variable_of_the_user_that_cannot_be_meant_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is"):
        FabricConfig().missing_from({name: value})
