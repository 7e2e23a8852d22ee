"""No sample lost, none repeated, nothing drawn twice: resumed runs against undisturbed ones, batch by batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from failsoft.training.batches import GlobalBatches
from failsoft.training.state import flatten
from tests.training.diary_loop import Page, Setting, diary_loop, group_life, joined, live


def setting(*, samples: int, batch: int, total: int, every: int, dropout: float = 0.3) -> Setting:
    batches = GlobalBatches(num_samples=samples, global_batch=batch, seed=9)
    return Setting(batches=batches, total=total, every=every, dropout=dropout)


def epoch_of(pages: list[Page], epoch: int, per_epoch: int) -> list[int]:
    return sorted(i for page in pages if page.position // per_epoch == epoch for i in page.ids)


def test_a_checkpoint_on_the_last_batch_of_an_epoch_drops_and_repeats_no_epoch(tmp_path: Path) -> None:
    run = setting(samples=50, batch=4, total=39, every=13)
    lives = live(tmp_path, run, 13)
    assert [pages[0].position for pages in lives] == [0, 13]
    assert [epoch_of(lives[1], epoch, 13) for epoch in (1, 2)] == [list(range(50))] * 2
    assert epoch_of(joined(lives), 0, 13) == list(range(50))


def test_several_resumes_in_the_same_epoch_join_to_the_ids_of_the_undisturbed_run(tmp_path: Path) -> None:
    run = setting(samples=260, batch=4, total=65, every=10)
    (undisturbed,) = live(tmp_path / "undisturbed", run)
    lives = live(tmp_path / "killed", run, 30, 40, 55)
    assert [pages[0].position for pages in lives] == [0, 30, 40, 50]
    assert joined(lives) == undisturbed


def test_a_resume_in_mid_epoch_of_a_later_epoch_has_the_ids_and_losses_of_the_undisturbed_run(tmp_path: Path) -> None:
    run = setting(samples=500, batch=4, total=250, every=40)
    (undisturbed,) = live(tmp_path / "undisturbed", run)
    _, resumed = live(tmp_path / "killed", run, 200)  # epoch 1, batch 75 of 125
    assert resumed[0].position == 200
    assert resumed == undisturbed[200:]
    assert resumed[0].ids != undisturbed[75].ids  # epoch 0's order is another


def test_dropout_after_a_checkpoint_at_an_epoch_end_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    run = setting(samples=40, batch=4, total=30, every=10, dropout=0.5)
    (undisturbed,) = live(tmp_path / "undisturbed", run)
    _, resumed = live(tmp_path / "killed", run, 10)
    assert [page.loss for page in resumed] == [page.loss for page in undisturbed[10:]]
    quiet = setting(samples=40, batch=4, total=30, every=10, dropout=0.0)
    (without,) = live(tmp_path / "without", quiet)
    assert [page.loss for page in without[10:]] != [page.loss for page in resumed], "dropout drew nothing"


@pytest.mark.parametrize("saved_at", [7, 13, 26])
def test_step_batch_and_samples_agree_after_a_save_in_mid_epoch_and_on_the_last_batch(
    tmp_path: Path, saved_at: int
) -> None:
    run = setting(samples=50, batch=4, total=39, every=saved_at)
    (undisturbed,) = live(tmp_path / "undisturbed", run)
    _, resumed = live(tmp_path / "killed", run, saved_at)
    assert (resumed[0].position, resumed[0].step) == (saved_at, saved_at)
    assert [(page.position, page.step, page.ids) for page in resumed] == [
        (page.position, page.step, page.ids) for page in undisturbed[saved_at:]
    ]
    assert resumed[-1].position == 38


def test_the_first_resumed_step_meets_the_learning_rate_and_weight_decay_of_the_undisturbed_run(
    tmp_path: Path,
) -> None:
    run = setting(samples=50, batch=4, total=20, every=6)
    (undisturbed,) = live(tmp_path / "undisturbed", run)
    _, resumed = live(tmp_path / "killed", run, 14)
    assert resumed[0].groups == undisturbed[12].groups
    assert [decay for _, decay in resumed[0].groups] == [0.3, 0.0]
    assert resumed[0].groups != undisturbed[0].groups  # the schedule had moved


@pytest.mark.parametrize("worlds", [(1, 2), (4, 3), (3, 1)])
def test_a_resize_after_some_batches_loses_no_sample_and_repeats_none(tmp_path: Path, worlds: tuple[int, int]) -> None:
    run = setting(samples=16, batch=4, total=8, every=1, dropout=0.0)
    before = group_life(tmp_path, run, worlds[0], 1)
    after = group_life(tmp_path, run, worlds[1], None)
    taken: dict[int, list[int]] = {}
    for world, group in zip(worlds, (before, after), strict=True):
        for rank, (_, task) in enumerate(group):
            for page in task.pages:
                mine = run.batches.indices(page.position, rank, world).tolist()
                taken.setdefault(page.position, []).extend(mine)
                assert not mine or list(page.ids) == mine  # without a share a rank goes through the motions
    assert sorted(taken) == list(range(8))
    assert {len(ids) for ids in taken.values()} == {4}, "the global batch changed"
    for epoch in range(2):
        seen = [i for position in range(epoch * 4, epoch * 4 + 4) for i in taken[position]]
        assert sorted(seen) == list(range(16))


@pytest.mark.parametrize("worlds", [(1, 2), (4, 3), (3, 1)])
def test_a_resized_run_has_the_gradients_and_learning_rates_of_the_run_of_one_rank(
    tmp_path: Path, worlds: tuple[int, int]
) -> None:
    run = setting(samples=18, batch=4, total=10, every=3, dropout=0.0)  # the last batch of an epoch holds two samples
    (alone,) = group_life(tmp_path / "alone", run, 1, None)
    group_life(tmp_path / "resized", run, worlds[0], 4)
    resized = group_life(tmp_path / "resized", run, worlds[1], None)
    expected = flatten(alone[0].state).tensors  # the optimizer's moments are sums of gradients
    for loop, task in resized:
        tensors = flatten(loop.state).tensors
        assert tensors.keys() == expected.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-14)
        rates = {page.position: page.groups for page in alone[1].pages}
        assert all(page.groups == rates[page.position] for page in task.pages)


def test_the_order_of_samples_knows_nothing_of_ranks_and_of_what_was_fetched_ahead(tmp_path: Path) -> None:
    run = setting(samples=50, batch=4, total=20, every=6)
    ahead = {position: run.batches.global_indices(position).tolist() for position in reversed(range(39))}
    loop, task = diary_loop(tmp_path, run)
    loop.run()
    assert [list(page.ids) for page in task.pages] == [ahead[position] for position in range(20)]
