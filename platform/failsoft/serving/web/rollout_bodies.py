"""What ``/v1/rollout`` says, field by field: for the API's description. Tests hold it equal to what is sent."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from failsoft.serving.plan.plan import Stage
from failsoft.serving.web.status_bodies import PlanBody


class StageNeedsBody(BaseModel):
    """What a stage asks of a release."""

    answers: int = Field(description="Answers in it.")
    seconds: float = Field(description="Time in it.")
    share: float = Field(description="Share of live traffic in it.")


class NeedsBody(BaseModel):
    """What the way through the stages takes."""

    stages: dict[Stage, StageNeedsBody] = Field(description="Each stage on trial.")
    answers_to_compare: int | None = Field(description="Answers that a comparison takes; null: there is none to make.")


class EvidenceBody(BaseModel):
    """What was counted; pairs are bad answers and all."""

    in_stage: tuple[int, int] = Field(description="Of the subject in this stage.")
    on_trial: tuple[int, int] = Field(description="Of the subject since it left shadow.")
    stand_in: tuple[int, int] = Field(description="Of what stands in, in this stage.")
    active_s: float = Field(description="Time in this stage in which there was traffic.")


class SharedHealthBody(BaseModel):
    """What the window over all gateways says of the subject."""

    status: str = Field(description="healthy, degraded or no verdict, which is never good news.")
    reason: str = Field(description="Why it is judged so.")


class SharedMirrorBody(BaseModel):
    """Mirrored answers beside those that callers got. Without any pair only the counts are there."""

    agree: int = Field(description="Copies that were answered like the live request.")
    compared: int = Field(description="Copies that could be compared.")
    pairs: int = Field(description="Copies whose confidence and time are known on both sides.")
    confidence: float | None = Field(default=None, description="Mean confidence of the subject.")
    live_confidence: float | None = Field(default=None, description="Mean confidence of what callers got.")
    confidence_shift: float | None = Field(default=None, description="The difference.")
    confidence_kl: float | None = Field(default=None, description="Divergence of both distributions.")
    latency_ms: float | None = Field(default=None, description="Mean time of the subject.")
    live_latency_ms: float | None = Field(default=None, description="Mean time of what callers got.")


class HeardBody(BaseModel):
    """What a replica last said."""

    epoch: int = Field(description="Of the plan that it has.")
    silent_s: float = Field(description="Seconds since then, on the controller's clock.")


class RolloutBody(BaseModel):
    """Where the rollout stands, as the controller knows it. There may be more fields in later versions."""

    plan: PlanBody = Field(description="The plan, as it is stored.")
    waits_for: str = Field(description="What has to come before the next stage.")
    needs: NeedsBody = Field(description="What the stages ask for.")
    rest_remaining_s: float = Field(description="Rest that is left before the subject comes back.")
    trips: int = Field(description="Since the last full quiet period.")
    order: str = Field(description="The operator's order in force; empty: none.")
    held: str = Field(description="Why an operator keeps the release in its stage; empty: nobody does.")
    slots: int = Field(description="Model deployments of this app.")
    evidence: EvidenceBody = Field(description="What was counted in this stage.")
    health: SharedHealthBody = Field(description="Of the subject, over all gateways.")
    mirror: SharedMirrorBody = Field(description="Copies beside live answers.")
    ready_fraction: float | None = Field(description="Share of the subject's replicas that are ready; null: unknown.")
    gateways: int = Field(description="Gateways that reported lately.")
    dropped_reports: int = Field(description="Reports that were late, or seen before.")
    store_error: str | None = Field(description="Why the plan can't be stored; null: it can.")
    rejected: dict[str, str] = Field(description="Releases that were given up, and why.")
    pid: int = Field(description="The controller's process on its node.")
    version: str = Field(description="Of failsoft, in that process.")
    events_not_recorded: int = Field(description="Events that only the log has: the disk refused or hung.")
    profile: str = Field(description="Whose times and shares hold.")
    settings_error: str | None = Field(description="Why stages.toml is not in force as it stands; null: it is.")
    replicas: dict[str, HeardBody] = Field(description="Gateways and model replicas heard of lately.")
    models: dict[str, dict[str, Any]] = Field(description="What each model replica has loaded, and how long that took.")
