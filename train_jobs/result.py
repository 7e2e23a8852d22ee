"""What comes out of a job, and its way between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.health.clock import Clock
from failsoft.health.ledger import read_ledger
from failsoft.models.corpus import CorpusReport
from failsoft.training.summary import RunSummary, summarise


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What came out."""

    run: str
    bundle: Bundle | None
    """The release; None when none was asked for."""
    quality: Mapping[str, Any]
    """On the test split: ``intent_accuracy``, ``slot_f1`` and more."""
    summary: RunSummary
    corpus_report: CorpusReport
    """What was repaired while reading the data."""
    weights_digest: str
    """Digest of the final training state's tensors: equal digests are bit-equal runs."""

    def to_json(self) -> dict[str, Any]:
        """What :meth:`from_json` can't find again by itself."""
        return {
            "run": self.run,
            "bundle": None if self.bundle is None else self.bundle.name,
            "quality": dict(self.quality),
            "corpus_report": self.corpus_report.as_dict(),
            "weights_digest": self.weights_digest,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any], *, home: Home, clock: Clock) -> JobResult:
        """The result that another process has published; release and ledger are read here.

        Raises:
            ArtifactError: the release is not whole.
        """
        report, name = body["corpus_report"], body["bundle"]
        return cls(
            run=body["run"],
            bundle=None if name is None else Bundle.of(home.releases(clock).open(name)),
            quality=dict(body["quality"]),
            summary=summarise(read_ledger(home.ledger).events, run=body["run"]),
            corpus_report=CorpusReport(counts=report["counts"], notes=tuple(report["notes"])),
            weights_digest=body["weights_digest"],
        )
