from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import read_ledger
from failsoft.training.callbacks import Callback, Callbacks, Listener, Moment
from failsoft.training.loop import LoopPlan, TrainLoop
from tests.training.toys import same, toy_loop, weights_of

Said = list[tuple[str, str, dict[str, Any]]]


def moment(step: int = 1) -> Moment:
    return Moment(position=step, step=step, loss=0.5)


def made(call: Callback, *, limit_s: float = 5.0, every_steps: int = 1) -> tuple[Callbacks, Said, ManualClock]:
    said, clock = Said(), ManualClock()
    listener = Listener(name="plot", call=call, every_steps=every_steps, limit_s=limit_s)
    return Callbacks([listener], lambda kind, why, **data: said.append((kind, why, data)), clock), said, clock


def call(callbacks: Callbacks, *steps: int) -> None:
    for step in steps:
        callbacks.applied(step, lambda step=step: moment(step))  # type: ignore[misc]  # bound at once


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_callback_is_called_when_it_is_due_with_the_numbers_of_the_moment() -> None:
    seen: list[Moment] = []
    callbacks, said, _ = made(seen.append, every_steps=3)
    call(callbacks, *range(1, 10))
    assert [one.step for one in seen] == [3, 6, 9]
    assert seen[0] == Moment(position=3, step=3, loss=0.5)
    assert said == []


def test_what_a_callback_writes_into_its_metrics_stays_with_it() -> None:
    found = {"f1": 0.5}

    def careless(told: Moment) -> None:
        dict.clear(told.metrics)  # type: ignore[arg-type]  # it says that it is read-only

    callbacks, _, _ = made(careless)
    callbacks.applied(1, lambda: Moment(position=1, step=1, loss=0.5, metrics=found))
    assert found == {"f1": 0.5}


def test_a_system_without_a_thread_to_give_costs_the_call_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    seen: list[Moment] = []
    callbacks, said, _ = made(seen.append)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        call(callbacks, 1)
    call(callbacks, 2)
    assert [kind for kind, _why, _data in said] == ["callback_failed"]
    assert [one.step for one in seen] == [2]


def test_one_that_raises_is_tried_again_with_less_to_do_and_the_failure_is_told_once() -> None:
    scales: list[float] = []

    def heavy(moment: Moment) -> None:
        scales.append(moment.scale)
        if moment.scale > 0.25:
            raise MemoryError("a picture of 3 GB")

    callbacks, said, _ = made(heavy)
    call(callbacks, 1, 2)
    assert scales == [1.0, 0.5, 0.25] * 2
    ((kind, why, data),) = said
    assert (kind, why, data["retries"], data["given_up"]) == (
        "callback_failed",
        "MemoryError: a picture of 3 GB",
        2,
        False,
    )
    assert callbacks.failures == {"plot": 4}


def test_one_that_fails_in_a_row_rests_and_comes_back_when_a_try_works() -> None:
    calls: list[int] = []
    well = False

    def exporter(moment: Moment) -> None:
        calls.append(moment.step)
        if not well:
            raise ConnectionError("no route to the collector")

    callbacks, said, clock = made(exporter)
    call(callbacks, *range(1, 10))
    assert calls == [1] * 3 + [2] * 3 + [3] * 3  # then it rests
    assert [kind for kind, _, _ in said] == ["callback_failed", "degradation_began"]
    clock.advance(120.0)
    call(callbacks, 10)
    clock.advance(120.0)  # the second rest is longer
    well = True
    call(callbacks, 11)
    clock.advance(120.0)
    call(callbacks, 12, 13)
    assert calls[9:] == [10] * 3 + [12, 13]
    assert said[-1][0] == "degradation_ended"


def test_one_that_hangs_is_left_to_itself_and_not_called_again_before_it_is_back(gate: threading.Event) -> None:
    back = threading.Event()
    calls: list[int] = []

    def stuck(moment: Moment) -> None:
        calls.append(moment.step)
        if len(calls) == 1:
            gate.wait()
            back.set()

    callbacks, said, _ = made(stuck, limit_s=0.01)
    call(callbacks, 1, 2, 3)
    assert calls == [1]
    assert "not back after 0.01 s" in said[0][1]
    gate.set()
    assert back.wait(10.0)
    thread = next((one for one in threading.enumerate() if one.name == "failsoft-callback-plot"), None)
    if thread is not None:
        thread.join(10.0)
    call(callbacks, 4)
    assert calls == [1, 4]


def test_one_that_leaves_its_thread_has_failed_and_the_training_goes_on() -> None:
    def leaves(_moment: Moment) -> None:
        raise SystemExit(3)

    callbacks, said, _ = made(leaves)
    call(callbacks, 1)
    assert (said[0][1], callbacks.failures) == ("SystemExit: 3", {"plot": 3})


def test_two_callbacks_of_one_name_and_impossible_limits_are_refused() -> None:
    one = Listener(name="plot", call=print)
    with pytest.raises(ConfigError, match="a name of its own"):
        Callbacks([one, one], lambda kind, why, **data: None, ManualClock())


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"every_steps": 0}, {"limit_s": 0.0}, {"limit_s": 61}, {"halvings": -1}]
)
def test_an_impossible_listener_names_the_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Listener(**{"name": "plot", "call": print, **wrong})


def careless(_moment: Moment) -> None:
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002 -- what careless code does
    random.Random(1)
    raise RuntimeError("no display")


def looped(folder: Path, *listeners: Listener) -> TrainLoop:
    loop = toy_loop(folder, plan=LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8))
    made = TrainLoop(
        **{name: getattr(loop, name) for name in ("state", "task", "batches", "plan", "guard", "breaker")},
        checkpoints=loop.checkpoints,
        desk=loop.desk,
        listeners=listeners,
    )
    made.run()
    return made


def test_a_run_whose_callbacks_fail_and_draw_chance_is_the_run_without_them_to_the_bit(tmp_path: Path) -> None:
    plain = toy_loop(tmp_path / "plain")
    plain.run()
    seen: list[Moment] = []
    ok = Listener(name="log", call=seen.append, every_steps=8)
    loop = looped(tmp_path / "told", Listener(name="plot", call=careless, every_steps=1), ok)
    assert same(weights_of(plain.state.model), weights_of(loop.state.model))
    assert [one.step for one in seen] == [8, 16, 24]
    assert all(one.loss is not None for one in seen)
    kinds = [event.kind for event in read_ledger(tmp_path / "told" / "ledger.jsonl").events]
    assert kinds.count("callback_failed") == 1
    assert kinds.count("degradation_began") == 1
