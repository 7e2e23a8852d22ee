"""Texts become token ids, by a ``tokenizer.json`` of the Rust tokenizers: it holds rules and words, and no code."""

# B texts, T tokens

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from failsoft.errors import CorpusError, IncompatibleArtifactError
from failsoft.models.foreign.rows import Arrays

FEEDS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs that can be filled from texts."""


class TokenFeed:
    """Texts as the inputs of a model.

    Args:
        tokenizer: the one that the model was trained with.
        max_tokens: longer texts are cut; the model's own limit.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int) -> None:
        tokenizer.enable_truncation(max_length=max_tokens)
        tokenizer.no_padding()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, path: Path, *, max_tokens: int) -> TokenFeed:
        """Read a ``tokenizer.json``.

        Raises:
            IncompatibleArtifactError: it is none.
        """
        try:
            return cls(Tokenizer.from_str(path.read_text("utf-8")), max_tokens=max_tokens)
        except Exception as error:  # the Rust side raises plain Exception and nothing narrower
            raise IncompatibleArtifactError(f"{path} holds no tokenizer: {error}; save the tokenizer again") from error

    def arrays(self, texts: Sequence[str], names: Sequence[str]) -> Arrays:
        """Integers of shape (B, T) for each of ``names``; shorter texts are padded with 0 under a mask of 0.

        Raises:
            CorpusError: a name is none of :data:`FEEDS`, or a text is no text.
        """
        unknown = [name for name in names if name not in FEEDS]
        if unknown:
            raise CorpusError(f"texts fill {', '.join(FEEDS)}; the model also reads {', '.join(unknown)}")
        if not all(isinstance(text, str) for text in texts):
            raise CorpusError("a text is no text; use inputs=Texts() for a model with a tokenizer")
        encoded = self._tokenizer.encode_batch(list(texts))
        width = max(1, *(len(row.ids) for row in encoded))
        found = {name: np.zeros((len(encoded), width), dtype=np.int64) for name in names}
        for b, row in enumerate(encoded):
            count = len(row.ids)
            for name, values in zip(FEEDS, (row.ids, row.attention_mask, row.type_ids), strict=True):
                if name in found:
                    found[name][b, :count] = values
        return dict(found)
