"""The options of ``failsoft drill`` that say which Serve app is drilled."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.cli.drill_target import OWN_APP, ServeAsked
from failsoft.errors import ConfigError


def test_without_a_name_the_small_app_of_our_own_is_drilled_and_no_home_is_touched() -> None:
    target = ServeAsked().target()
    assert (target.app, target.home) == (OWN_APP, None)
    assert target.payloads


def test_an_own_app_is_asked_as_the_options_say(tmp_path: Path) -> None:
    asked = ServeAsked(
        serve="shop.app:build",
        home=tmp_path,
        payloads=({"text": "x"},),
        arguments=["size=3", "name=a=b"],
        headers=["Authorization: Bearer x:y"],
        models=["ranker"],
        bundle=[tmp_path / "weights"],
        method="put",
        rate_hz=10.0,
    )
    target = asked.target()
    assert target.arguments == {"size": "3", "name": "a=b"}
    assert target.headers == {"Authorization": "Bearer x:y"}
    assert (target.home, target.method, target.models, target.rate_hz) == (tmp_path, "PUT", ("ranker",), 10.0)
    assert target.model_files == (tmp_path / "weights",)


@pytest.mark.parametrize("asked", [ServeAsked(arguments=["size"]), ServeAsked(headers=["x"]), ServeAsked(method="EAT")])
def test_an_option_that_cannot_be_meant_is_refused(asked: ServeAsked) -> None:
    with pytest.raises(ConfigError, match=r"is no pair|method is"):
        asked.target()
