"""The fallback of another release comes into use, or does not and the gateway goes on with the one that it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import ConfigError
from failsoft.serving import ConstantRung, Rung
from failsoft.serving.kit import Kit, KitShelf
from failsoft.serving.task import Task, imported
from tests.serving.fakes import plan

pytestmark = pytest.mark.anyio


def bundle(name: str) -> Bundle:
    return Bundle(name=name, path=Path("/nowhere"), digest="", meta={})


def rungs(of: Bundle) -> Iterator[Rung]:
    """A generator does as well as a list; it needs a file that the second release lacks."""
    if of.name == "r2":
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
