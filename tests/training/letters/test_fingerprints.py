from __future__ import annotations

import pytest
import torch

from failsoft.training.letters.fingerprints import (
    bytes_of,
    generators_digest,
    pack_generators,
    tensors_digest,
    unpack_generators,
)

CPU = torch.device("cpu")


def tensors() -> dict[str, torch.Tensor]:
    return {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(1), "c": torch.ones(3, dtype=torch.bfloat16)}


def test_equal_tensors_have_equal_digests_in_any_order_and_layout() -> None:
    turned = dict(reversed(tensors().items())) | {"a": torch.arange(6.0).view(2, 3).t().contiguous().t()}
    assert tensors_digest(turned) == tensors_digest(tensors())


@pytest.mark.parametrize(
    "change",
    [
        {"a": torch.arange(6.0).view(3, 2)},
        {"a": torch.arange(6.0, dtype=torch.float64).view(2, 3)},
        {"b": torch.tensor(2)},
        {"c": torch.tensor([1.0, 1.0, -1.0], dtype=torch.bfloat16)},
        {"d": torch.tensor(0)},
    ],
)
def test_a_change_of_name_shape_type_or_one_bit_changes_the_digest(change: dict[str, torch.Tensor]) -> None:
    assert tensors_digest(tensors() | change) != tensors_digest(tensors())


def test_the_sign_of_zero_and_the_bits_of_nan_count() -> None:
    assert tensors_digest({"a": torch.tensor(0.0)}) != tensors_digest({"a": torch.tensor(-0.0)})
    assert tensors_digest({"a": torch.tensor(torch.nan)}) == tensors_digest({"a": torch.tensor(torch.nan)})


def test_an_empty_tensor_has_a_digest_and_no_bytes() -> None:
    empty = {"a": torch.empty(0, 3)}
    assert tensors_digest(empty).startswith("blake3:")
    assert bytes_of(empty) == 0


def test_unpacked_generators_draw_what_the_packed_ones_would_have_drawn() -> None:
    torch.manual_seed(3)
    torch.rand(7)
    packed = pack_generators(CPU)
    drawn = torch.rand(5)
    torch.manual_seed(99)
    unpack_generators(packed, CPU)
    assert torch.equal(torch.rand(5), drawn)
    assert sum(map(len, packed.values())) < 4096


def test_generators_have_equal_digests_when_they_draw_the_same() -> None:
    torch.manual_seed(3)
    first = generators_digest(pack_generators(CPU))
    torch.manual_seed(3)
    assert generators_digest(pack_generators(CPU)) == first
    torch.rand(1)
    assert generators_digest(pack_generators(CPU)) != first


@pytest.mark.cuda
def test_the_generator_of_a_gpu_is_packed_with_the_hosts() -> None:
    device = torch.device("cuda")
    torch.manual_seed(3)
    packed = pack_generators(device)
    drawn = torch.rand(5, device=device)
    unpack_generators(packed, device)
    assert sorted(packed) == ["cpu", "cuda"]
    assert torch.equal(torch.rand(5, device=device), drawn)
