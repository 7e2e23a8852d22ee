"""The limits of the gates: what a project may set in its ``gates.toml``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.models.narrow import Width
from failsoft.release.spread import Bootstrap

_SHARES = (
    "min_readable_fraction",
    "min_known_kept_fraction",
    "min_known_fraction",
    "min_recurring_fraction",
    "max_unknown_rise",
    "max_weak_fraction",
    "max_accuracy_behind_fallback",
    "max_golden_shift",
    "min_types_fraction",
    "accuracy_margin",
    "accuracy_alpha",
    "max_calibration_error",
    "max_temperature_off",
    "min_same_ids_fraction",
    "min_same_answers_fraction",
)
_POSITIVE = (
    "max_deviation",
    "max_kl",
    "max_logit_fall",
    "max_entropy_rise",
    "max_entropy_std_change",
    "max_logit_shift",
    "max_latency_p95_ms",
    "max_load_s",
    "max_size_mb",
)


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """Limits of the gates."""

    min_readable_fraction: float = 0.995
    """Running words that the model has ids for, for the interval's lower end; see :mod:`failsoft.release.coverage`."""
    min_known_kept_fraction: float = 0.995
    """Known words of the release's own texts when serving reads them, relative to what training recorded."""
    min_known_fraction: float = 0.85
    """Known running words of the release's own validation texts: SNIPS has 96 %, a corpus of a few texts far less."""
    min_recurring_fraction: float = 0.995
    """Of the uses of words that come back, those that training held; the interval's lower end must exceed it."""
    max_unknown_rise: float = 0.05
    """How much larger the share of unknown words may be in traffic than in the release's own texts, for the whole
    interval; so much costs a model of 150 intents four points of accuracy, as ``accuracy_margin``."""
    min_types_fraction: float = 0.995
    """Known word types of the release's own texts when serving reads them, relative to what training recorded."""
    max_deviation: float = 0.15
    """Relative change of logit std, entropy mean and entropy std; the whole interval must lie within."""
    max_logit_fall: float = 0.15
    """How much smaller the logit std may be than the served release's, on that release's texts."""
    max_entropy_rise: float = 0.5
    """How much larger the entropy mean may be than the served release's; another seed alone moves it by some 15 %."""
    max_entropy_std_change: float = 0.5
    """How much the entropy std may differ from the served release's, either way; another seed moves it by some 20 %."""
    min_samples: int = 100
    """Fewer texts decide nothing, and what is not decided fails."""
    max_weak_fraction: float = 0.07
    """Answers under the low-confidence limit on validation texts. With more, serving's monitor (20 bad of 100) could
    not be armed: it would trip on the healthy model in more than one window of ten thousand."""
    max_accuracy_behind_fallback: float = 0.02
    """How far the model's intent accuracy may lie behind that of its own fallback trees, on the interval's low end."""
    max_kl: float = 0.02
    """KL(fp32 ‖ narrow) in nats: for the mean and the maximum over all texts, edge cases included."""
    max_golden_shift: float = 0.01
    """How far a golden input's confidence may move; another machine's arithmetic moves the sixth digit."""
    widths: tuple[Width, ...] = tuple(Width)
    """Narrow variants that are made and measured; a project that serves only whole weights may leave some out."""
    accuracy_margin: float = 0.04
    """How much worse than the served release's the accuracy may be; the always-valid bound must lie below it. Two equal
    models that differ on 1 % of 1,000 texts either way pass nearly always; with 0.03 a quarter of them is undecided."""
    accuracy_alpha: float = 0.05
    """Chance that this comparison passes a release which is worse by more than the margin."""
    max_calibration_error: float = 0.05
    """Expected calibration error (15 bins) as served: mean gap between confidence and accuracy."""
    max_temperature_off: float = 0.05
    """How far the temperature may be from the one that is fitted again on the release's own evidence."""
    min_same_ids_fraction: float = 0.995
    """Texts that reach the network in serving with the very numbers that training gave them."""
    min_same_answers_fraction: float = 0.995
    """Texts that the replica answers as training recorded."""
    max_logit_shift: float = 0.01
    """How far a logit of the replica may lie from the recorded one, in units of the logit std; whole weights only."""
    max_latency_p95_ms: float = 100.0
    """Budget of one text alone through the replica's whole path; serving's deadline is 250 ms."""
    max_load_s: float = 60.0
    """Budget of loading the release in a new process, without the start of Python and torch."""
    max_size_mb: float = 2048.0
    """Budget of all files of the release, in 10^6 bytes."""
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    """How intervals are drawn."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing or everything passes."""
        for name in _SHARES:
            if not 0.0 < getattr(self, name) < 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use a share strictly between 0 and 1")
        for name in _POSITIVE:
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; use a positive number")
        if self.min_samples < 2:
            raise ConfigError(f"min_samples is {self.min_samples}; a spread needs at least 2 texts, 100 to mean much")
