"""ONNX files by ONNX Runtime. Needs ``pip install 'failsoft[onnx]'``.

A graph of operators and no Python: operators that ONNX Runtime does not have would need a library of their own, and
none is ever registered here. Tensors beside the file are read from the release alone; ONNX Runtime refuses a path that
leads out of its folder.
"""

# B items

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.models.foreign.needed import Files, needed
from failsoft.models.foreign.rows import Arrays, stacked
from failsoft.models.foreign.texts import TokenFeed

_KINDS = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


@dataclass(frozen=True, kw_only=True)
class OnnxModel:
    """An app's ``predictor``: ``AppSpec(predictor=OnnxModel(), …)``. The library is loaded in model replicas only."""

    file: str = "model.onnx"
    """Of the release."""
    tokenizer: str | None = None
    """A ``tokenizer.json`` of the release: items are texts. None: items are rows of numbers, or objects of them."""
    max_tokens: int = 256
    """Longer texts are cut."""
    names: Mapping[str, str] | None = None
    """Outputs that are handed on, and what the app's quality calls them: ``{"output_0": "logits"}``. None: all, by
    their own names."""
    probabilities: str | None = None
    """An output that holds probabilities (B, C); its logarithm is handed on as ``logits``, judged the same."""
    threads: int = 1
    """Of one call; replicas share cores. Of more than one, ONNX Runtime starts the others while the release loads, and
    they keep the lower priority of the thread that loads beside live traffic."""
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    """ONNX Runtime's own names, the best first: ``("CUDAExecutionProvider", "CPUExecutionProvider")``."""

    def __post_init__(self) -> None:
        """Refuse what no model could be loaded with."""
        for name in ("max_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        if not self.providers:
            raise ConfigError("providers is empty; use ('CPUExecutionProvider',)")

    def load(self, bundle: Files) -> OnnxPredictor:
        """Open the file.

        Raises:
            ConfigError: ONNX Runtime is not installed, or has none of the providers.
            IncompatibleArtifactError: the file is no model that it can run, or lacks an output.
        """
        path, runtime = bundle.file(self.file), needed("onnxruntime", extra="onnx")
        absent = set(self.providers) - set(runtime.get_available_providers())
        if absent:
            raise ConfigError(
                f"ONNX Runtime has no {', '.join(sorted(absent))} here; leave it out, or install its build"
            )
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 3
        try:
            session = runtime.InferenceSession(str(path), options, providers=list(self.providers))
        except Exception as error:  # ONNX Runtime's errors have no common class that it exports
            raise IncompatibleArtifactError(
                f"{self.file} of release {bundle.name} can't be run: {error}; export the model again"
            ) from error
        feed = None
        if self.tokenizer is not None:
            feed = TokenFeed.load(bundle.file(self.tokenizer), max_tokens=self.max_tokens)
        return OnnxPredictor(session, self, feed)


class OnnxPredictor:
    """An open session.

    Args:
        session: ``onnxruntime.InferenceSession``.
        model: what was asked for.
        feed: makes ids of texts; None where items are instances.

    Raises:
        IncompatibleArtifactError: an input is of a type that no item has, or an output is absent.
    """

    only_computes = True

    def __init__(self, session: Any, model: OnnxModel, feed: TokenFeed | None) -> None:
        self._session, self._model, self._feed = session, model, feed
        self._inputs = {put.name: _kind(put.name, put.type) for put in session.get_inputs()}
        self._one_by_one = any(put.shape and put.shape[0] == 1 for put in session.get_inputs())
        there = [put.name for put in session.get_outputs()]
        self._outputs = list(dict.fromkeys([*(model.names or there), *filter(None, [model.probabilities])]))
        absent = sorted(set(self._outputs) - set(there))
        if absent:
            raise IncompatibleArtifactError(f"the model has no output {', '.join(absent)}; it has {', '.join(there)}")

    def predict(self, batch: Sequence[Any]) -> Arrays:
        """Outputs by name, B rows each; a file that was exported for one item at a time is asked item by item.

        Raises:
            CorpusError: an item does not fit the inputs.
        """
        parts = [[item] for item in batch] if self._one_by_one else [batch]
        answers = [self._session.run(self._outputs, self._fed(part)) for part in parts]
        whole = [np.concatenate(columns) if len(parts) > 1 else columns[0] for columns in zip(*answers, strict=True)]
        return self._named(dict(zip(self._outputs, whole, strict=True)))

    def _fed(self, part: Sequence[Any]) -> Arrays:
        if self._feed is None:
            return stacked(part, self._inputs)
        found = self._feed.arrays(part, list(self._inputs))
        return {name: array.astype(self._inputs[name]) for name, array in found.items()}

    def _named(self, outputs: Arrays) -> Arrays:
        model = self._model
        named = {(model.names or {}).get(name, name): array for name, array in outputs.items()}
        if model.probabilities is not None:
            with np.errstate(divide="ignore", invalid="ignore"):  # what is no probability is judged, not warned of
                named["logits"] = np.maximum(np.log(outputs[model.probabilities]), -1e4)
        return named


def _kind(name: str, given: str) -> str:
    if given not in _KINDS:
        raise IncompatibleArtifactError(f"input {name} is a {given}; items can be one of {', '.join(_KINDS)}")
    return _KINDS[given]
