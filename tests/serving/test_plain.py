"""What a model gives can be read in a process without torch."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import torch

from failsoft.serving.plain import without_tensors


class ModelOutput(OrderedDict[str, object]):
    """As transformers has one: unpickling it would import the library, and torch with it."""


class Scored(NamedTuple):
    logits: object
    names: tuple[str, ...]


def test_tensors_become_arrays_in_whatever_mapping_or_tuple_they_come() -> None:
    half = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    plain = without_tensors(ModelOutput(logits=half, more=[Scored(torch.tensor([7]), ("a",))]))
    assert type(plain) is dict
    assert (plain["logits"].dtype, plain["logits"].tolist()) == (np.float32, [[1.0, 1.0]])
    (more,) = plain["more"]
    assert isinstance(more, Scored)
    assert (type(more.logits), more.names) == (np.ndarray, ("a",))


def test_what_holds_no_tensor_is_left_as_it_is() -> None:
    array = np.zeros(2)
    assert without_tensors(array) is array
    assert without_tensors({"a": [1, (2, None)]}) == {"a": [1, (2, None)]}
