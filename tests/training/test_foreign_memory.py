"""A batch that does not fit into memory, in Lightning and in transformers: left out, and nothing of it stays."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("lightning", reason="needs the extra: pip install 'failsoft[lightning]'")
pytest.importorskip("transformers", reason="needs the extra: pip install 'failsoft[transformers]'")

from failsoft.training.for_lightning import GuardCallback
from failsoft.training.guard import Refusal
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.ranks import SoloRank
from tests.training import test_for_lightning as lightning
from tests.training import test_for_transformers as transformers

pytestmark = lightning.pytestmark


@pytest.mark.parametrize("kind", [transformers.NO_MEMORY, transformers.NO_MEMORY_LATER])
def test_transformers_a_batch_that_does_not_fit_is_left_out_and_leaves_no_trace(tmp_path: Path, kind: int) -> None:
    trainer = transformers.fit(tmp_path / "a", transformers.Texts(range(8), {3: kind}), **transformers.CONSTANT)
    never = transformers.fit(tmp_path / "b", transformers.Texts([0, 1, 2, 4, 5, 6, 7]), **transformers.CONSTANT)
    transformers.assert_same_state(trainer, never)
    [letter] = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert (letter.reason, letter.sample_ids) == (Refusal.OUT_OF_MEMORY, tuple(range(12, 16)))
    assert "tried to allocate 1 GiB" in letter.why


def test_a_part_that_does_not_fit_refuses_the_whole_accumulated_update(tmp_path: Path) -> None:
    numbers = [n for n in range(12) if not 3 <= n < 6]
    trainer = transformers.fit(
        tmp_path / "a",
        transformers.Texts(range(12), {4: transformers.NO_MEMORY_LATER}),
        gradient_accumulation_steps=3,
        **transformers.CONSTANT,
    )
    never = transformers.fit(
        tmp_path / "b", transformers.Texts(numbers), gradient_accumulation_steps=3, **transformers.CONSTANT
    )
    transformers.assert_same_state(trainer, never)


class Held:
    """A large thing of the forward pass."""


def test_nothing_of_a_batch_that_did_not_fit_is_held_by_its_error(tmp_path: Path) -> None:
    held: list[weakref.ref[Held]] = []

    class Greedy(transformers.Toy):
        def forward(self, input_ids: Tensor, labels: Tensor, kind: Tensor) -> dict[str, Tensor]:
            assert all(one() is None for one in held)
            large = Held()
            if int(kind[0]):
                held.append(weakref.ref(large))
                transformers.no_memory(large)
            return super().forward(input_ids, labels, kind)

    transformers.fit(
        tmp_path, transformers.Texts(range(4), {1: transformers.NO_MEMORY}), model=Greedy(), **transformers.CONSTANT
    )
    assert len(held) == 1


def test_transformers_of_several_ranks_the_error_goes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SoloRank, "world", 2)
    with pytest.raises(torch.OutOfMemoryError):
        transformers.fit(tmp_path, transformers.Texts(range(4), {1: transformers.NO_MEMORY}), **transformers.CONSTANT)


class HungryToy(lightning.Toy):
    """Runs out of memory in its forward pass, or in its backward pass."""

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:
        kind = int(batch["kind"])
        if kind == transformers.NO_MEMORY:
            transformers.no_memory()
        loss = super().training_step(batch | {"kind": torch.tensor(lightning.GOOD)})
        if kind == transformers.NO_MEMORY_LATER:
            loss.register_hook(transformers.no_memory)
        return loss


@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
@pytest.mark.parametrize("kind", [transformers.NO_MEMORY, transformers.NO_MEMORY_LATER])
@pytest.mark.parametrize("how", [{}, {"gradient_clip_algorithm": "value"}, {"accumulate_grad_batches": 2}])
def test_lightning_a_batch_that_does_not_fit_is_left_out_and_leaves_no_trace(
    tmp_path: Path, kind: int, how: dict[str, Any]
) -> None:
    several = how.get("accumulate_grad_batches", 1)
    gone = range(4, 4 + several)
    _module, trainer = lightning.fit(
        tmp_path / "a", lightning.Batches(range(10), {4: kind}), GuardCallback(), module=HungryToy(), **how
    )
    _module, never = lightning.fit(
        tmp_path / "b", lightning.Batches([n for n in range(10) if n not in gone]), GuardCallback(), **how
    )
    lightning.assert_same_state(trainer, never)
    [letter] = read_dead_letters(tmp_path / "a/failsoft/dead_letters")
    assert (letter.reason, letter.sample_ids) == (Refusal.OUT_OF_MEMORY, tuple(range(32, 32 + 8 * several)))
    assert "tried to allocate 1 GiB" in letter.why


def test_lightning_of_several_ranks_the_error_goes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SoloRank, "world", 2)
    with pytest.raises(torch.OutOfMemoryError):
        lightning.fit(
            tmp_path, lightning.Batches(range(4), {1: transformers.NO_MEMORY}), GuardCallback(), module=HungryToy()
        )
