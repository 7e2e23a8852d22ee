"""Answers texts with a trained network: the only part of the models that serving's model replicas need."""

# B texts, T words, S tags

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from failsoft.errors import IncompatibleArtifactError
from failsoft.models.corpus import Span, Utterance
from failsoft.models.labels import LabelSet, best_tags, chunks
from failsoft.models.learning import to_tensors
from failsoft.models.narrow import load_network
from failsoft.models.network import IntentNer, NetworkConfig, network_matches
from failsoft.models.scores import ScoreBatch, ScoredSpan, doubt_of
from failsoft.models.scoring import Prediction, Quality, evaluate
from failsoft.models.tokens import Encoded, TextCodec, check_ids


class IntentNerPredictor:
    """A network with its codec and labels, in inference mode.

    Args:
        model: trained; it is put into evaluation mode.
        codec: the codec it was trained with.
        labels: the labels it was trained with.
    """

    def __init__(self, model: IntentNer, codec: TextCodec, labels: LabelSet) -> None:
        self.model = model.eval()
        self.codec = codec
        self.labels = labels

    @classmethod
    def load(cls, *, weights: Path, network: Path, codec: Path, labels: Path) -> IntentNerPredictor:
        """Put a release's parts together; its weights may be whole or narrow.

        Raises:
            IncompatibleArtifactError: the parts do not belong together.
            CorpusError: the codec or the labels cannot be read.
        """
        config, text_codec, label_set = NetworkConfig.load(network), TextCodec.load(codec), LabelSet.load(labels)
        if not network_matches(config, text_codec, label_set):
            raise IncompatibleArtifactError(
                f"{network}, {codec} and {labels} are not of one training run: sizes differ; publish them together"
            )
        return cls(load_network(config, weights), text_codec, label_set)

    @classmethod
    def load_roles(cls, paths: Mapping[str, Path]) -> IntentNerPredictor:
        """As :meth:`load`, from paths by the file names that a release uses.

        Raises:
            IncompatibleArtifactError: a part is absent, or the parts do not belong together.
        """
        try:
            return cls.load(
                weights=paths["weights.safetensors"],
                network=paths["network.json"],
                codec=paths["codec.json"],
                labels=paths["labels.json"],
            )
        except KeyError as error:
            raise IncompatibleArtifactError(f"the release has no {error}; it has {sorted(paths)}") from error

    def predict(self, texts: Sequence[str], *, batch_size: int = 64) -> ScoreBatch:
        """Answer any texts, empty ones included; deterministic.

        Raises:
            CorpusError: the codec made ids that the network has no embedding for; the network was not asked then.
        """
        parts = [self._answer(texts[first : first + batch_size]) for first in range(0, len(texts), batch_size)]
        return _joined(parts, self.labels.intents)

    def _answer(self, texts: Sequence[str]) -> ScoreBatch:
        encoded = self.codec.encode(texts)
        config = self.model.config
        check_ids(encoded.word_ids_BT, vocab_size=config.vocab_size, max_words=config.max_words)
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            scores = self.model(to_tensors(_inputs(encoded), device))
            log_probs_BTS = scores.slot_logits_BTS.float().log_softmax(-1).cpu().numpy()
            intent_logits_BC = scores.intent_logits_BC.float().cpu().numpy()
        return ScoreBatch(
            intents=self.labels.intents,
            intent_logits_BC=intent_logits_BC,
            spans=self._spans(log_probs_BTS, encoded),
            counts_B=encoded.counts_B,
            oov_fraction_B=encoded.oov_fraction_B,
            left_out_B=encoded.left_out_B,
        )

    def _spans(self, log_probs_BTS: NDArray[np.float32], encoded: Encoded) -> list[list[ScoredSpan]]:
        """Spans of each text; the least certain word of a span speaks for it."""
        entropy_BT, margin_BT = doubt_of(log_probs_BTS)
        spans = []
        for b, tags in enumerate(best_tags(log_probs_BTS, encoded.counts_B)):
            sure_T = np.exp(log_probs_BTS[b, np.arange(len(tags)), tags])
            places = encoded.offsets[b]
            spans.append(
                [
                    ScoredSpan(
                        places[first][0],
                        places[last][1],
                        self.labels.slots[slot],
                        float(sure_T[first : last + 1].min()),
                        float(entropy_BT[b, first : last + 1].max()),
                        float(margin_BT[b, first : last + 1].min()),
                    )
                    for first, last, slot in chunks(tags)
                ]
            )
        return spans


def evaluate_predictor(predictor: IntentNerPredictor, utterances: Sequence[Utterance]) -> Quality:
    """How well the network answers these utterances."""
    scores = predictor.predict([utterance.text for utterance in utterances])
    return evaluate(utterances, predictions_of(scores))


def predictions_of(scores: ScoreBatch) -> list[Prediction]:
    """The answers that a score batch stands for, as the scoring wants them."""
    spans = [tuple(Span(span.start, span.end, span.slot) for span in row) for row in scores.spans]
    return [Prediction(intent=intent, spans=row) for intent, row in zip(scores.best_intents(), spans, strict=True)]


def _inputs(encoded: Encoded) -> dict[str, NDArray[np.generic]]:
    return {
        "word_ids": encoded.word_ids_BT.astype(np.int64),
        "surface": encoded.surface_BT.astype(np.int64),
        "char_ids": encoded.char_ids_UK.astype(np.int64),
        "mask": encoded.mask_BT,
        "places": np.flatnonzero(encoded.mask_BT),
    }


def _joined(parts: Sequence[ScoreBatch], intents: tuple[str, ...]) -> ScoreBatch:
    empty_B = np.zeros(0, dtype=np.int32)
    return ScoreBatch(
        intents=intents,
        intent_logits_BC=np.concatenate(
            [np.zeros((0, len(intents)), dtype=np.float32), *(part.intent_logits_BC for part in parts)]
        ),
        spans=[row for part in parts for row in part.spans],
        counts_B=np.concatenate([empty_B, *(part.counts_B for part in parts)]),
        oov_fraction_B=np.concatenate([empty_B.astype(np.float32), *(part.oov_fraction_B for part in parts)]),
        left_out_B=np.concatenate([empty_B, *(part.left_out_B for part in parts)]),
    )
