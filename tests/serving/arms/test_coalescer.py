"""Few calls for many callers, and none of them pays for another one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError, SaturatedError, ServingError
from failsoft.serving.arms.coalescer import Coalescer, CoalescerPolicy

pytestmark = pytest.mark.anyio


@dataclass
class Call:
    """One call that is out until the test lets it come back."""

    texts: list[str]
    back: asyncio.Future[list[str]]


@dataclass
class HandTimer:
    """A timer that the test sets off."""

    wait_s: float
    ring: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Bench:
    """A coalescer over a model that answers when told, with timers that ring when told."""

    policy: CoalescerPolicy = field(default_factory=CoalescerPolicy)
    max_held: int = 64
    calls: list[Call] = field(default_factory=list)
    timers: list[HandTimer] = field(default_factory=list)
    most_out: int = 0

    def __post_init__(self) -> None:
        self.coalescer: Coalescer[str] = Coalescer(
            self.carry, policy=self.policy, max_held=self.max_held, later=self.later
        )

    async def carry(self, texts: list[str]) -> list[str]:
        call = Call(texts, asyncio.get_running_loop().create_future())
        self.calls.append(call)
        self.most_out = max(self.most_out, sum(not call.back.done() for call in self.calls))
        return await call.back

    def later(self, wait_s: float, ring: Callable[[], None]) -> HandTimer:
        self.timers.append(HandTimer(wait_s, ring))
        return self.timers[-1]

    def ask(self, *texts: str) -> list[asyncio.Task[str]]:
        return [asyncio.create_task(self.coalescer.ask(text)) for text in texts]

    def answer(self, number: int) -> None:
        call = self.calls[number]
        call.back.set_result([text.upper() for text in call.texts])

    @property
    def sent(self) -> list[list[str]]:
        return [call.texts for call in self.calls]


async def settle() -> None:
    """Let every coroutine run until it waits for something that has not happened."""
    for _ in range(8):
        await asyncio.sleep(0)


async def test_an_idle_model_is_asked_at_once_without_any_timer() -> None:
    bench = Bench()
    (asked,) = bench.ask("play")
    await settle()
    assert (bench.sent, bench.timers) == ([["play"]], [])
    bench.answer(0)
    assert await asked == "PLAY"
    assert (bench.coalescer.held, bench.coalescer.calls_out) == (0, 0)


async def test_texts_of_the_same_moment_are_one_call_and_each_gets_its_own_reply() -> None:
    bench = Bench()
    asked = bench.ask("a", "b", "c")
    await settle()
    bench.answer(0)
    assert (await asyncio.gather(*asked), bench.sent) == (["A", "B", "C"], [["a", "b", "c"]])


async def test_texts_that_come_while_a_call_is_out_go_together_when_it_is_back() -> None:
    bench = Bench()
    first = bench.ask("a")
    await settle()
    rest = bench.ask("b") + bench.ask("c")
    await settle()
    assert bench.sent == [["a"]]
    bench.answer(0)
    await settle()
    assert bench.sent == [["a"], ["b", "c"]]
    bench.answer(1)
    assert await asyncio.gather(*first, *rest) == ["A", "B", "C"]


async def test_a_slow_call_holds_nobody_up_for_longer_than_the_wait() -> None:
    bench = Bench()
    bench.ask("slow")
    await settle()
    rest = bench.ask("b", "c")
    await settle()
    (timer,) = bench.timers
    assert timer.wait_s == 0.002
    timer.ring()
    await settle()
    assert bench.sent == [["slow"], ["b", "c"]]
    bench.answer(1)
    assert await asyncio.gather(*rest) == ["B", "C"]
    bench.answer(0)
    await settle()


async def test_a_full_call_does_not_wait() -> None:
    bench = Bench(CoalescerPolicy(max_texts=2))
    bench.ask("a")
    await settle()
    bench.ask("b", "c", "d")
    await settle()
    assert bench.sent == [["a"], ["b", "c"], ["d"]]
    assert all(timer.cancelled for timer in bench.timers)
    for number in range(3):
        bench.answer(number)
    await settle()


async def test_a_long_text_travels_alone_so_that_short_ones_do_not_wait_for_it() -> None:
    bench = Bench(CoalescerPolicy(max_chars=10))
    bench.ask("short", "x" * 50, "tiny", "bits")
    await settle()
    assert bench.sent == [["short"], ["x" * 50], ["tiny", "bits"]]
    for number in range(3):
        bench.answer(number)
    await settle()


async def test_one_caller_that_gives_up_does_not_end_the_others_call() -> None:
    bench = Bench()
    late, patient = bench.ask("a", "b")
    await settle()
    late.cancel()
    await settle()
    assert not bench.calls[0].back.cancelled()
    bench.answer(0)
    assert (await patient, late.cancelled()) == ("B", True)


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled_and_frees_its_place() -> None:
    bench = Bench(CoalescerPolicy(max_calls=1))
    hung = bench.ask("a", "b")
    await settle()
    (next_one,) = bench.ask("c")
    await settle()
    assert (len(bench.sent), bench.timers) == (1, [])
    for task in hung:
        task.cancel()
    await settle()
    assert bench.calls[0].back.cancelled()
    bench.answer(1)
    assert await next_one == "C"


async def test_a_text_whose_caller_has_left_is_never_sent() -> None:
    bench = Bench(CoalescerPolicy(max_calls=1))
    bench.ask("a")
    await settle()
    gone, stays = bench.ask("b", "c")
    await settle()
    gone.cancel()
    await settle()
    bench.answer(0)
    await settle()
    assert bench.sent == [["a"], ["c"]]
    bench.answer(1)
    assert await stays == "C"


async def test_texts_beyond_what_may_be_held_are_refused_at_once_and_the_place_comes_back() -> None:
    bench = Bench(max_held=2)
    held = bench.ask("a", "b")
    await settle()
    with pytest.raises(SaturatedError, match="2 texts of this gateway"):
        await bench.coalescer.ask("c")
    bench.answer(0)
    await asyncio.gather(*held)
    again = bench.ask("d")
    await settle()
    bench.answer(1)
    assert await asyncio.gather(*again) == ["D"]


async def test_a_failed_call_fails_for_each_of_its_texts_and_for_no_other() -> None:
    bench = Bench()
    asked = bench.ask("a", "b")
    await settle()
    other = bench.ask("c")
    bench.calls[0].back.set_exception(OSError("gone"))
    await settle()
    bench.answer(1)
    results = await asyncio.gather(*asked, *other, return_exceptions=True)
    assert [str(result) for result in results] == ["gone", "gone", "C"]


async def test_a_call_with_fewer_replies_than_texts_is_an_error_and_no_mix_up() -> None:
    bench = Bench()
    asked = bench.ask("a", "b")
    await settle()
    bench.calls[0].back.set_result(["A"])
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert {str(result) for result in results} == {"1 replies came for 2 texts"}


async def test_a_call_that_is_cancelled_from_elsewhere_does_not_look_as_if_the_callers_had_left() -> None:
    bench = Bench()
    (asked,) = bench.ask("a")
    await settle()
    bench.calls[0].back.cancel()
    with pytest.raises(ServingError, match="was cancelled"):
        await asked


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_wait_ms": math.nan}, "max_wait_ms is nan"),
        ({"max_wait_ms": 500.0}, "max_wait_ms is 500"),
        ({"max_texts": 0}, "max_texts is 0"),
        ({"max_calls": 0}, "max_calls is 0"),
    ],
)
def test_a_policy_under_which_nothing_would_travel_is_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CoalescerPolicy(**settings)  # type: ignore[arg-type]  # the wrong values are the point


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "leave", "back", "ring"]), st.integers(0, 9)), max_size=40),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_whoever_stays_is_answered_whatever_the_order_of_events(
    events: list[tuple[str, int]], max_texts: int, max_calls: int
) -> None:
    async def play() -> None:
        bench, asked = Bench(CoalescerPolicy(max_texts=max_texts, max_calls=max_calls)), list[asyncio.Task[str]]()
        for what, number in events:
            out = [index for index, call in enumerate(bench.calls) if not call.back.done()]
            if what == "ask":
                asked += bench.ask(f"t{len(asked)}")
            elif what == "leave" and asked:
                asked[number % len(asked)].cancel()
            elif what == "back" and out:
                bench.answer(out[number % len(out)])
            elif what == "ring":
                ring_all(bench)
            await settle()
        await finish(bench)
        for number, task in enumerate(asked):
            assert task.cancelled() or task.result() == f"T{number}"
        assert all(len(texts) <= max_texts for texts in bench.sent)
        assert bench.most_out <= max_calls
        assert (bench.coalescer.held, bench.coalescer.calls_out) == (0, 0)

    asyncio.run(play())


def ring_all(bench: Bench) -> None:
    for timer in bench.timers:
        if not timer.cancelled:
            timer.ring()


async def finish(bench: Bench) -> None:
    """Let everything come back that is out, and what that sets free."""
    for _ in range(60):
        ring_all(bench)
        for index, call in enumerate(bench.calls):
            if not call.back.done():
                bench.answer(index)
        await settle()
