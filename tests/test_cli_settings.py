"""Settings are listed from the source, each with its meaning, and the page of them is the one that is checked in."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.cli import settings as _settings  # noqa: F401 -- hangs its command on the app
from failsoft.cli.app import app
from failsoft.cli.settings_page import all_settings, as_markdown, matching
from failsoft.errors import ConfigError
from failsoft.serving.config import GatewayConfig

ROOT = Path(__file__).parents[1]
SOURCES = [ROOT / "platform" / "failsoft", ROOT / "train_jobs"]


def test_every_setting_says_what_it_means() -> None:
    silent = [
        f"{there.name}.{setting.name}"
        for there in all_settings(SOURCES)
        for setting in there.settings
        if not setting.said
    ]
    assert silent == []


def test_the_checked_in_page_is_what_the_source_says() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert page == as_markdown(all_settings(SOURCES)), "run: failsoft settings --markdown > docs/settings.md"


def test_a_default_is_the_one_that_holds() -> None:
    (there,) = [found for found in all_settings(SOURCES) if found.name == "GatewayConfig"]
    said = {setting.name: setting.default for setting in there.settings}
    assert float(said["deadline_ms"]) == GatewayConfig().deadline_ms
    assert said.keys() == GatewayConfig.__dataclass_fields__.keys()


def test_a_package_is_read_without_importing_it(tmp_path: Path) -> None:
    package = tmp_path / "train_jobs"
    package.mkdir()
    (package / "odd.py").write_text(
        'import nowhere\n\n\nclass OddPolicy:\n    """Odd.\n\n    More.\n    """\n\n    a: int | None = None\n'
        '    """First,\n    in two lines."""\n    b: dict[str, int] = field(default_factory=dict)\n    c: str\n'
        "    d: int = field(default=3)\n\n\nclass _OwnPolicy:\n    x: int = 1\n\n\nclass NoSetting:\n    x: int = 1\n"
    )
    (there,) = all_settings([package])
    assert (there.name, there.module, there.said) == ("OddPolicy", "train_jobs.odd", "Odd.")
    assert [(setting.name, setting.default, setting.said) for setting in there.settings] == [
        ("a", "None", "First, in two lines."),
        ("b", "dict()", ""),
        ("c", "", ""),
        ("d", "3", ""),
    ]
    assert r"`int \| None`" in as_markdown([there])


def test_one_is_found_by_its_class_or_by_a_field() -> None:
    classes = all_settings(SOURCES)
    assert [there.name for there in matching(classes, "gatewayconfig")] == ["GatewayConfig"]
    assert "GatewayConfig" in {there.name for there in matching(classes, "deadline_ms")}
    done = CliRunner().invoke(app, ["settings", "deadline_ms"])
    assert (done.exit_code, "GatewayConfig" in done.output) == (0, True)
    with pytest.raises(ConfigError, match="no_such_thing"):
        CliRunner().invoke(app, ["settings", "no_such_thing"], catch_exceptions=False)
