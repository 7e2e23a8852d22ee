"""Refuses ids that a model has no row for, whatever model it is.

On a GPU such an id is a device-side assert, which takes the whole process with it: vLLM restarted its container each
time (vllm#11375), and the traceback points anywhere else. So every table is guarded before it is read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from failsoft.errors import CorpusError


def refuse_unknown_ids(model: nn.Module, *, max_tokens: int | None = None) -> list[RemovableHandle]:
    """Guard all embedding tables of a model, for good or until the handles are removed.

    Call it once after loading, and not on a model that will be compiled or scripted. On a CPU it takes some µs for each
    table; on a GPU it waits for the device once for each, so check ids there before they are copied
    (:func:`failsoft.models.tokens.check_ids`) where that is possible.

    Args:
        model: any; tables that are added later are not guarded.
        max_tokens: longest row of ids that a table may be asked for; None: any.

    Returns:
        Handles whose ``remove`` ends it. From then until now, a forward pass raises :class:`CorpusError` before a table
        is read with an id that is negative or not below its size, or with a longer row.
    """
    tables = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)]
    return [part.register_forward_pre_hook(_Guard(name or "the table", max_tokens)) for name, part in tables]


class _Guard:
    def __init__(self, name: str, max_tokens: int | None) -> None:
        self._name = name
        self._max_tokens = max_tokens

    def __call__(self, table: nn.Module, given: tuple[Any, ...]) -> None:
        ids = given[0]
        if not isinstance(ids, Tensor) or not ids.numel():
            return
        if self._max_tokens is not None and ids.ndim and ids.shape[-1] > self._max_tokens:
            raise CorpusError(
                f"{self._name} was asked for {ids.shape[-1]} ids in a row, at most {self._max_tokens} are read; cut "
                "the text, or refuse it"
            )
        low, high = (int(bound) for bound in torch.stack(ids.aminmax()).tolist())
        rows = int(table.num_embeddings)  # type: ignore[arg-type]
        if low < 0 or high >= rows:
            raise CorpusError(
                f"{self._name} was asked for id {low if low < 0 else high}, it has 0..{rows - 1}; encode texts with "
                "the tokenizer that was trained with this model"
            )
