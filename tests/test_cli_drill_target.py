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
    more = ["argument.size=3", "argument.name=a=b", "header.Authorization=Bearer x:y", "model=ranker", "model=reader"]
    more += [f"bundle={tmp_path / 'weights'}", "method=put", "rate=10", "wait=2.5", "slots=8", f"home={tmp_path}"]
    target = ServeAsked(serve="shop.app:build", payloads=({"text": "x"},), more=more).target()
    assert target.arguments == {"size": "3", "name": "a=b"}
    assert target.headers == {"Authorization": "Bearer x:y"}
    assert (target.home, target.method, target.models) == (tmp_path, "PUT", ("ranker", "reader"))
    assert (target.rate_hz, target.patience_s, target.slots) == (10.0, 2.5, 8)
    assert target.model_files == (tmp_path / "weights",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("size", "is no pair"),
        ("size=3", "is none that is known"),
        ("rate=quick", "is no number"),
        ("rate=nan", "rate_hz is nan"),
        ("method=eat", "method is"),
        ("header.=x", "is none that is known"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(more: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServeAsked(more=[more]).target()
