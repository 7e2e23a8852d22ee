"""A project's limits come from one file; what can't be meant is refused in a sentence that says what would be right."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.models.narrow import Width
from failsoft.release.policy import GatePolicy
from failsoft.release.settings import GateSettings, project_settings, read_settings
from failsoft.release.waivers import Waiver

TOML = """
max_kl = 0.01
widths = ["bf16"]
min_samples = 300
[bootstrap]
rounds = 500
[[waivers]]
gate = "quantization KL: *"
reason = "int8 is not served in this project"
until = 2027-01-31
"""
YAML = """
max_kl: 0.01
widths: [bf16]
min_samples: 300
bootstrap: {rounds: 500}
waivers:
  - {gate: "quantization KL: *", reason: int8 is not served in this project, until: 2027-01-31}
"""


def written(folder: Path, text: str, name: str = "gates.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(("name", "text"), [("gates.toml", TOML), ("gates.yaml", YAML)])
def test_limits_and_waivers_are_read_from_either_format(tmp_path: Path, name: str, text: str) -> None:
    settings = read_settings(written(tmp_path, text, name))
    assert (settings.policy.max_kl, settings.policy.min_samples) == (0.01, 300)
    assert (settings.policy.widths, settings.policy.bootstrap.rounds) == ((Width.BF16,), 500)
    reason = "int8 is not served in this project"
    assert settings.waivers == (Waiver(gate="quantization KL: *", reason=reason, until=date(2027, 1, 31)),)


@pytest.mark.parametrize(("name", "text"), [("gates.toml", ""), ("gates.yml", "")])
def test_an_empty_file_asks_for_the_defaults(tmp_path: Path, name: str, text: str) -> None:
    assert read_settings(written(tmp_path, text, name)) == GateSettings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_kll = 0.1", r"max_kll is no setting.*did you mean max_kl\?"),
        ("[bootstrap]\nround = 5", r"bootstrap\.round is no setting.*did you mean bootstrap\.rounds"),
        ("max_kl = 'small'", "max_kl is 'small'; give a number"),
        ("max_kl = true", "max_kl is True"),
        ("min_samples = 1.5", "give a whole number"),
        ("max_kl = nan", "max_kl is nan; use a positive number"),
        ("max_kl = 0", "use a positive number"),
        ("widths = ['int4']", "bf16, fp16, int8"),
        ("waivers = 'all'", "no list"),
        ("[[waivers]]\ngate = 'size'", "gate 'size' and reason None"),
        ("[[waivers]]\ngate = 'size'\nreason = 'ok'", "say in a sentence why"),
        ("[[waivers]]\ngate = '*'\nreason = 'we are in a hurry today'", "would pass any release"),
        ("[[waivers]]\ngate = 'finite*'\nreason = 'we are in a hurry today'", "can't be waived"),
        ("[[waivers]]\ngate = 'size'\nreason = 'disks are large'\nuntil = '2027-01-31'", "give a date"),
        ("[[waivers]]\ngate = 'size'\nreason = 'disks are large'\nuntill = 2027-01-31", "did you mean waivers.until"),
        ("max_kl", "can't be read as gate settings"),
        ("max_kl = " + "9" * 5000, "can't be read as gate settings"),
        ("a = " + "[" * 5000, "can't be read as gate settings"),
        ("[bootstrap]\nseed = -1", "seed is -1"),
        ("[bootstrap]\nrounds = 1000000000", "rounds is 1000000000"),
    ],
)
def test_what_can_t_be_meant_is_refused_with_the_file_s_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        read_settings(written(tmp_path, text))
    assert "gates.toml" in str(refused.value)


@pytest.mark.parametrize("name", ["gates.yaml", "gates.toml"])
def test_a_limit_that_is_given_twice_is_refused_and_not_the_last_one_taken(tmp_path: Path, name: str) -> None:
    text = "max_kl = 0.02\nmax_kl = 5.0\n"
    with pytest.raises(ConfigError, match="can't be read as gate settings"):
        read_settings(written(tmp_path, text.replace(" =", ":") if name.endswith("yaml") else text, name))


def test_a_date_that_is_none_is_refused_in_yaml_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="month"):
        read_settings(written(tmp_path, "waivers: [{gate: size, until: 2027-13-45}]", "gates.yaml"))


def test_a_list_in_yaml_is_no_table_of_limits(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a list"):
        read_settings(written(tmp_path, "- max_kl", "gates.yaml"))


def test_the_home_s_own_file_holds_where_none_is_named(tmp_path: Path) -> None:
    assert project_settings(None, tmp_path).policy == GatePolicy()
    written(tmp_path, "max_kl = 0.5")
    assert project_settings(None, tmp_path).policy.max_kl == 0.5
    other = written(tmp_path, "max_kl = 0.25", "other.toml")
    assert project_settings(other, tmp_path).policy.max_kl == 0.25


def test_a_named_file_that_is_not_there_is_an_error_and_not_the_defaults(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        read_settings(tmp_path / "nowhere.toml")
