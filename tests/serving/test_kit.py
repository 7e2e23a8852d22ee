"""The fallback of another release comes into use, or does not and the gateway goes on with the one that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.serving import ConstantRung, Rung
from failsoft.serving.intake.inputs import Instances
from failsoft.serving.kit import Kit, KitShelf, open_shelf
from failsoft.serving.task import Task, imported
from tests.serving.fakes import plan

pytestmark = pytest.mark.anyio


def bundle(name: str) -> Bundle:
    return Bundle(name=name, path=Path("/nowhere"), digest="", meta={})


def rungs(of: Bundle) -> Iterator[Rung]:
    """A generator does as well as a list; it needs a file that the second release lacks."""
    if of.name == "r2" and of.path == Path("/nowhere"):
        raise KeyError("prices.json")
    yield ConstantRung(of.name)


TASK = Task(rungs=rungs)  # type: ignore[arg-type]  # whoever writes a generator here gets away with it


def load(name: str) -> Kit:
    return Kit(release=name, ladder=TASK.ladder_of(bundle(name)), text_policy=None, baseline=None)


async def test_whatever_own_rungs_raise_over_a_release_the_gateway_keeps_those_that_it_has() -> None:
    """It ended the gateway's duty, and with that the replica, and the next one did not even start."""
    shelf = KitShelf(load, load("r1"))
    assert not await shelf.follow(plan(release="r2"))
    assert shelf.kit.release == "r1"
    assert "the rungs of release r2 can't be made: KeyError: 'prices.json'" in str(shelf.refusal)
    assert await shelf.follow(plan(release="r3"))
    assert (shelf.kit.ladder.answer("play", "late").output, shelf.refusal) == ("r3", None)


@pytest.mark.parametrize("made", [None, ConstantRung(1), 7])
def test_a_maker_that_gives_no_list_of_rungs_is_refused_in_words(made: Any) -> None:
    with pytest.raises(ConfigError, match="returns a list of rungs"):
        Task(rungs=lambda _bundle: made).ladder_of(bundle("r1"))


def test_a_module_that_raises_when_it_is_imported_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_rungs.py").write_text("raise RuntimeError('no licence')\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="broken_rungs raises when it is imported: RuntimeError: no licence"):
        imported("broken_rungs:rungs")


async def test_a_file_system_that_fails_over_a_release_leaves_the_gateway_the_kit_that_it_has() -> None:
    """It has errors of its own, which ended the gateway's duty, and with that each gateway of the app."""

    def broken(_name: str) -> Kit:
        raise OSError(5, "Input/output error")

    shelf = KitShelf(broken, load("r1"))
    assert not await shelf.follow(plan(release="r2"))
    assert shelf.kit.release == "r1"
    assert "Input/output error" in str(shelf.refusal)


class OddInputs(Instances):
    """Somebody's own, with a bug."""

    def policy_of(self, bundle: Bundle) -> None:
        raise LookupError(f"no cleaning for {bundle.name}")


def test_a_gateway_starts_on_the_newest_release_where_the_wanted_ones_inputs_raise(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights").write_text("w", "utf-8")

    releases = Home(root=tmp_path).releases(SystemClock())
    for name in ("r1", "r2"):
        releases.publish(name, fill, meta={"own_model": True})

    class FirstOnly(Instances):
        def policy_of(self, bundle: Bundle) -> None:
            if bundle.name == "r1":
                raise LookupError("no cleaning for r1")

    shelf = open_shelf(releases, "r1", replace(TASK, inputs=FirstOnly()))
    assert shelf.kit.release == "r2"
    assert "no cleaning for r1" in str(shelf.refusal)
    with pytest.raises(ConfigError, match="LookupError: no cleaning for r2"):
        open_shelf(releases, "r1", replace(TASK, inputs=OddInputs()))
