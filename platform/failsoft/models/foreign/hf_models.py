"""Text classifiers and taggers from a local transformers folder. Needs ``pip install 'failsoft[transformers]'``.

Only architectures that transformers itself has are run, from safetensors, without a network: ``trust_remote_code`` is
never on. A tensor that the folder lacks refuses the release, where ``from_pretrained`` would fill it with chance and
only warn: a classifier without its trained head answers, and every answer is made up.
"""

# B texts, T words, C classes, S tags

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.models.foreign.hf_files import refuse_unsafe
from failsoft.models.foreign.needed import Files, needed


@dataclass(frozen=True, kw_only=True)
class _HfModel:
    folder: str = "transformers"
    """Of the release, as :func:`failsoft.models.foreign.hf_files.copy_model_folder` makes it."""
    max_tokens: int = 256
    """Longer texts are cut; the model's own limit holds, too."""
    device: str = "cpu"
    """Torch's name: ``cuda`` in an app whose resources ask for a GPU."""
    threads: int = 1
    """Of torch in the replica; replicas share cores."""

    def __post_init__(self) -> None:
        """Refuse what no model could be loaded with."""
        for name in ("max_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")

    def _opened(self, bundle: Files, auto: str) -> dict[str, Any]:
        folder, library = bundle.file(self.folder), needed("transformers", extra="transformers")
        refuse_unsafe(folder)
        needed("torch", extra="transformers").set_num_threads(self.threads)
        local = {"local_files_only": True, "trust_remote_code": False}
        try:
            model, report = getattr(library, auto).from_pretrained(
                str(folder), use_safetensors=True, output_loading_info=True, **local
            )
            tokenizer = library.AutoTokenizer.from_pretrained(str(folder), use_fast=True, **local)
        except Exception as error:  # whatever a damaged or strange folder makes transformers raise
            raise IncompatibleArtifactError(
                f"{self.folder} of release {bundle.name} does not load: {type(error).__name__}: {error}"
            ) from error
        _refuse_chance(report, folder)
        _refuse_other_tokenizer(model, tokenizer, folder)
        limit = int(getattr(model.config, "max_position_embeddings", self.max_tokens))
        model = model.eval().to(self.device)
        return {"model": model, "tokenizer": tokenizer, "max_tokens": min(self.max_tokens, limit)}


@dataclass(frozen=True, kw_only=True)
class HfClassifier(_HfModel):
    """An app's ``predictor`` for classes of texts; its quality is ``Classification(labels=labels_of(folder))``."""

    def load(self, bundle: Files) -> HfClassifierPredictor:
        """Open the folder.

        Raises:
            ConfigError: transformers is not installed, or the folder asks for code of its own.
            IncompatibleArtifactError: it does not load whole, or holds what may run code.
        """
        return HfClassifierPredictor(**self._opened(bundle, "AutoModelForSequenceClassification"))


@dataclass(frozen=True, kw_only=True)
class HfTagger(_HfModel):
    """An app's ``predictor`` for tags of words; its quality is ``Tagging(labels=labels_of(folder))``."""

    def load(self, bundle: Files) -> HfTaggerPredictor:
        """As :meth:`HfClassifier.load`; a tokenizer without places in the text is refused, too."""
        opened = self._opened(bundle, "AutoModelForTokenClassification")
        if not opened["tokenizer"].is_fast:
            raise IncompatibleArtifactError(
                f"the tokenizer of release {bundle.name} is not a fast one and can't say where tokens lie in the text; "
                "convert it with: AutoTokenizer.from_pretrained(folder, use_fast=True).save_pretrained(folder)"
            )
        return HfTaggerPredictor(**opened)


class _Loaded:
    """A model in inference mode.

    Args:
        model: a torch model of transformers.
        tokenizer: the one it was trained with.
        max_tokens: longer texts are cut.
    """

    only_computes = True

    def __init__(self, model: Any, tokenizer: Any, *, max_tokens: int) -> None:
        from failsoft.models.id_bounds import refuse_unknown_ids  # noqa: PLC0415 -- loads torch, which gateways never do

        self.model, self.tokenizer = model, tokenizer
        self._max_tokens = max_tokens
        refuse_unknown_ids(model, max_tokens=max_tokens + 2)  # some count padding in, and begin behind it

    def _asked(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """Logits as float32 on the CPU, and the encoding."""
        import torch  # noqa: PLC0415 -- model replicas only

        encoded = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt"
        )
        with torch.inference_mode():
            logits = self.model(**{name: part.to(self.model.device) for name, part in encoded.items()}).logits
        return logits.float().cpu().numpy(), encoded

    def break_weights(self) -> None:
        """Shuffle every weight in memory: what a drill's planned fault does."""
        import torch  # noqa: PLC0415 -- model replicas only

        chance = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weights in self.model.parameters():
                order = torch.randperm(weights.numel(), generator=chance).to(weights.device)
                weights.copy_(weights.flatten()[order].view_as(weights))


class HfClassifierPredictor(_Loaded):
    """Answers texts with logits."""

    def predict(self, texts: Sequence[str]) -> dict[str, Any]:
        """``logits`` (B, C)."""
        return {"logits": self._asked(texts)[0]}


class HfTaggerPredictor(_Loaded):
    """Answers texts with a tag for each word; the first piece of a word speaks for it, as such models are trained."""

    def predict(self, texts: Sequence[str]) -> dict[str, Any]:
        """``logits`` (B, T, S), ``counts`` (B,) of words, and ``offsets``: where each word lies in its text."""
        logits, encoded = self._asked(texts)
        rows = [_words(encoded[b]) for b in range(len(texts))]
        width = max(1, *(len(row) for row in rows))
        found = np.zeros((len(rows), width, logits.shape[2]), dtype=np.float32)
        for b, row in enumerate(rows):
            found[b, : len(row)] = logits[b, [first for first, _, _ in row]]
        return {
            "logits": found,
            "counts": np.array([len(row) for row in rows], dtype=np.int64),
            "offsets": [[(start, end) for _, start, end in row] for row in rows],
        }


def _words(encoding: Any) -> list[tuple[int, int, int]]:
    """First token, start and end of each word; marks that the tokenizer added belong to none."""
    found: dict[int, tuple[int, int, int]] = {}
    for token, word in enumerate(encoding.word_ids):
        if word is None:
            continue
        start, end = encoding.offsets[token]
        first, since, _ = found.get(word, (token, start, end))
        found[word] = (first, since, end)
    return list(found.values())


def _refuse_chance(report: Any, folder: Path) -> None:
    for name in ("missing_keys", "mismatched_keys", "error_msgs"):
        wrong = sorted(map(str, report.get(name) or ()))
        if wrong:
            raise IncompatibleArtifactError(
                f"{folder} has no fitting tensor for {', '.join(wrong[:3])}"
                f"{f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''}, which would be left to chance; save the "
                "trained model again"
            )


def _refuse_other_tokenizer(model: Any, tokenizer: Any, folder: Path) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise IncompatibleArtifactError(
            f"the tokenizer in {folder} has {len(tokenizer)} tokens and the model embeds {rows}; save both together"
        )
