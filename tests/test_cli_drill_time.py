"""How long a drill may take, as its options say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.cli import drill
from failsoft.cli.app import app
from failsoft.cli.drill_target import ServeAsked
from failsoft.drills.suite import SuitePlan


@pytest.mark.parametrize(
    ("words", "within_s"),
    [
        ([], 285.0),
        (["--full"], math.inf),
        (["--fault", "nan"], math.inf),
        (["--serve", "shop:app"], math.inf),
        (["--module", "mine"], math.inf),
        (["--full", "--within", "1h"], 3600.0),
        (["--within", "30s"], 30.0),
    ],
)
def test_only_our_own_short_drill_has_five_minutes_and_any_can_be_given_some(
    words: list[str], within_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[drill.Asked] = []

    def note(given: drill.Asked, _out: Path | None, *, json_: bool) -> None:
        asked.append(given)

    monkeypatch.setattr(drill, "_carry_out", note)
    done = CliRunner().invoke(app, ["drill", *words])
    assert done.exit_code == 0, done.output
    assert [one.within_s for one in asked] == [within_s]


def test_a_time_that_is_none_is_refused_by_name() -> None:
    done = CliRunner().invoke(app, ["drill", "--within", "soon"])
    assert done.exit_code != 0
    assert "soon" in done.output + str(done.exception)


@pytest.mark.parametrize(("faults", "shares_s"), [((), [300.0, 600.0]), (("nan",), [600.0])])
def test_time_is_shared_by_those_that_are_drilled_and_what_one_leaves_is_the_others(
    faults: tuple[str, ...], shares_s: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    class Noted:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self, plan: SuitePlan, *, device: str) -> None:
            given.append(plan.within_s)

    monkeypatch.setattr("failsoft.drills.suite.Suite", Noted)
    asked = drill.Asked(
        command=None,
        results=(),
        checkpoint=None,
        cold=False,
        still_s=None,
        served=ServeAsked(),
        full=False,
        faults=faults,
        seed=0,
        combinations=None,
        within_s=600.0,
    )
    drill._drilled(asked, tmp_path)
    assert given == pytest.approx(shares_s, abs=60.0)
