"""The threat model names files and tests that are there."""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.test_house_rules import exists, paths_named_in

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


def test_every_path_that_the_page_names_exists() -> None:
    paths = {path for path in paths_named_in(PAGE) if not path.endswith("../")}
    absent = sorted(path for path in paths if not (exists(path) or (ROOT / "docs" / path).exists()))
    assert absent == ["alerts.toml"], "it lies in a home"


def test_each_thing_that_is_held_names_the_test_that_attacks_it() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("|") and "`serving/" in row]
    assert len(rows) > 4
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py`", row)] == []
