"""MLflow, by its client. Needs ``pip install 'failsoft[mlflow]'``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from failsoft.health.clock import Clock
from failsoft.training.trackers.tracker import Ending, RunFacts

EXPERIMENT = "failsoft"
_TAG = "failsoft.run"
_MOST_CHARS = 500
_AT_ONCE = {"metrics": 1000, "params": 100}
"""As many as MLflow takes in one call."""
_STATUS = {Ending.FINISHED: "FINISHED", Ending.STOPPED: "FAILED"}


class MlFlow:
    """One MLflow run for all attempts of a run; found again by a tag.

    Args:
        uri: of the tracking server or store, as MLflow writes it.
        clock: MLflow wants a wall time with each value.
    """

    def __init__(self, uri: str, clock: Clock) -> None:
        self._uri, self._clock = uri, clock
        self._client: Any = None
        self._run_id = ""

    def begin(self, run: RunFacts) -> None:
        """Make the run, or take it up again; settings that are not there yet become parameters."""
        import mlflow  # noqa: PLC0415 -- two seconds, and only where it is asked for
        from mlflow.entities import Param  # noqa: PLC0415

        self._client = client = mlflow.MlflowClient(tracking_uri=self._uri)
        there = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if there is None else there.experiment_id
        found = client.search_runs([experiment], f"tags.`{_TAG}` = '{run.identity}'", max_results=1)
        one = found[0] if found else client.create_run(experiment, tags={_TAG: run.identity}, run_name=run.run)
        self._run_id = one.info.run_id
        if found:
            client.update_run(self._run_id, status="RUNNING")
        new = [Param(name, value[:_MOST_CHARS]) for name, value in run.config.items() if name not in one.data.params]
        for first in range(0, len(new), _AT_ONCE["params"]):
            client.log_batch(self._run_id, params=new[first : first + _AT_ONCE["params"]])

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics, in one call."""
        from mlflow.entities import Metric  # noqa: PLC0415

        now_ms = int(self._clock.wall_s() * 1000)
        self._client.log_batch(self._run_id, metrics=[Metric(name, v, now_ms, step) for name, v in values.items()])

    def happened(self, step: int, kind: str, why: str) -> None:
        """A tag that says the last one of its kind; how many there were is a metric."""
        self._client.set_tag(self._run_id, f"failsoft.{kind}", f"step {step}: {why}"[:_MOST_CHARS])

    def end(self, ending: Ending) -> None:
        """Say how it ended; a run that goes on elsewhere stays as it is."""
        if ending in _STATUS:
            self._client.set_terminated(self._run_id, _STATUS[ending])
