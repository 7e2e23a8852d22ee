"""Gates for the release of an own model, whose files only its owner's code can read.

What can be judged without that code: size, weights in safetensors, and whether it brought what arms the watch. The
rest is judged where the code runs: each replica answers the golden inputs again when it loads the release, and shadow
and canary compare its answers with those of the release in service.
"""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load_file

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import FailsoftError
from failsoft.release import gates
from failsoft.release.candidate import not_finite
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateResult
from failsoft.release.worth_gates import judge_size

NOTE = (
    "an own model: its size, safetensors weights, healthy baseline and golden inputs were judged. Vocabulary coverage, "
    "spread, narrow variants, accuracy, skew and a replica were not, since only its own predictor can read its files; "
    "each replica answers its golden inputs again when it loads, and shadow and canary compare its answers"
)
BASELINE = "healthy baseline"
GOLDEN = "golden inputs recorded"


def own_results(bundle: Bundle, policy: GatePolicy) -> tuple[GateResult, ...]:
    """All judgements on such a release; what is absent or can't be read fails."""
    sizes = [path.stat().st_size for path in bundle.path.rglob("*") if path.is_file()]
    return (judge_size(sizes, policy), *_weights(bundle), _baseline(bundle, policy), _golden(bundle))


def _weights(bundle: Bundle) -> list[GateResult]:
    """Of all files of that format; a model may have none, and then nothing is said of its weights."""
    files = sorted(bundle.path.rglob("*.safetensors"))
    bad, tensors = list[str](), 0
    for path in files:
        try:
            state = load_file(path)
        except (OSError, SafetensorError) as error:
            return [gates.not_measured("finite weights", f"{path.name}: {error}")]
        bad += not_finite(state)
        tensors += len(state)
    return [gates.judge_weights(bad, tensors)] if files else []


def _baseline(bundle: Bundle, policy: GatePolicy) -> GateResult:
    try:
        baseline = bundle.baseline()
    except (FailsoftError, OSError) as error:
        return gates.not_measured(BASELINE, f"{error}; give publish_own some hundred healthy inputs")
    limit = policy.max_weak_fraction
    return GateResult(
        name=BASELINE,
        passed=baseline.samples >= policy.min_samples and 0.0 <= baseline.weak_fraction <= limit,
        value=baseline.weak_fraction,
        limit=limit,
        why=f"{baseline.weak_fraction:.2%} of {baseline.samples} healthy inputs got a weak answer when it was "
        f"published, at most {limit:.0%} allowed, and {policy.min_samples} inputs needed",
    )


def _golden(bundle: Bundle) -> GateResult:
    try:
        count = len(bundle.golden())
    except (FailsoftError, OSError) as error:
        return gates.not_measured(GOLDEN, f"{error}; give publish_own healthy inputs")
    return GateResult(
        name=GOLDEN,
        passed=count > 0,
        value=float(count),
        limit=1.0,
        why=f"{count} inputs with their answers are recorded; each replica must answer them so again when it loads",
    )
