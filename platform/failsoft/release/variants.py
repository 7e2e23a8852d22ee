"""Narrow variants of a release: made, written and read again as serving would, and asked the edge cases."""
# B texts, N words, C intents, S tags

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError
from failsoft.models.narrow import Width, load_network, save_narrow, stored_as
from failsoft.models.network import IntentNer
from failsoft.models.predictor import IntentNerPredictor
from failsoft.release import gates
from failsoft.release.candidate import ask_as_training, load_predictor
from failsoft.release.divergence import divergence
from failsoft.release.given import Given
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateResult
from failsoft.release.spread import Floats, log_probabilities


def variant_results(
    bundle: Bundle, predictor: IntentNerPredictor, texts: Sequence[str], given: Given
) -> list[GateResult]:
    """KL(whole ‖ narrow) of both heads for each width; of a release that is narrow itself, for its own width.

    Raises:
        ConfigError: the release is narrow, and the one with its whole weights was not given.
    """
    stored, asked = stored_as(bundle.part(Role.WEIGHTS)), _Asked(bundle, predictor, texts)
    if stored.width is not None:
        if given.whole is None:
            raise ConfigError(
                f"the whole weights of {bundle.name} are those of release {stored.of}, which is not there"
            )
        whole = asked.said(load_predictor(given.whole).model)
        return _judged(whole, asked.said(predictor.model), stored.width, given.policy)
    whole = asked.said(predictor.model)
    with TemporaryDirectory(prefix="failsoft-variants-") as place:
        return [
            result
            for width in given.policy.widths
            for result in _judged(whole, asked.said(_made(predictor.model, Path(place), width)), width, given.policy)
        ]


def make_variant(whole: Bundle, folder: Path, width: Width) -> None:
    """Put a narrow variant's weights in place of those in ``folder``, a copy of the whole release's parts.

    Raises:
        ConfigError: the release is narrow itself.
        ArtifactError: it can't be loaded.
    """
    stored = stored_as(whole.part(Role.WEIGHTS))
    if stored.width is not None:
        raise ConfigError(f"{whole.name} is a {stored.width} variant itself; make one of {stored.of}")
    save_narrow(load_predictor(whole).model, folder / Role.WEIGHTS, width, of=whole.name)


class _Asked:
    """Both heads' answers of some network to the same texts."""

    def __init__(self, bundle: Bundle, predictor: IntentNerPredictor, texts: Sequence[str]) -> None:
        self._temperature = bundle.calibration().temperature
        self._predictor, self._texts = predictor, texts

    def said(self, model: IntentNer) -> tuple[Floats, Floats]:
        """Log probabilities of intents and of tags."""
        said = ask_as_training(model, self._predictor.codec, self._predictor.labels, self._texts)
        return log_probabilities(said.intent_BC, self._temperature), log_probabilities(said.slot_NS)


def _judged(
    whole: tuple[Floats, Floats], narrow: tuple[Floats, Floats], width: Width, policy: GatePolicy
) -> list[GateResult]:
    heads = zip(("intent", "slot"), whole, narrow, strict=True)
    return [gates.judge_divergence(divergence(ours, theirs), width, policy, head=head) for head, ours, theirs in heads]


def _made(model: IntentNer, place: Path, width: Width) -> IntentNer:
    """By way of the file that would be served."""
    path = place / f"{width}.safetensors"
    save_narrow(model, path, width, of="")
    return load_network(model.config, path)
