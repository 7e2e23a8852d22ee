"""An error on the way: the batch is not lost, and nothing of the attempt stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from failsoft.errors import ConfigError
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.late_guard import LateStepGuard
from tests.training.twins import BATCH, OPTIMIZERS, Bad, Recipe, Run, difference


class OutOfMemory(RuntimeError):
    """Stands in for the device's own."""


def fails() -> Tensor:
    raise OutOfMemory


def attempt(run: Run, number: int, at: int) -> None:
    """A step whose micro-batch ``at`` runs its forward pass and then fails."""
    computes = run.computes(number)

    def broken() -> Tensor:
        computes[at]()
        return fails()

    shares = [size / BATCH for size in run.sizes]
    with pytest.raises(OutOfMemory):
        run.guard.step([broken if part == at else one for part, one in enumerate(computes)], shares=shares)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["sgd momentum", "adamw", "adamw fused"])
@settings(max_examples=12, deadline=None)
@given(failing=st.lists(st.integers(0, 2), max_size=4), before=st.integers(0, 2))
def test_attempts_that_fail_midway_leave_nothing_and_the_batch_can_be_tried_again(
    name: str, scaled: bool, failing: list[int], before: int
) -> None:
    recipe = Recipe(optimizer=OPTIMIZERS[name], scaled=scaled, sizes=(3, 3, 2))
    ends = []
    for attempts in (failing, []):
        run = recipe.make()
        for number in range(before):
            run.step(number)
        for at in attempts:
            attempt(run, before, at)
        run.step(before)
        run.step(before + 1, Bad.NAN_INPUT)
        run.step(before + 2)
        ends.append(run.everything())
    assert difference(ends[0], ends[1]) is None


def halved_until_it_fits(run: Run, number: int, fits: int) -> tuple[StepOutcome, int]:
    """What a training loop does about memory: the same batch in more, smaller micro-batches."""
    pieces = 1
    while True:
        run.sizes = [BATCH // pieces] * pieces
        computes: Sequence[Callable[[], Tensor]] = run.computes(number)
        if run.sizes[0] > fits:
            computes = [*computes[:-1], fails]
        try:
            return run.guard.step(computes, position=number), pieces
        except OutOfMemory:
            pieces *= 2


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


@pytest.mark.parametrize("fits", [8, 4, 2, 1])
def test_a_batch_that_needs_smaller_micro_batches_is_one_update_of_all_its_samples(fits: int) -> None:
    """sentence-transformers#3145: the retry reset the step, and the accumulation no longer matched the batch."""
    recipe = Recipe(model=plain, scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, gamma=0.9))
    whole, halved = recipe.make(), recipe.make()
    for number in range(4):
        expected = whole.step(number)
        outcome, pieces = halved_until_it_fits(halved, number, fits)
        assert outcome.applied
        assert outcome.position == number
        assert pieces == BATCH // fits
        assert outcome.loss == pytest.approx(expected.loss, rel=1e-5)
        assert outcome.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    counts = [int(run.guard.optimizer.state_dict()["state"][0]["step"]) for run in (whole, halved)]
    assert counts == [4, 4]
    assert [run.guard.scheduler.last_epoch for run in (whole, halved)] == [4, 4]  # type: ignore[union-attr]
    for left, right in zip(whole.guard.model.parameters(), halved.guard.model.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-5)


def test_an_interrupt_while_the_verdict_is_read_leaves_nothing_and_the_scaler_usable() -> None:
    ends = []
    for interrupt in (True, False):
        run = Recipe(scaled=True).make()
        run.step(0)
        if interrupt:
            norm, run.guard.gradients.total_norm = run.guard.gradients.total_norm, interrupted  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                run.step(1)
            run.guard.gradients.total_norm = norm  # type: ignore[method-assign]
        run.step(1)
        ends.append(run.everything())
    assert difference(ends[0], ends[1]) is None


def interrupted() -> Tensor:
    raise KeyboardInterrupt


UNFIT: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a float": (lambda loss: loss.item, "returned a float"),
    "nothing": (lambda _loss: lambda: None, "returned a NoneType"),
    "a pair": (lambda loss: lambda: (loss, 1), "returned a tuple"),
    "a detached loss": (lambda loss: loss.detach, "depends on no parameter"),
    "the loss itself": (lambda loss: loss, "compute is a Tensor"),
    "a generator": (lambda loss: (lambda: loss for _ in range(2)), "compute is a generator"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_no_loss_is_refused_in_words(name: str) -> None:
    given_as, words = UNFIT[name]
    run = Recipe(model=plain).make()
    loss = run.guard.model(torch.ones(2, 4)).sum()
    with pytest.raises(ConfigError, match=words):
        run.guard.step(given_as(loss))


@pytest.mark.parametrize(
    "ids", [torch.arange(3), torch.arange(3).numpy(), range(3), ["0", "1", "2"], {0: 0, 1: 0, 2: 0}]
)
def test_sample_ids_may_come_as_any_list_of_numbers(ids: Any) -> None:
    assert Recipe().make().guard.step(Recipe().make().computes(0), sample_ids=ids).sample_ids == (0, 1, 2)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("ids", [["doc-1"], None, 7, torch.ones(2, 2), (number for number in range(2))])
def test_sample_ids_that_are_no_numbers_are_refused_in_words_and_leave_nothing(ids: Any, late: bool) -> None:
    run = Recipe(optimizer=OPTIMIZERS["adamw fused"], scaled=True).make()
    before = run.everything()
    step = LateStepGuard(run.guard).step if late else run.guard.step
    with pytest.raises(ConfigError, match="sample_ids is no list of whole numbers"):
        step(run.computes(0, Bad.NAN_INPUT), sample_ids=ids)
    assert difference(before, run.everything()) is None
    step(run.computes(0))


@pytest.mark.parametrize("late", [False, True])
def test_a_step_after_an_optimizer_that_ran_out_of_memory_goes_on_with_the_scaler(late: bool) -> None:
    run, failures = Recipe(optimizer=OPTIMIZERS["adamw fused"], scaled=True).make(), [OutOfMemory()]

    def once(*_arguments: object) -> None:
        if failures:
            raise failures.pop()

    run.guard.optimizer.register_step_pre_hook(once)
    step = LateStepGuard(run.guard).step if late else run.guard.step
    with pytest.raises(OutOfMemory):
        step(run.computes(0))
    step(run.computes(0))


def test_a_copied_guard_works_on_the_copies_and_rewinds_the_generator_that_torch_draws_from() -> None:
    twin = copy.deepcopy(Recipe().make())
    before = twin.everything()
    assert not twin.step(0, Bad.NAN_INPUT).applied
    assert difference(before, twin.everything()) is None


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of one rank, which goes through the real backend."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_ddp_s_join_is_refused_in_words_instead_of_mixing_up_collectives() -> None:
    model = DistributedDataParallel(plain())
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with model.join(), pytest.raises(ConfigError, match="same number of batches"):
        guard.step(lambda: model(torch.ones(2, 4)).sum())
