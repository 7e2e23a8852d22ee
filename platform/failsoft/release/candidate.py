"""A release's model, opened the way serving opens it, and asked the way training asks it."""
# B texts, T words, C intents, S tags

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from failsoft.artifacts.bundle import Bundle, Golden, Role
from failsoft.artifacts.manifest import MANIFEST_NAME, Manifest, describe, read_manifest, verify_files
from failsoft.errors import ArtifactMissingError, DamagedArtifactError, FailsoftError
from failsoft.models.corpus import Utterance
from failsoft.models.encoding import IGNORED_TAG, EncodedSplit, encode_corpus
from failsoft.models.labels import LabelSet
from failsoft.models.learning import to_tensors
from failsoft.models.network import IntentNer
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.scores import ScoreBatch
from failsoft.models.tokens import TextCodec
from failsoft.release.spread import log_probabilities

Clean = Callable[[str], str]
"""A text as the model gets it in serving: the release's own sanitiser, handed in by the composition root."""

UNREADABLE = (
    FailsoftError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    SafetensorError,
)
"""What reading and asking a release may raise whose parts hold something else than they should."""
_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Logits:
    """Raw outputs of both heads."""

    intent_BC: NDArray[np.float32]
    slot_NS: NDArray[np.float32]
    """One row for each word of all texts."""


def open_release(folder: Path) -> Bundle:
    """A published release, with every byte verified, or a candidate that has no manifest yet.

    Raises:
        ArtifactMissingError: there is no such folder.
        DamagedArtifactError: a published release was changed or torn.
    """
    if "\0" in str(folder) or not folder.is_dir():
        raise ArtifactMissingError(
            f"{folder} is no folder; name a release that `failsoft train` published, or its folder"
        )
    if not (folder / MANIFEST_NAME).exists():
        return Bundle(name=folder.resolve().name, path=folder, digest="", meta={})
    manifest = read_manifest(folder.resolve(), kind="release")
    verify_files(folder, manifest)
    return Bundle(name=folder.resolve().name, path=folder, digest=manifest.digest, meta=manifest.meta)


def contents_of(folder: Path) -> str:
    """One digest of everything in a release but its gate report, which names it: judged and published are the same."""
    files = dict(describe(folder, kind="contents", created_at_s=0.0, meta={}).files)
    for written_later in (Role.GATE_REPORT, MANIFEST_NAME):
        files.pop(written_later, None)
    return Manifest(kind="contents", created_at_s=0.0, files=files, meta={}).digest


def load_predictor(bundle: Bundle) -> IntentNerPredictor:
    """The predictor that serving makes of a release.

    Raises:
        ArtifactError: a part is absent, damaged or does not fit the others.
        CorpusError: codec or labels can't be read.
    """
    roles = (Role.WEIGHTS, Role.NETWORK, Role.CODEC, Role.LABELS)
    try:
        return IntentNerPredictor.load_roles({str(role): bundle.part(role) for role in roles})
    except SafetensorError as error:
        raise DamagedArtifactError(
            f"the weights of release {bundle.name} are torn ({error}); publish it again"
        ) from error
    except UNREADABLE as error:
        if isinstance(error, FailsoftError | OSError):
            raise
        raise DamagedArtifactError(
            f"a part of release {bundle.name} is no such part ({error!r}); publish it again"
        ) from error


def ids_as_training(codec: TextCodec, labels: LabelSet, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The word numbers of each text, by the encoder that training uses."""
    if not texts:
        return ()
    split = encode_corpus(_as_utterances(texts, labels), codec, labels)
    rows = zip(split.word_ids.tolist(), split.lengths.tolist(), strict=True)
    return tuple(tuple(row[:length]) for row, length in rows)


def _as_utterances(texts: Sequence[str], labels: LabelSet) -> list[Utterance]:
    return [Utterance(id=str(n), text=text, intent=labels.intents[0]) for n, text in enumerate(texts)]


def ask_as_training(network: IntentNer, codec: TextCodec, labels: LabelSet, texts: Sequence[str]) -> Logits:
    """Both heads' outputs by the path that training takes: its encoder, its batches, its network."""
    nothing = Logits(
        intent_BC=np.zeros((0, len(labels.intents)), np.float32), slot_NS=np.zeros((0, len(labels.tags)), np.float32)
    )
    if not texts:
        return nothing
    split = encode_corpus(_as_utterances(texts, labels), codec, labels)
    device = next(network.parameters()).device
    network.eval()
    parts = [
        _forward(network, split, np.arange(n, min(n + _BATCH, len(split))), device)
        for n in range(0, len(split), _BATCH)
    ]
    return Logits(
        intent_BC=np.concatenate([part.intent_BC for part in parts]),
        slot_NS=np.concatenate([part.slot_NS for part in parts]),
    )


def not_finite(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold NaN or Inf."""
    return [
        name for name, tensor in state.items() if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
    ]


def golden_answers(texts: Sequence[str], scores: ScoreBatch, temperature: float) -> tuple[Golden, ...]:
    """What some answers look like as golden inputs."""
    confidences_B = np.exp(log_probabilities(scores.intent_logits_BC, temperature)).max(axis=1).tolist()
    answered = zip(texts, scores.best_intents(), confidences_B, strict=True)
    return tuple(Golden(text=text, intent=intent, confidence=sure) for text, intent, sure in answered)


def _forward(network: IntentNer, split: EncodedSplit, rows: NDArray[np.int64], device: torch.device) -> Logits:
    batch = split.take(rows)
    with torch.inference_mode():
        scores = network(to_tensors(batch, device))
    words = batch["tags"] != IGNORED_TAG
    return Logits(
        intent_BC=scores.intent_logits_BC.float().cpu().numpy(),
        slot_NS=scores.slot_logits_BTS.float().cpu().numpy()[words],
    )
