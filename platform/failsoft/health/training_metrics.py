"""The metrics of training runs: what a run's ledger, progress file and position say, as its driver reads them."""

from __future__ import annotations

from failsoft.health.ledger import Side
from failsoft.health.metric import Kind, Label, Metric

PHASES = ("preparing", "training", "evaluating", "publishing", "finished", "stopped")
REASONS = (
    "loss",
    "gradient",
    "overflow",
    "elsewhere",
    "loss_spike",
    "gradient_spike",
    "out_of_memory",
    "no_sample",
    "passed_over",
)
PARTS = (
    "productive",
    "lost",
    "undone",
    "refused",
    "stall",
    "validation",
    "detect",
    "backoff",
    "start",
    "load",
    "unsplit",
    "unknown",
)
DEGRADATIONS = (
    "memory_rung",
    "smaller_batch",
    "slow_rank",
    "source_tier",
    "synthetic_share",
    "storage",
    "lower_rate",
    "callback_rests",
    "smaller_world",
)
RUNGS = ("caches", "micro_batches", "input_cap", "offload", "smaller_updates", "batch_given_up")
CHECKPOINTS = ("published", "failed", "replaced", "withheld", "quarantined", "withdrawn", "mirrored", "mirror_failed")
CAUSES = ("worker_failed", "workers_lost", "hang", "peer_lost", "surroundings_failed", "preempted", "driver_lost")

_RUN = Label(name="run")
_STALLS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
_WRITES_S = (0.01, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


def _metric(
    name: str, kind: Kind, said: str, unit: str = "", *labels: Label, buckets: tuple[float, ...] = ()
) -> Metric:
    return Metric(
        name=f"failsoft_training_{name}",
        kind=kind,
        help=said,
        side=Side.TRAINING,
        unit=unit,
        labels=(_RUN, *labels),
        buckets=buckets,
    )


PHASE = _metric("phase", Kind.GAUGE, "What the run is doing: 1 for its phase.", "", Label(name="phase", values=PHASES))
PROGRESS_AGE = _metric(
    "progress_age_seconds",
    Kind.GAUGE,
    "Time since the batch that is worked on last changed, on the driver's own clock; at most since the driver began.",
    "seconds",
)
POSITION = _metric("position_batches", Kind.GAUGE, "Global batches consumed; goes back with a restart.", "batches")
PLANNED = _metric("planned_batches", Kind.GAUGE, "Global batches of the whole run.", "batches")
STEPS = _metric("applied_steps", Kind.GAUGE, "Updates that are in the weights.", "steps")
LOSS = _metric("loss", Kind.GAUGE, "Running mean of the loss over recent applied steps.")
RATE = _metric("batches_per_second", Kind.GAUGE, "Throughput between the last two looks.")
STEP_TIME = _metric("step_seconds", Kind.GAUGE, "Mean time for a batch between the last two looks.", "seconds")
REFUSED = _metric(
    "refused_batches_total",
    Kind.COUNTER,
    "Batches that left no trace in the weights, by why.",
    "batches",
    Label(name="reason", values=REASONS),
)
DROPS = _metric("drop_ratio", Kind.GAUGE, "Batches refused, of those consumed, over the whole run.", "ratio")
ROLLBACKS = _metric("rollbacks_total", Kind.COUNTER, "Times that the run went back to a healthy state.")
UNDONE = _metric("undone_steps_total", Kind.COUNTER, "Updates that rollbacks took back.", "steps")
REPEATED = _metric("repeated_batches_total", Kind.COUNTER, "Batches worked on again after restarts.", "batches")
SCALE = _metric("loss_scale", Kind.GAUGE, "Scale of the loss under mixed precision; absent where there is none.")
SNAPSHOT_TIME = _metric(
    "snapshot_seconds", Kind.GAUGE, "What the newest snapshot into RAM cost the training.", "seconds"
)
SNAPSHOT_BYTES = _metric("snapshot_bytes", Kind.GAUGE, "RAM that rank 0 holds for snapshots.", "bytes")
WITHHELD = _metric("snapshots_withheld_total", Kind.COUNTER, "Snapshots not taken, since a tensor was ill.")
CHECKPOINT_AGE = _metric(
    "checkpoint_age_seconds",
    Kind.GAUGE,
    "Time since a checkpoint was last published, on the driver's own clock; at most since the driver began.",
    "seconds",
)
CHECKPOINT_STALL = _metric(
    "checkpoint_stall_seconds",
    Kind.HISTOGRAM,
    "Time for which the training waited until a checkpoint was taken over.",
    "seconds",
    buckets=_STALLS_S,
)
CHECKPOINT_WRITE = _metric(
    "checkpoint_write_seconds",
    Kind.HISTOGRAM,
    "Time in which a checkpoint was written behind the training.",
    "seconds",
    buckets=_WRITES_S,
)
CHECKPOINT_EVENTS = _metric(
    "checkpoints_total", Kind.COUNTER, "What became of checkpoints.", "", Label(name="result", values=CHECKPOINTS)
)
ATTEMPT = _metric("attempt", Kind.GAUGE, "Number of the group of workers that is at work; the first is 1.")
RESTARTS = _metric("restarts_total", Kind.COUNTER, "Groups of workers that began after the run's first.")
DEATHS = _metric(
    "deaths_total",
    Kind.COUNTER,
    "What was told of the ends of workers and drivers; one death may be told by several.",
    "",
    Label(name="cause", values=CAUSES),
)
STOPS = _metric("stops_total", Kind.COUNTER, "Times that the run stopped with a diagnosis.")
WORKERS = _metric("workers", Kind.GAUGE, "Ranks at work.")
GOODPUT = _metric(
    "run_seconds",
    Kind.GAUGE,
    "Where the wall time of the run went; the parts add up to it; one that is absent is not known.",
    "seconds",
    Label(name="part", values=PARTS),
)
ETTR = _metric("effective_ratio", Kind.GAUGE, "Productive time over wall time of the run.", "ratio")
DEGRADED = _metric(
    "degraded",
    Kind.GAUGE,
    "1 while the run does less than it was asked to, by kind.",
    "",
    Label(name="kind", values=DEGRADATIONS),
)
RUNG = _metric(
    "memory_rung", Kind.GAUGE, "1 for the rung of the memory ladder that holds.", "", Label(name="rung", values=RUNGS)
)
STRAGGLER = _metric(
    "straggler_ratio",
    Kind.GAUGE,
    "Time of the slowest rank that is named over the others' median; 1: none is.",
    "ratio",
)

TRAINING_METRICS = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
