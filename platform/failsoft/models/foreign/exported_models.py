"""Programs that torch exported: ``torch.export`` (``.pt2``), and TorchScript where people still have it.

A ``.pt2`` file is refused unless it holds tensors, arithmetic on sizes and operators of ATen and nothing else
(``exported_safety.py``). TorchScript is run by torch's own interpreter, and is refused with operators of others, with
code that runs while it is loaded, and with the operators that open files. Either way who makes the file decides what is
computed: set ``FAILSOFT_SIGNING_KEY`` where others may write to the store.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.models.foreign.exported_safety import refuse_code
from failsoft.models.foreign.needed import Files, needed
from failsoft.models.foreign.rows import Arrays, stacked
from failsoft.models.foreign.script_safety import refuse_calls, refuse_script
from failsoft.models.foreign.texts import TokenFeed


@dataclass(frozen=True, kw_only=True)
class _TorchProgram:
    inputs: Mapping[str, str] = field(default_factory=lambda: {"x": "float32"})
    """Arguments of ``forward`` in their order, and numpy's names of their types. With a tokenizer: some of
    ``input_ids``, ``attention_mask``, ``token_type_ids``, as ``int64``."""
    tokenizer: str | None = None
    """A ``tokenizer.json`` of the release: items are texts. None: items are rows of numbers, or objects of them."""
    max_tokens: int = 256
    """Longer texts are cut."""
    output: str = "logits"
    """What a single tensor is called; of several the model gives the names itself, as a dict."""
    device: str = "cpu"
    """Torch's name."""
    threads: int = 1
    """Of torch in the replica; replicas share cores."""

    def __post_init__(self) -> None:
        """Refuse what no model could be loaded with."""
        for name in ("max_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        if not self.inputs:
            raise ConfigError("inputs is empty; name the arguments of forward, such as {'x': 'float32'}")

    def _opened(self, bundle: Files, path: Path, read: Callable[[str], Any]) -> ProgramPredictor:
        needed("torch", extra="torch").set_num_threads(self.threads)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch about TorchScript, and about itself
                module = read(str(path))
            module = module.to(self.device)
        except Exception as error:  # whatever a damaged or newer file makes torch raise
            raise IncompatibleArtifactError(
                f"{path.name} of release {bundle.name} does not load: {type(error).__name__}: {str(error)[:300]}; "
                "export the model again with the torch that serves it"
            ) from error
        feed = None
        if self.tokenizer is not None:
            feed = TokenFeed.load(bundle.file(self.tokenizer), max_tokens=self.max_tokens)
        return ProgramPredictor(module, self, feed)


@dataclass(frozen=True, kw_only=True)
class ExportedModel(_TorchProgram):
    """An app's ``predictor``: a program written by ``torch.export.save``, with a batch of any size."""

    file: str = "model.pt2"
    """Of the release."""

    def load(self, bundle: Files) -> ProgramPredictor:
        """Open the file.

        Raises:
            IncompatibleArtifactError: it holds more than tensors and operators of ATen, or is not for this torch.
        """
        path = bundle.file(self.file)
        refuse_code(path)
        return self._opened(bundle, path, _read_exported)


@dataclass(frozen=True, kw_only=True)
class ScriptedModel(_TorchProgram):
    """An app's ``predictor``: TorchScript, as ``torch.jit.save`` wrote it. Torch has deprecated it: export anew."""

    file: str = "model.ts"
    """Of the release."""

    def load(self, bundle: Files) -> ProgramPredictor:
        """Open the file.

        Raises:
            IncompatibleArtifactError: it calls what is no tensor operator of torch, or is not for this torch.
        """
        path = bundle.file(self.file)
        refuse_script(path)
        predictor = self._opened(bundle, path, _read_scripted)
        refuse_calls(predictor.module, path.name)
        return predictor


class ProgramPredictor:
    """A loaded program in inference mode.

    Args:
        module: callable with tensors, with parameters in it.
        program: what was asked for.
        feed: makes ids of texts; None where items are instances.
    """

    only_computes = True

    def __init__(self, module: Any, program: _TorchProgram, feed: TokenFeed | None) -> None:
        self.module, self._program, self._feed = module, program, feed

    def predict(self, batch: Sequence[Any]) -> Any:
        """What the program gives, as numpy arrays; a single tensor under the name of ``output``.

        Raises:
            CorpusError: an item does not fit the inputs.
        """
        import torch  # noqa: PLC0415 -- model replicas only

        arrays = self._fed(batch)
        with torch.inference_mode():
            tensors = [torch.from_numpy(arrays[name]).to(self._program.device) for name in self._program.inputs]
            found = self.module(*tensors)
        return {self._program.output: found} if isinstance(found, torch.Tensor) else found

    def _fed(self, batch: Sequence[Any]) -> Arrays:
        kinds = self._program.inputs
        if self._feed is None:
            return stacked(batch, kinds)
        found = self._feed.arrays(batch, list(kinds))
        return {name: array.astype(kinds[name]) for name, array in found.items()}

    def break_weights(self) -> None:
        """Shuffle every weight in memory: what a drill's planned fault does."""
        import torch  # noqa: PLC0415 -- model replicas only

        chance = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weights in self.module.parameters():
                order = torch.randperm(weights.numel(), generator=chance).to(weights.device)
                weights.copy_(weights.flatten()[order].view_as(weights))


def _read_exported(path: str) -> Any:
    import torch  # noqa: PLC0415 -- model replicas only

    return torch.export.load(path).module()


def _read_scripted(path: str) -> Any:
    import torch  # noqa: PLC0415 -- model replicas only

    return torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call]
