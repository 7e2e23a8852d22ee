"""When spares are ordered, and that an order which fails ends no run; real spares are proven in the drills."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR
from ray.train.v2._internal.constants import get_env_vars_to_propagate

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training import ray_warm
from failsoft.training.progress import PositionMark
from failsoft.training.ray_settings import RaySettings
from failsoft.training.ray_spare import HOOK, NEXT_HOOK
from failsoft.training.ray_warm import KeepsSpares, warm_environment
from failsoft.training.survival.warmth import VARIABLE, Script, SparePolicy


class FailingGroup:
    """A group of two whose workers can't be asked."""

    def __init__(self) -> None:
        self.asked = 0

    def get_workers(self) -> list[Any]:
        self.asked += 1
        return [object(), object()]


def settings_in(folder: Path, *, per_worker: int = 1) -> RaySettings:
    return RaySettings(folder=folder, ledger=folder / "ledger.jsonl", spares=SparePolicy(per_worker=per_worker))


def told(folder: Path) -> list[Event]:
    return list(read_ledger(folder / "ledger.jsonl").events)


def look(keeper: KeepsSpares, clock: ManualClock, *, after_s: float = 1.0) -> None:
    clock.advance(after_s)
    keeper.after_worker_group_poll_status(None)


def test_spares_are_ordered_once_after_a_while_of_steps_and_an_order_that_fails_is_only_told(tmp_path: Path) -> None:
    settings, clock, group = settings_in(tmp_path), ManualClock(), FailingGroup()
    keeper = KeepsSpares(settings, clock)
    with PositionMark(tmp_path).open() as mark:
        mark(7)
        keeper.after_worker_group_training_start(group)
        look(keeper, clock, after_s=1000.0)  # the first batch may take its time
        mark(8)
        look(keeper, clock)
        look(keeper, clock, after_s=settings.spares.after_s - 1.0)
        assert group.asked == 0
        look(keeper, clock)
        look(keeper, clock, after_s=1000.0)
    assert group.asked == 1
    (event,) = told(tmp_path)
    assert (event.kind, event.data["workers"]) == ("spares_missing", 2)


def test_the_next_group_orders_its_own_and_is_given_its_own_while(tmp_path: Path) -> None:
    settings, clock, group = settings_in(tmp_path), ManualClock(), FailingGroup()
    keeper = KeepsSpares(settings, clock)
    with PositionMark(tmp_path).open() as mark:
        for position in (1, 2):
            keeper.after_worker_group_training_start(group)
            mark(position)
            look(keeper, clock)
            assert group.asked == position - 1
            look(keeper, clock, after_s=settings.spares.after_s)
            assert group.asked == position
            keeper.before_worker_group_shutdown(group)


def test_a_group_that_is_soon_gone_orders_none(tmp_path: Path) -> None:
    clock, group = ManualClock(), FailingGroup()
    keeper = KeepsSpares(settings_in(tmp_path), clock)
    with PositionMark(tmp_path).open() as mark:
        keeper.after_worker_group_training_start(group)
        mark(1)
        look(keeper, clock)
        keeper.before_worker_group_shutdown(group)
        look(keeper, clock, after_s=1000.0)
    assert (group.asked, told(tmp_path)) == (0, [])


def test_without_spares_nobody_is_asked_and_no_process_differs(tmp_path: Path) -> None:
    settings, group = settings_in(tmp_path, per_worker=0), FailingGroup()
    clock, before = ManualClock(), dict(os.environ)
    keeper = KeepsSpares(settings, clock)
    with PositionMark(tmp_path).open() as mark:
        keeper.after_worker_group_training_start(group)
        mark(1)
        look(keeper, clock)
        look(keeper, clock, after_s=1000.0)
    with warm_environment(["json"], settings) as environment:
        assert environment == {}
        assert dict(os.environ) == before
    assert (group.asked, told(tmp_path)) == (0, [])


@pytest.mark.parametrize("theirs", [None, "my_package.my_hook"])
def test_controller_and_workers_are_given_one_environment_and_a_hook_of_the_user_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str | None
) -> None:
    monkeypatch.setattr(ray_warm, "_hook_of_the_job", lambda: theirs)
    before = dict(os.environ)
    with warm_environment(["my_package.my_job"], settings_in(tmp_path)) as environment:
        given = environment["env_vars"]
        assert given.items() <= get_env_vars_to_propagate().items()
    assert dict(os.environ) == before
    assert (given[WORKER_PROCESS_SETUP_HOOK_ENV_VAR], given.get(NEXT_HOOK)) == (HOOK, theirs)
    script = Script.read(given[VARIABLE])
    assert {"my_package.my_job", "failsoft.training.ray_train"} <= set(script.modules)
    assert (script.ledger, script.run) == (str(tmp_path / "ledger.jsonl"), tmp_path.name)
