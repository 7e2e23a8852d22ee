"""Samples and errors that no dataset should give, and some do: the batch comes all the same, without secrets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import default_collate

from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample import Ask, BadKind, GuardedBatch
from failsoft.training.loading.wording import without_secrets


class PanicError(BaseException):
    """As libraries in Rust raise it through pyo3: no ``Exception``."""


class OneWay:
    """Is pickled without a murmur, and can't be made again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (int, ("no number",))


@dataclass
class Row:
    """A sample that is no mapping."""

    x: Tensor


class Odd:
    """Sample 2 is what ``make`` gives."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getitem__(self, index: int) -> Any:
        return self._make() if index == 2 else {"x": torch.zeros(3)}


def load(make: Callable[[], Any], **settings: Any) -> GuardedBatch:
    return Checked(Odd(make), **settings).load(Ask(position=1, indices=(0, 1, 2, 3)))


def panic() -> Any:
    raise PanicError("index out of bounds")


def one_way() -> Any:
    return {"x": OneWay()}


def with_graph() -> Any:
    return {"x": torch.zeros(3, requires_grad=True)}


def endless() -> Any:
    held: list[Any] = []
    held.append(held)
    return held


def laid_out_for_mkldnn() -> Any:
    return {"x": torch.zeros(3).to_mkldnn()}


def elsewhere() -> Any:
    return {"x": torch.zeros(3, device="meta")}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (panic, BadKind.RAISED),
        (one_way, BadKind.MALFORMED),
        (with_graph, BadKind.MALFORMED),
        (endless, BadKind.MALFORMED),
        (elsewhere, BadKind.MALFORMED),
        (laid_out_for_mkldnn, BadKind.MALFORMED),
    ],
)
def test_an_odd_sample_costs_itself_alone(make: Callable[[], Any], kind: BadKind) -> None:
    batch = load(make, collate=list if make in {one_way, laid_out_for_mkldnn} else default_collate)
    assert [(bad.index, bad.kind) for bad in batch.bad] == [(2, kind)]
    assert batch.weights == (1.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("make", [lambda: {"x": np.float32("nan")}, lambda: Row(torch.tensor([1.0, float("nan")]))])
def test_nan_is_found_in_numbers_of_numpy_and_in_dataclasses(make: Callable[[], Any]) -> None:
    assert [bad.kind for bad in load(make, collate=list).bad] == [BadKind.NOT_FINITE]


@pytest.mark.parametrize(
    "laid_out",
    [
        Tensor.to_sparse,
        Tensor.to_sparse_csr,
        Tensor.to_sparse_csc,
        lambda one: torch.nested.as_nested_tensor(list(one), layout=torch.jagged),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CS")  # torch calls them beta
def test_samples_that_are_sparse_or_nested_are_as_good_as_others(laid_out: Callable[[Tensor], Tensor]) -> None:
    class Sparse:
        def __getitem__(self, index: int) -> Any:
            return {"x": laid_out(torch.tensor([[0.0, 1.0], [float("nan") if index == 2 else 2.0, 0.0]]))}

    batch = Checked(Sparse(), collate=list).load(Ask(position=1, indices=(0, 1, 2, 3)))
    assert [(bad.index, bad.kind) for bad in batch.bad] == [(2, BadKind.NOT_FINITE)]
    assert batch.weights == (1.0, 1.0, 0.0, 1.0)


def test_a_length_that_is_no_number_is_too_long() -> None:
    checks = SampleChecks(max_length=3, length_of=lambda _sample: float("nan"))  # type: ignore[arg-type,return-value]
    assert {bad.kind for bad in load(lambda: {}, checks=checks).bad} == {BadKind.TOO_LONG}


def test_a_batch_that_can_not_be_filled_is_bad_as_a_whole_and_no_error() -> None:
    calls: list[int] = []

    def moody(samples: list[Any]) -> Any:
        calls.append(len(samples))
        if len(calls) > 1:
            raise RuntimeError("only once")
        return default_collate(samples)

    batch = load(panic, collate=moody)
    assert (batch.data, batch.real, len(batch.bad)) == (None, 0, 4)
    assert "only once" in batch.bad[0].why


def test_who_asks_the_process_to_leave_is_not_taken_for_a_bad_sample() -> None:
    def leave() -> Any:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        load(leave)


@pytest.mark.parametrize("make", [panic, one_way, with_graph, endless])
def test_a_worker_brings_the_batch_of_an_odd_sample_too(make: Callable[[], Any]) -> None:
    order = RankOrder(batches=GlobalBatches(num_samples=4, global_batch=4, seed=1), rank=0, world=1, total=1)
    checked = Checked(Odd(make), collate=list if make is one_way else default_collate)
    with GuardedLoader(checked, order, policy=LoaderPolicy(workers=1, hang_after_s=30.0)) as loader:
        batch = loader.fetch(0)
        assert [bad.index for bad in batch.bad] == [2]
        assert loader.deaths == 0


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GET https://me:hunter2@host/b/x failed", "GET https://...@host/b/x failed"),
        ("s3://b/x?X-Amz-Signature=ab12&partNumber=1", "s3://b/x?X-Amz-Signature=...&partNumber=1"),
        ("{'secret_access_key': 'hunter2'}", "{'secret_access_key': '...'}"),
        ("Authorization: Bearer hunter2 was refused", "Authorization: ... was refused"),
        ("token is not in the vocabulary; 3 tokens at https://host/a", None),
    ],
)
def test_letters_and_ledgers_hold_no_secret_of_an_address(text: str, left: str | None) -> None:
    assert without_secrets(text) == (text if left is None else left)
