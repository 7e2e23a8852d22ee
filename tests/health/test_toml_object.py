"""Whole numbers that no float can hold are told by key and value, wherever a person may have written them."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.health.retention import FILE_NAME, RetentionPolicy, read_retention
from failsoft.health.toml_object import toml_object
from failsoft.release.settings import read_settings
from failsoft.serving.rollout.stage_settings import policy_at

HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"ledger_days = {HUGE}", "ledger_days is a number of 1329 bits; use a number below"),
        (f"[drill.rest]\nbase_s = -{HUGE}", r"drill\.rest\.base_s is a number of"),
        ("a = [1, 0x8000000000000000]", r"a\[1\] is 9223372036854775808"),
        ("a = [{b = 0x" + "f" * 9000 + "}]", r"a\[0\]\.b is a number of 36000 bits"),
    ],
)
def test_a_number_that_toml_has_not_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        toml_object(text)


def test_all_that_toml_has_is_read() -> None:
    body = toml_object("a = 9223372036854775807\nb = [-9223372036854775808, true, 1e308, inf]\n[c]\nd = 'x'")
    assert body == {"a": 2**63 - 1, "b": [-(2**63), True, 1e308, float("inf")], "c": {"d": "x"}}


@pytest.mark.parametrize("name", sorted(vars(RetentionPolicy())))
def test_no_number_in_retention_toml_ends_in_anything_but_words(tmp_path: Path, name: str) -> None:
    (tmp_path / FILE_NAME).write_text(f"{name} = {HUGE}", "utf-8")
    with pytest.raises(ConfigError, match=f"retention.toml.*{name} is a number of"):
        read_retention(tmp_path)


@pytest.mark.parametrize("value", ["9223372036854775807", "1e308", "1e303", "inf"])
def test_what_is_longer_than_time_keeps_it_for_ever(tmp_path: Path, value: str) -> None:
    (tmp_path / FILE_NAME).write_text("\n".join(f"{name} = {value}" for name in vars(RetentionPolicy())), "utf-8")
    policy = read_retention(tmp_path)
    assert policy.cut(1_700_000_000.0).ledger_s < -1e20
    assert policy.ledger_bytes is None or policy.ledger_bytes > 2**60
    assert policy.answers_bytes is None or policy.answers_bytes > 2**60


def test_stages_and_gates_say_so_too(tmp_path: Path) -> None:
    (tmp_path / "stages.toml").write_text(f"[drill.rest]\nbase_s = {HUGE}", "utf-8")
    with pytest.raises(ConfigError, match=r"stages\.toml.*drill\.rest\.base_s is a number of"):
        policy_at(tmp_path, "drill")
    for name, text in (("gates.toml", f"max_kl = {HUGE}"), ("gates.yaml", f"bootstrap: {{rounds: {HUGE}}}")):
        (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(ConfigError, match="is a number of"):
            read_settings(tmp_path / name)
