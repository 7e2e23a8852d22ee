"""From a finished model to a published release: fill a candidate folder, gate it, and only then make it visible.

A candidate that fails stays where it is, with the report inside, for whoever wants to know why.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from failsoft.artifacts.asides import being_filled
from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import describe
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, DamagedArtifactError, FailsoftError
from failsoft.health.clock import Clock
from failsoft.models.labels import LabelSet
from failsoft.release.candidate import Clean, contents_of
from failsoft.release.given import Given, Watch, as_given
from failsoft.release.inspect import gate_bundle
from failsoft.release.leftovers import PROVENANCE, clear_halves
from failsoft.release.replica import Probe
from failsoft.release.report import GateReport
from failsoft.release.settings import GateSettings

Fill = Callable[[Path], None]
"""Writes every part of a release but the gate report into a folder."""


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Publishes releases below one home."""

    home: Home
    clock: Clock
    settings: GateSettings = field(default_factory=GateSettings)
    """Limits and waivers of the project."""
    clean_of: Callable[[Bundle], Clean] = lambda _bundle: as_given
    """The sanitiser that serving puts before a release: the composition root makes it of the release's own policy."""
    probe: Probe | None = None
    """Starts a replica; None: what only a replica can tell is not judged."""
    watch: Watch = lambda _what: None

    def publish(
        self,
        fill: Fill,
        *,
        name: str | None = None,
        provenance: Mapping[str, Any],
        previous: Bundle | None = None,
        whole: Bundle | None = None,
    ) -> Bundle:
        """Fill, gate, publish.

        Args:
            fill: writes the parts.
            name: of the release; None makes one of date and contents, such as ``r-20260131-1f0c93ab``.
            provenance: run, data, seeds, versions: small JSON, kept in the manifest.
            previous: the release served now; None: the newest published one. Compared with if its intents are the same.
            whole: the release whose whole weights a narrow variant has.

        Raises:
            GateError: naming the gates that failed, and where candidate and report lie.
            ArtifactError: the name is taken, or the candidate was changed while it was judged.
        """
        clear_halves(self.home, releases=self.home.releases(self.clock).root)
        candidate = self.home.candidates / f"c-{uuid.uuid4().hex[:12]}"
        with being_filled(candidate):  # nobody clears it away as long as this process lives
            self._fill(candidate, fill)
            (candidate / PROVENANCE).write_text(json.dumps(dict(provenance), indent=1, sort_keys=True), "utf-8")
            return self._judge_and_publish(candidate, name or self._name_of(candidate), provenance, previous, whole)

    def _judge_and_publish(
        self,
        candidate: Path,
        name: str,
        provenance: Mapping[str, Any],
        previous: Bundle | None,
        whole: Bundle | None,
    ) -> Bundle:
        store = self.home.releases(self.clock)
        previous = previous or newest_release(store)
        store.refuse_taken(name)  # said now, not after minutes of measuring
        report = self._gate(Bundle(name=name, path=candidate, digest="", meta={}), previous, whole)
        report.raise_unless_passed(
            f"The candidate and its report lie in {candidate}; look with: failsoft gate {candidate}, and publish it "
            f"when that passes with: failsoft release publish {candidate}"
        )
        meta = {
            "previous": previous.name if previous else None,
            "provenance": dict(provenance),
            "waived": {result.name: result.waived for result in report.waived},
        }
        artifact = store.publish(name, lambda aside: _copy_judged(candidate, aside, report), meta=meta)
        shutil.rmtree(candidate)
        return Bundle.of(artifact)

    def _fill(self, candidate: Path, fill: Fill) -> None:
        try:
            fill(candidate)
        except BaseException:  # half a candidate is of no use to anyone; re-raised
            shutil.rmtree(candidate, ignore_errors=True)
            raise

    def _name_of(self, candidate: Path) -> str:
        now_s = self.clock.wall_s()
        digest = describe(candidate, kind="candidate", created_at_s=now_s, meta={}).digest
        return f"r-{datetime.fromtimestamp(now_s, tz=UTC):%Y%m%d}-{digest.partition(':')[2][:8]}"

    def _gate(self, candidate: Bundle, previous: Bundle | None, whole: Bundle | None) -> GateReport:
        same = previous if previous and may_compare(candidate, previous) else None
        given = Given(
            previous=same,
            alone=f"{previous.name} does another task" if previous else "this is the first",
            clean=self.clean_of(candidate),
            previous_clean=self.clean_of(same) if same else as_given,
            whole=whole,
            probe=self.probe,
            policy=self.settings.policy,
            waivers=self.settings.waivers,
            today=datetime.fromtimestamp(self.clock.wall_s(), tz=UTC).date(),
        )
        report = gate_bundle(candidate, given, watch=self.watch)
        (candidate.path / Role.GATE_REPORT).write_text(report.to_json(), "utf-8")
        return report


def may_compare(one: Bundle, other: Bundle) -> bool:
    """False only when two releases surely do different tasks; labels that can't be read are the gates' affair."""
    if one.own_model or other.own_model:
        return False
    try:
        return LabelSet.load(one.part(Role.LABELS)).intents == LabelSet.load(other.part(Role.LABELS)).intents
    except FailsoftError:
        return True


def newest_release(store: ArtifactStore) -> Bundle | None:
    """The newest whole release; damaged ones met on the way go to quarantine. None when there is none."""
    artifact = store.newest()
    return Bundle.of(artifact) if artifact else None


def stored_report(bundle: Bundle) -> GateReport:
    """The gate report that a release was published with.

    Raises:
        DamagedArtifactError: it has none, it can't be read, or it judged something else than what lies beside it.
    """
    report = GateReport.from_json(bundle.part(Role.GATE_REPORT).read_bytes())
    judged = report.facts.get("contents")  # releases of before do not say
    if judged is not None and judged != contents_of(bundle.path):
        raise DamagedArtifactError(
            f"the gate report in {bundle.path} judged other files than lie beside it; run: failsoft gate {bundle.name}"
        )
    return report


def write_quality(folder: Path, quality: Mapping[str, Any]) -> None:
    """Write the quality table of a release."""
    (folder / Role.QUALITY).write_text(json.dumps(dict(quality), indent=1, sort_keys=True), "utf-8")


def _copy_judged(candidate: Path, aside: Path, report: GateReport) -> None:
    shutil.copytree(candidate, aside, dirs_exist_ok=True)
    if contents_of(aside) != report.facts["contents"]:
        raise ArtifactError(f"{candidate} was changed while it was judged; nothing was published, publish it again")
