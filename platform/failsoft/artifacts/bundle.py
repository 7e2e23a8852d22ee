"""A release bundle: everything that serving needs, by role, in one verified folder.

The roles are the contract between training and serving. What a file means to a model is the model's own affair; the
numbers that the platform itself needs (calibration, healthy baseline, golden inputs, provenance) are typed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from failsoft.artifacts.manifest import Manifest, verify_part
from failsoft.artifacts.store import Artifact
from failsoft.errors import ConfigError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.json_object import json_value

PartT = TypeVar("PartT")
_ALWAYS_THERE = ("weak_fraction", "entropy_mean", "entropy_std", "logit_std", "oov_fraction")
"""Of the baseline, in each format; null where an own model's kind of answers has no such number."""
BASELINE_FORMAT = 2
"""Format 1 had neither this number nor the fields from :attr:`Baseline.latency_p50_ms` on."""


class Role(StrEnum):
    """A part of a release; the value is its file or folder name."""

    WEIGHTS = "weights.safetensors"
    NETWORK = "network.json"
    CODEC = "codec.json"
    LABELS = "labels.json"
    GBDT = "gbdt"
    RULES = "rules.yaml"
    TEXT_POLICY = "text_policy.json"
    CALIBRATION = "calibration.json"
    BASELINE = "baseline.json"
    GOLDEN = "golden.json"
    GATE_REPORT = "gate_report.json"
    EVAL_TEXTS = "eval_texts.json"
    QUALITY = "quality.json"
    MEASURES = "measures.json"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How logits become honest confidences."""

    temperature: float = 1.0
    """Logits are divided by it before the softmax (Guo et al. 2017, arXiv 1706.04599); fitted on validation data."""

    def __post_init__(self) -> None:
        """Refuse temperatures that turn confidences into nonsense."""
        if not 0.01 <= self.temperature <= 100.0:
            raise ConfigError(f"temperature is {self.temperature}; a fitted one lies between 0.01 and 100")


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """How the healthy release behaved on validation data; serving arms its monitor with it."""

    samples: int
    """How many answers the numbers rest on."""
    weak_fraction: float
    """Share of answers under the low-confidence limit."""
    entropy_mean: float
    """Mean normalised entropy (0..1) of the intent distribution."""
    entropy_std: float
    logit_std: float
    """Standard deviation of all intent logits."""
    oov_fraction: float
    """Share of words outside the training vocabulary."""
    label_mix: Mapping[str, float]
    """Share of each predicted intent, of all answers; an intent that was never the answer is not in it."""
    latency_p95_ms: float | None = None
    """95th percentile of the model's own time for one text; None when not measured."""
    latency_p50_ms: float | None = None
    """Median of the same; this and all below are None in releases of format 1, which did not measure them."""
    oov_mean: float | None = None
    """Mean over texts of each text's share of unknown words: what the mean of single answers is compared with."""
    oov_std: float | None = None
    words_mean: float | None = None
    """Mean number of words that the model read of a text."""
    words_std: float | None = None
    confidence_mean: float | None = None
    """Mean calibrated confidence of the answers, 0..1."""
    known_types_fraction: float | None = None
    """Share of the different words of all validation texts that training held; no fallback to characters counts."""
    accuracy: float | None = None
    """Share of validation texts whose intent was right; the stand-in where no served release can be compared with."""
    calibration_error: float | None = None
    """Expected calibration error at the fitted temperature, 0..1."""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """An input with the answer that this release gave when it was made."""

    text: Any
    """A text, or an own model's instance in JSON."""
    intent: Any
    """The output: an intent, or what an own model's quality kind makes of its scores, in JSON."""
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A verified release folder, read by role."""

    name: str
    path: Path
    digest: str
    meta: Mapping[str, Any]
    unread: Manifest | None = None
    """Of files that were not verified yet: each part is when it is asked for. None: all are."""

    @classmethod
    def of(cls, artifact: Artifact, *, unread: bool = False) -> Bundle:
        """The bundle in a verified artifact; with ``unread`` in one whose files are verified as they are asked for."""
        manifest = artifact.manifest
        left = manifest if unread else None
        return cls(name=artifact.name, path=artifact.path, digest=manifest.digest, meta=manifest.meta, unread=left)

    @property
    def previous(self) -> str | None:
        """Name of the release that was served when this one was made; None for the first."""
        previous = self.meta.get("previous")
        return str(previous) if previous else None

    @property
    def own_model(self) -> bool:
        """Whether somebody's own code reads it, by files of other names than the roles."""
        return bool(self.meta.get("own_model"))

    def has(self, role: Role) -> bool:
        """Whether this bundle has a part. The releases of own models may lack any.

        Raises:
            DamagedArtifactError: it was published with the part, which is gone: to go on as if it never had one would
                leave the watch without its baseline, or answers without their calibration.
        """
        there = (self.path / role).exists()
        if not there and self.unread is not None:
            known = self.unread.files
            if role in known or any(name.startswith(f"{role}/") for name in known):
                raise DamagedArtifactError(f"{self.path / role} is absent, but named in the manifest; publish it again")
        return there

    def file(self, name: str) -> Path:
        """Where a file or folder of an own model lies, by the name that it was published under.

        Raises:
            DamagedArtifactError: this bundle has no such file, or it was changed.
        """
        path = self.path / name
        if not path.exists():
            raise DamagedArtifactError(f"release {self.name} has no {name} in {self.path}; publish it again")
        if self.unread is not None:
            verify_part(self.path, self.unread, name)
        return path

    def part(self, role: Role) -> Path:
        """Where a part lies.

        Raises:
            DamagedArtifactError: this bundle has no such part.
        """
        return self.file(role)

    def calibration(self) -> Calibration:
        """The fitted calibration."""
        return self._read(Role.CALIBRATION, lambda body: Calibration(**body))

    def baseline(self) -> Baseline:
        """The healthy baseline; what an older format did not hold is None.

        Raises:
            DamagedArtifactError: it does not say what it should.
            IncompatibleArtifactError: a newer failsoft wrote it.
        """
        return self._read(Role.BASELINE, _baseline_of)

    def measures(self) -> dict[str, float]:
        """What answers are judged with: the fitted temperature, and what an own quality kind measured; as far as there.

        Raises:
            DamagedArtifactError: what is there can't be read.
        """
        found = {"temperature": self.calibration().temperature} if self.has(Role.CALIBRATION) else {}
        if not self.has(Role.MEASURES):
            return found
        return found | self._read(Role.MEASURES, lambda body: {name: _number(value) for name, value in body.items()})

    def golden(self) -> tuple[Golden, ...]:
        """The golden inputs."""
        return self._read(Role.GOLDEN, lambda body: tuple(_golden_of(entry) for entry in body["golden"]))

    def _read(self, role: Role, make: Callable[[Any], PartT]) -> PartT:
        try:
            return make(json_value(self.part(role).read_text("utf-8")))
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedArtifactError(f"{self.path / role} does not say what it should: {error!r}") from error


def _baseline_of(body: Any) -> Baseline:
    fields: dict[str, Any] = dict(body)
    written_in = fields.pop("format", 1)
    if written_in not in range(1, BASELINE_FORMAT + 1):
        raise IncompatibleArtifactError(
            f"the baseline has format {written_in}, this failsoft reads 1 to {BASELINE_FORMAT}; use the newer failsoft"
        )
    fields |= {name: _number(fields[name]) for name in _ALWAYS_THERE if name in fields}
    return Baseline(**fields)


def _golden_of(entry: Mapping[str, Any]) -> Golden:
    return Golden(**{**entry, "confidence": _number(entry["confidence"])})


def _number(value: Any) -> float:
    """As stored: JSON has no NaN, null stands for it; earlier releases hold a bare NaN, which Python reads too."""
    return math.nan if value is None else float(value)


def _strict(value: Any) -> Any:
    """With null in place of NaN and Inf, which no other reader of JSON takes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _strict(part) for name, part in value.items()}
    return [_strict(part) for part in value] if isinstance(value, list | tuple) else value


def write_json(folder: Path, role: Role, content: Calibration | Baseline | Mapping[str, Any]) -> None:
    """Write one JSON part into a folder that is being filled."""
    body = asdict(content) if isinstance(content, (Calibration, Baseline)) else dict(content)
    if isinstance(content, Baseline):
        body["format"] = BASELINE_FORMAT
    text = json.dumps(_strict(body), indent=1, sort_keys=True, allow_nan=False)
    (folder / role).write_text(text, "utf-8")


def write_golden(folder: Path, golden: tuple[Golden, ...]) -> None:
    """Write the golden inputs into a folder that is being filled."""
    write_json(folder, Role.GOLDEN, {"golden": [asdict(entry) for entry in golden]})
