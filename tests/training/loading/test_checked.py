from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks, form_of, leaves, not_finite
from failsoft.training.loading.collate import Fill, fill_rows, travels
from failsoft.training.loading.sample import Ask, BadKind, GuardedBatch, StandIn
from tests.training.loading.data import WIDTH, RowData, StubbornError


def load(faults: dict[int, str], indices: tuple[int, ...] = (0, 1, 2, 3), **settings: object) -> GuardedBatch:
    checked = Checked(RowData(100, faults), **settings)  # type: ignore[arg-type]
    return checked.load(Ask(position=5, indices=indices))


@pytest.mark.parametrize(
    ("fault", "kind", "why"),
    [
        ("raises", BadKind.RAISED, "ValueError: sample 2 can't be decoded"),
        ("stubborn", BadKind.RAISED, "StubbornError"),
        ("digest", BadKind.CHECKSUM, "bytes are changed"),
        ("source", BadKind.OUT_OF_REACH, "nobody answers"),
        ("nan", BadKind.NOT_FINITE, "x holds NaN or Inf"),
        ("shape", BadKind.MALFORMED, "x is Tensor (5,) torch.float64, elsewhere Tensor (4,) torch.float64"),
        ("lock", BadKind.MALFORMED, "unlike its batch: x is lock"),
    ],
)
def test_a_bad_sample_is_named_and_a_copy_at_weight_0_takes_its_place(fault: str, kind: BadKind, why: str) -> None:
    batch = load({2: fault})
    (bad,) = batch.bad
    assert (bad.index, bad.source, bad.kind) == (2, "shard-0", kind)
    assert why in bad.why
    assert batch.weights == (1.0, 1.0, 0.0, 1.0)
    assert batch.data["index"].tolist() == [0, 1, 0, 3]
    assert batch.data["x"].shape == (4, WIDTH)


def test_a_good_batch_is_what_plain_collation_makes_of_it() -> None:
    batch = load({})
    assert batch.real == 4
    assert batch.data["index"].tolist() == [0, 1, 2, 3]
    assert not batch.bad


def test_a_batch_of_things_that_no_pickle_takes_is_bad_in_the_worker_and_not_lost_on_the_way() -> None:
    batch = load(dict.fromkeys(range(4), "lock"), collate=list)
    assert {bad.kind for bad in batch.bad} == {BadKind.MALFORMED}
    assert batch.data is None


def test_a_sample_that_is_too_long_or_fails_the_users_check_is_left_out() -> None:
    checks = SampleChecks(
        max_length=3,
        length_of=lambda sample: int(sample["index"]),
        check=lambda sample: "odd" if int(sample["index"]) == 1 else None,
    )
    batch = load({}, indices=(0, 1, 2, 7), checks=checks)
    assert [(bad.index, bad.kind, bad.why) for bad in batch.bad] == [
        (1, BadKind.MALFORMED, "odd"),
        (7, BadKind.TOO_LONG, "length 7, at most 3"),
    ]


def test_an_odd_sample_that_is_alone_is_told_by_an_example() -> None:
    odd = load({2: "shape"}, indices=(2,))
    assert odd.real == 1  # nothing to compare it with
    batch = load({2: "shape"}, indices=(2,), checks=SampleChecks(like=RowData(1)[0]))
    assert batch.bad[0].why == "x is Tensor (5,) torch.float64, elsewhere Tensor (4,) torch.float64"


def test_a_check_that_raises_costs_its_sample_only() -> None:
    batch = load({}, checks=SampleChecks(check=lambda sample: str(1 // int(sample["index"]) and "")[:0] or None))
    assert [bad.index for bad in batch.bad] == [0]
    assert "ZeroDivisionError" in batch.bad[0].why


def test_a_synthetic_sample_has_weight_0_and_is_told_apart_from_bad_ones() -> None:
    batch = load({1: "stands in", 3: "raises"})
    assert batch.weights == (1.0, 0.0, 1.0, 0.0)
    assert [sample.index for sample in batch.synthetic] == [1]
    assert [sample.index for sample in batch.bad] == [3]
    assert batch.data["x"][1].abs().sum() == 0
    assert batch.data["index"].tolist() == [0, 1, 2, 0]  # the copy is of a good one, never of a synthetic one


def test_a_share_that_is_all_bad_borrows_from_the_ranks_next_batch_and_counts_nothing() -> None:
    faults = dict.fromkeys(range(4), "raises")
    batch = load(faults, reserve=lambda position: (3, position + 1))
    assert batch.data["index"].tolist() == [6] * 4
    assert batch.real == 0


def test_a_share_that_is_all_bad_without_a_reserve_borrows_the_last_good_sample_that_was_met() -> None:
    checked = Checked(RowData(100, dict.fromkeys(range(4), "raises")))
    assert checked.load(Ask(position=0, indices=(0, 1))).data is None
    checked.load(Ask(position=1, indices=(8, 9)))
    assert checked.load(Ask(position=2, indices=(0, 1))).data["index"].tolist() == [8, 8]


def test_rows_can_be_left_out_instead_of_filled() -> None:
    batch = load({1: "raises", 2: "stands in"}, fill=Fill.LEAVE_OUT)
    assert batch.data["index"].tolist() == [0, 3]
    assert batch.rows == (0, 3)
    assert batch.weights == (1.0, 1.0)


def test_a_barred_sample_is_not_touched() -> None:
    batch = Checked(RowData(100, {2: "killed"})).load(
        Ask(position=0, indices=(1, 2), barred={2: "2 workers died of it"})
    )
    assert (batch.bad[0].kind, batch.bad[0].why) == (BadKind.WORKER_DIED, "2 workers died of it")


def test_augmentations_belong_to_the_batch_and_leave_the_trainings_own_generators_alone() -> None:
    class Noisy(RowData):
        def __getitem__(self, index: int) -> object:
            return torch.rand(3)

    def drawn(position: int) -> list[list[float]]:
        rows: list[list[float]] = Checked(Noisy(9), seed=4).load(Ask(position=position, indices=(0, 1))).data.tolist()
        return rows

    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert drawn(7) == drawn(7) != drawn(8)
    assert torch.equal(torch.get_rng_state(), before)


@given(
    places=st.lists(st.integers(0, 19), min_size=1, max_size=20, unique=True),
    asked=st.just(20),
    fill=st.sampled_from(Fill),
    data=st.data(),
)
def test_each_real_sample_counts_once_and_nothing_else_counts(
    places: list[int], asked: int, fill: Fill, data: st.DataObject
) -> None:
    counted = data.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    chosen, weights = fill_rows(places, counted, asked, fill)
    real = [places[row] for row, weight in zip(chosen, weights, strict=True) if weight]
    assert sorted(real) == sorted(place for place, counts in zip(places, counted, strict=True) if counts)
    assert len(chosen) == (asked if fill is Fill.COPY else max(1, len(real)))


def test_what_is_not_finite_is_found_where_it_is_and_a_sum_that_overflows_is_not() -> None:
    large = torch.full((4,), 3e38)
    assert not_finite({"a": large, "b": [1, "x", None]}) is None
    assert not_finite({"a": large, "b": [1.0, float("nan")]}) == "b[1] holds NaN or Inf"
    assert not_finite((torch.ones(2), torch.tensor([0.0, float("-inf")]))) == "[1] holds NaN or Inf"
    assert form_of({"a": large}) == (("a", "Tensor (4,) torch.float32"),)


@pytest.mark.parametrize("fault", ["nan", "stands in"])
def test_large_samples_are_looked_at_one_by_one_whichever_comes_first(fault: str) -> None:
    class Large(RowData):
        def __getitem__(self, index: int) -> object:
            wide = torch.full((20_000,), float("nan") if index in {0, 2} else 1.0)
            return StandIn(sample=wide, source="", why="") if (index, fault) == (0, "stands in") else wide

    batch = Checked(Large(9)).load(Ask(position=0, indices=(0, 1, 2, 3)))
    assert [(bad.index, bad.kind) for bad in batch.bad] == [(0, BadKind.NOT_FINITE), (2, BadKind.NOT_FINITE)]
    assert batch.data.isfinite().all()


def test_what_travels_is_tried_only_where_types_do_not_tell() -> None:
    assert travels({"x": torch.zeros(2), "name": "a"})
    assert not travels({"x": StubbornError()})


FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Odd(NamedTuple):
    pixels: object
    label: object


FINITE_OR_NOT = st.sampled_from(
    [
        *(torch.tensor([1.0, value, 2.0], dtype=dtype) for value in (3.0, torch.inf, torch.nan) for dtype in FLOATS),
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.tensor([3e38, 3e38, 3e38]),  # its sum is not finite, and it is
        torch.tensor([1.0 + 2.0j, complex(0.0, float("inf"))]),
        np.array([1.0, np.nan]),
        np.array([1.0, 2.0], dtype=np.float16),
        np.float32(np.inf),
        np.float64(1.0),
        float("nan"),
        1.5,
        7,
        True,
        None,
        "nan",
        b"inf",
    ]
)
NESTED = st.recursive(
    FINITE_OR_NOT,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(Odd, inner, inner),
    ),
    max_leaves=8,
)


@given(sample=NESTED)
def test_a_sample_is_finite_where_each_of_its_leaves_is_however_they_lie(sample: object) -> None:
    assert (not_finite(sample) is None) == all(is_well(leaf) for _, leaf in leaves(sample))


def is_well(leaf: Any) -> bool:
    if isinstance(leaf, str | bytes | None):
        return True
    as_array = leaf.to(torch.complex128).numpy() if isinstance(leaf, torch.Tensor) else leaf
    return bool(np.isfinite(as_array).all())


def test_a_sample_that_holds_itself_is_looked_at_once() -> None:
    sample: list[object] = [torch.ones(2)]
    sample.append(sample)
    assert not_finite(sample) is None
