"""What ``/v1/status`` says, field by field: for the API's description. Tests hold it equal to what is sent."""

from __future__ import annotations

from pydantic import BaseModel, Field

from failsoft.serving.plan.plan import Colour, Stage


class PlanBody(BaseModel):
    """A routing plan: which model answers which share of the traffic."""

    epoch: int = Field(description="Number of the plan; it only grows.")
    stage: Stage = Field(description="How far the subject is trusted.")
    subject: Colour = Field(description="The model under test or in service.")
    stand_in: Colour | None = Field(description="The model that answers what the subject does not; null: the fallback.")
    releases: dict[Colour, str | None] = Field(description="The release that each colour has to hold; null: none.")
    load_generation: dict[Colour, int] = Field(description="A colour reads its release again when its number grows.")
    share: float = Field(ge=0, le=1, description="Share of live traffic that goes to the subject.")
    mirror_share: float = Field(ge=0, le=1, description="Share of live traffic of which the subject gets a copy.")
    forced: bool = Field(description="An operator's order holds the subject back.")
    forced_remaining_s: float | None = Field(
        description="Seconds to the end of that order, when this plan was written; null: no order, or no end."
    )
    relapses: int = Field(description="Trips after the first one since the last full quiet period.")
    why: str = Field(description="What made this plan.")


class LagBody(BaseModel):
    """How long the oldest answer of a report took to be counted by the controller."""

    last_ms: float | None = Field(description="In the newest report; null: none was counted yet.")
    p95_ms: float | None = Field(description="95th percentile of the last reports.")
    max_ms: float | None = Field(description="The longest of them.")
    reports: int = Field(description="Reports that these are of.")


class BesideBody(BaseModel):
    """One number of live traffic beside the same of the release's healthy baseline."""

    live: float | None = Field(description="Null: not known.")
    healthy: float | None = Field(description="Null: the release was published without.")


class MixBody(BaseModel):
    """The mix of answers beside the healthy one."""

    distance: float | None = Field(description="Half the sum of differences, 0 to 1; null: not known.")
    by_chance: float | None = Field(description="What it would be by chance alone.")
    most_moved: dict[str, BesideBody] = Field(description="The answers whose shares differ most.")


class LikenessBody(BaseModel):
    """How live traffic compares with what the release was measured on."""

    answers: int = Field(description="Answers that were compared.")
    oov: BesideBody = Field(description="Share of words that training never saw.")
    words: BesideBody = Field(description="Words of a text, on average.")
    label_mix: MixBody = Field(description="Which answers are given how often.")
    in_words: str = Field(description="The same for people.")


class SignalsBody(BaseModel):
    """What each signal of the watch says."""

    rule: str = Field(description="Which signals may take the model out of service, and which may only warn.")
    warnings: dict[str, str] = Field(description="Signals that are found and may not trip, and why they are found.")
    outcomes: dict[str, int] = Field(description="The window's answers by how they ended.")
    latency: str = Field(description="What is known of slow answers.")
    feedback: str = Field(description="What labels that came later say.")
    drift: dict[str, str] = Field(description="What the mix of answers and the unknown words say.")
    not_judged: dict[str, str] = Field(description="Signals that can't be heard for this release, and why.")
    callers_apart: dict[str, str] = Field(description="Callers whose answers are judged alone, and why.")
    beside_baseline: LikenessBody | None = Field(description="Null: the release has no healthy baseline.")


class HealthBody(BaseModel):
    """What this replica's own window says of the subject."""

    status: str = Field(description="healthy, degraded or no verdict, which is never good news.")
    bad: int = Field(description="Bad answers in the window.")
    total: int = Field(description="Answers in the window.")
    limit: float = Field(ge=0, le=1, description="Share of bad ones from which on the subject is degraded.")
    reason: str = Field(description="Why it is judged so.")
    rule: str = Field(description="The rule in force.")
    not_armed: str | None = Field(description="Why the watch goes by the plain rule; null: it has a healthy baseline.")
    signals: SignalsBody = Field(description="Each signal for itself.")


class FallbackBody(BaseModel):
    """Whose fallback is in use."""

    release: str = Field(description="The release that it belongs to.")
    refusal: str | None = Field(description="Why that of another release, which is wanted, did not load.")


class MirrorBody(BaseModel):
    """Copies of live requests for a model under test."""

    sent: int = Field(description="Copies that reached it.")
    waiting: int = Field(description="Copies in the queue.")
    dropped: dict[str, int] = Field(description="Copies that did not reach it, by why.")
    error: str | None = Field(description="Of which kind the newest one that failed was.")


class CountsBody(BaseModel):
    """What this replica did since it started."""

    answers_by_source: dict[str, int] = Field(description="Items answered, by who gave the answer.")
    outcomes: dict[str, int] = Field(description="Calls of models, by arm and by how they ended.")
    stale_answers: dict[str, int] = Field(description="Answers of a model loaded otherwise than the plan says.")
    reports_given_up: int = Field(description="Reports that never reached the controller.")


class StatusBody(BaseModel):
    """What one gateway replica knows. There may be more fields in later versions."""

    gateway: str = Field(description="Name of the replica that answered.")
    pid: int = Field(description="Its process on its node.")
    torch_loaded: bool = Field(description="Always false: a gateway starts and answers when no model can.")
    starting: list[Colour] = Field(description="Models of which no replica was found yet.")
    controller_silent_s: float | None = Field(description="Seconds since it heard of the controller; null: never.")
    tripped_locally: str | None = Field(description="Why it holds a model back on its own; null: it does not.")
    texts_at_models: dict[Colour, int] = Field(description="Items that wait for a model or are with it.")
    stand_ins_resting: dict[Colour, str] = Field(description="Models that do not stand in now, and why.")
    shared_window_lag: LagBody = Field(description="How far the window over all gateways is behind this one.")
    traces: dict[str, int] | None = Field(description="Spans by what became of them; null: nothing is traced.")
    events_not_recorded: int = Field(description="Events that only the log has: the disk refused or hung.")
    epoch: int = Field(description="Of the plan in force here.")
    stage: Stage = Field(description="Of the plan in force here.")
    plan: PlanBody = Field(description="The plan in force here.")
    health: HealthBody = Field(description="What this replica sees of the subject by itself.")
    fallback: FallbackBody = Field(description="Who answers when no model does.")
    release_lacks: list[str] = Field(description="What the subject's release was published without.")
    rungs_resting: dict[str, str] = Field(description="Rungs of the fallback that are not asked now, and why.")
    mirror: MirrorBody = Field(description="Copies for a model under test.")
    late_labels: dict[str, int] = Field(description="Labels that came later by their ends, and answers remembered.")
    counts: CountsBody = Field(description="Since this replica started.")


class HealthzBody(BaseModel):
    """It answers."""

    status: str = Field(description="Always ok: whoever can't answer says nothing.")
