"""An id that a table has no row for never reaches the table, whatever the model is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from failsoft.errors import CorpusError
from failsoft.models.id_bounds import refuse_unknown_ids


class Bag(nn.Module):
    """Somebody's own model: it knows nothing of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.words(ids_BT).mean(dim=1))
        return scores


@pytest.mark.parametrize("bad", [100, -1, 2**31])
def test_an_id_outside_the_table_is_refused_by_name_before_the_table_is_read(bad: int) -> None:
    model = Bag()
    refuse_unknown_ids(model)
    with pytest.raises(CorpusError, match=rf"words was asked for id {bad}, it has 0\.\.99"):
        model(torch.tensor([[1, 2], [3, bad]]))


def test_a_row_that_is_too_long_is_refused() -> None:
    model = Bag()
    refuse_unknown_ids(model, max_tokens=512)
    assert model(torch.ones(1, 512, dtype=torch.long)).shape == (1, 3)
    with pytest.raises(CorpusError, match="513 ids in a row"):
        model(torch.ones(1, 513, dtype=torch.long))


@pytest.mark.parametrize("ids", [torch.tensor([[0, 99]]), torch.zeros(1, 0, dtype=torch.long)])
def test_ids_inside_the_table_change_nothing(ids: torch.Tensor) -> None:
    model = Bag()
    before = model(ids)
    refuse_unknown_ids(model)
    assert torch.equal(model(ids).nan_to_num(), before.nan_to_num())


def test_bags_of_embeddings_are_guarded_and_a_guard_can_be_taken_off() -> None:
    table = nn.EmbeddingBag(10, 2)
    (guard,) = refuse_unknown_ids(table)
    with pytest.raises(CorpusError, match="the table was asked for id 10"):
        table(torch.tensor([[10]]))
    guard.remove()
    with pytest.raises((IndexError, RuntimeError)):
        table(torch.tensor([[10]]))


@pytest.mark.cuda
def test_on_a_gpu_the_refusal_leaves_the_device_usable() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch sees none here")
    model = Bag().cuda()
    refuse_unknown_ids(model)
    with pytest.raises(CorpusError):
        model(torch.tensor([[100]], device="cuda"))
    assert model(torch.tensor([[1]], device="cuda")).isfinite().all()
