"""The metrics of serving: what each gateway replica counts, and what the rollout controller knows."""

from __future__ import annotations

from failsoft.health.ledger import Side
from failsoft.health.metric import Kind, Label, Metric

SOURCES = ("primary", "canary", "previous", "gbdt", "rules")
WHYS = ("none", "stage", "caller", "weak", "error", "late", "shed", "bad_input")
OUTCOMES = ("good", "weak", "error", "late", "shed", "bad_input")
ARMS = ("subject", "stand_in", "mirror", "rescue")
STAGES = ("serving", "degraded", "shadow", "canary", "ramp_20", "ramp_50", "rejected")
STATUSES = ("healthy", "degraded", "no_verdict")
NOT_MIRRORED = ("full", "failed", "unreadable")
SIGNALS = ("weak", "error", "late", "shed", "bad_input", "latency", "feedback", "label_mix", "oov", "repaired")
GATE_RESULTS = ("passed", "failed", "waived")

_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_ANSWERS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ARM = Label(name="arm", values=ARMS)
_STAGE = Label(name="stage", values=STAGES)
_APP = Label(name="app")
"""Name of the Serve application. Each has gateways, a controller and a plan of its own."""


def _metric(
    name: str, kind: Kind, said: str, unit: str = "", *labels: Label, buckets: tuple[float, ...] = ()
) -> Metric:
    return Metric(
        name=f"failsoft_{name}",
        kind=kind,
        help=said,
        side=Side.SERVING,
        unit=unit,
        labels=labels,
        everywhere=(_APP,),
        buckets=buckets,
    )


REQUESTS = _metric(
    "serving_requests_total",
    Kind.COUNTER,
    "Items answered, by who gave the answer and why not the model in service.",
    "",
    Label(name="source", values=SOURCES),
    Label(name="reason", values=WHYS),
)
MODELS = frozenset({"primary", "canary", "previous"})
"""Those sources that are models; the others are fallbacks, and count against the objective however quick they are."""
SLOW = _metric(
    "serving_slow_answers_total", Kind.COUNTER, "Items that a model answered, after more than 1 s inside the gateway."
)
LATENCY = _metric(
    "serving_answer_seconds",
    Kind.HISTOGRAM,
    "Time of an item inside the gateway, by who answered.",
    "seconds",
    Label(name="source", values=SOURCES),
    buckets=_ANSWERS_S,
)
CALLS = _metric(
    "serving_model_calls_total",
    Kind.COUNTER,
    "Calls of models by how they ended; rescue: the stand-in asked where the subject's answer would not do.",
    "",
    _ARM,
    Label(name="outcome", values=OUTCOMES),
)
CALL_TIME = _metric(
    "serving_model_call_seconds", Kind.HISTOGRAM, "Time of a model's call, queues included.", "seconds", _ARM,
    buckets=_ANSWERS_S,
)  # fmt: skip
CONFIDENCE = _metric(
    "serving_confidence_ratio", Kind.HISTOGRAM, "Calibrated confidence of models' answers.", "ratio", _ARM,
    buckets=_TENTHS,
)  # fmt: skip
ENTROPY = _metric(
    "serving_entropy_ratio", Kind.HISTOGRAM, "Entropy of models' answers, as a part of the largest possible.",
    "ratio", _ARM, buckets=_TENTHS,
)  # fmt: skip
MARGIN = _metric(
    "serving_margin_ratio", Kind.HISTOGRAM, "Distance between the two most probable answers.", "ratio", _ARM,
    buckets=_TENTHS,
)  # fmt: skip
OOV = _metric(
    "serving_oov_ratio", Kind.HISTOGRAM, "Share of an item's words that training never saw.", "ratio", _ARM,
    buckets=_TENTHS,
)  # fmt: skip
WINDOW = _metric("serving_window_answers", Kind.GAUGE, "Answers in the window that this replica judges.")
WINDOW_BAD = _metric("serving_window_bad_answers", Kind.GAUGE, "Bad ones among them.")
VERDICT = _metric(
    "serving_verdict", Kind.GAUGE, "1 for what this replica's window says of the subject.", "",
    Label(name="status", values=STATUSES),
)  # fmt: skip
WARNING = _metric(
    "serving_signal_warning", Kind.GAUGE, "1 while a signal is found that may not trip by itself.", "",
    Label(name="signal", values=SIGNALS),
)  # fmt: skip
STAGE = _metric("serving_stage", Kind.GAUGE, "1 for the stage of the plan in force in this replica.", "", _STAGE)
SHARE = _metric("serving_share_ratio", Kind.GAUGE, "Share of live traffic that goes to the subject.", "ratio")
MIRROR_SHARE = _metric("serving_mirror_share_ratio", Kind.GAUGE, "Share of live traffic that is copied to it.", "ratio")
EPOCH = _metric("serving_epoch", Kind.GAUGE, "Number of the plan in force in this replica.")
TRIPPED = _metric("serving_tripped_locally", Kind.GAUGE, "1 while this replica holds a model back on its own.")
SILENT = _metric(
    "serving_controller_silent_seconds", Kind.GAUGE, "Time since this replica heard of the controller.", "seconds"
)
NOT_ARMED = _metric("serving_watch_not_armed", Kind.GAUGE, "1 while the watch lacks its release's healthy baseline.")
APART = _metric("serving_callers_apart", Kind.GAUGE, "Callers whose answers are judged alone.")
STALE = _metric("serving_stale_answers_total", Kind.COUNTER, "Answers of a model loaded otherwise than the plan says.")
WAITING = _metric("serving_mirror_queue_items", Kind.GAUGE, "Copies that wait for the subject.", "items")
MIRRORED = _metric("serving_mirrored_total", Kind.COUNTER, "Copies that reached the subject.")
LEFT_OUT = _metric(
    "serving_not_mirrored_total", Kind.COUNTER, "Copies that did not, by why.", "",
    Label(name="reason", values=NOT_MIRRORED),
)  # fmt: skip
LAG = _metric(
    "serving_report_lag_seconds", Kind.GAUGE, "Age of the oldest answer in the newest report when it was counted.",
    "seconds",
)  # fmt: skip
GIVEN_UP = _metric("serving_reports_given_up", Kind.GAUGE, "Reports of this replica that never arrived.")
SPAN_ENDS = ("sent", "queue_full", "not_delivered", "over_limit")
SPANS = _metric(
    "serving_trace_spans_total", Kind.COUNTER,
    "Spans of requests by what became of them; only where traces are switched on. All but sent are lost.", "",
    Label(name="result", values=SPAN_ENDS),
)  # fmt: skip
AT_MODELS = _metric("serving_items_at_models", Kind.GAUGE, "Items that models of this replica have not answered yet.")

PLAN_STAGE = _metric("rollout_stage", Kind.GAUGE, "1 for the stage of the plan, as the controller has it.", "", _STAGE)
PLAN_EPOCH = _metric("rollout_epoch", Kind.GAUGE, "Number of the plan, as the controller has it.")
STAGE_AGE = _metric(
    "rollout_stage_age_seconds",
    Kind.GAUGE,
    "Time in this stage on the controller's own clock; at most since the controller began.",
    "seconds",
)
FORCED = _metric("rollout_forced", Kind.GAUGE, "1 while an operator's order holds the subject back.")
HELD = _metric("rollout_held", Kind.GAUGE, "1 while an operator keeps a release in its stage.")
RELAPSES = _metric("rollout_trips", Kind.GAUGE, "Trips since the last full quiet period.")
REST = _metric("rollout_rest_seconds", Kind.GAUGE, "Rest that is left before the subject comes back.", "seconds")
READY = _metric("rollout_ready_ratio", Kind.GAUGE, "Share of the subject's replicas that are ready.", "ratio")
GATEWAYS = _metric("rollout_replicas", Kind.GAUGE, "Replicas heard of within the last minute.")
BEHIND = _metric("rollout_replicas_behind", Kind.GAUGE, "Those of them whose plan is not the controller's.")
REJECTED = _metric("rollout_rejected_releases", Kind.GAUGE, "Releases that were given up.")
DROPPED = _metric("rollout_dropped_reports", Kind.GAUGE, "Reports that were late, or seen before.")
STORE_FAULT = _metric("rollout_store_fault", Kind.GAUGE, "1 while the plan can't be stored.")
UNRECORDED = _metric("rollout_events_lost", Kind.GAUGE, "Events that the ledger refused.")
GATES = _metric(
    "release_gates", Kind.GAUGE, "Gates of the plan's subject by how they ended when it was published.", "",
    Label(name="result", values=GATE_RESULTS),
)  # fmt: skip
GATE = _metric(
    "release_gate_passed", Kind.GAUGE, "1 for each gate that the plan's subject passed, 0 for one that it did not.",
    "", Label(name="gate"),
)  # fmt: skip

SERVING_METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
