"""What an alert's order does: through the gateway's own operator route, and by the notice that a run looks for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import Clock
from failsoft.remote import GatewayClient
from failsoft.training.survival.notice import drop_notice

BY = "alert"


class Remedies:
    """Carries orders out on a home and the gateway that serves it.

    Args:
        home: whose runs may be stopped.
        client: makes a client of the gateway with the operator's token.
        clock: so that a repeated alert does not push the end of a force away for ever: an order is not given while a
            force lasts for half of its time and more anyway, and none shortens what another one has ordered.
    """

    def __init__(self, home: Home, client: Callable[[], GatewayClient], clock: Clock) -> None:
        self._home = home
        self._client = client
        self._clock = clock
        self._ends_s = 0.0
        self._one = threading.Lock()

    def degrade(self, *, for_s: float, why: str) -> str:
        """Hold the model back for everyone for ``for_s`` seconds.

        Raises:
            ServingError: no gateway answers, or it refused.
        """
        with self._one:
            now_s = self._clock.monotonic_s()
            if now_s + for_s / 2.0 < self._ends_s:
                return "already held back by an alert"
            with self._client() as client:
                plan = client.degrade(for_s=for_s, why=why, by=BY)
            self._ends_s = now_s + for_s
        return f"held back for {for_s:.0f} s, plan epoch {plan.get('epoch')}"

    def stop_run(self, run: str, *, why: str) -> str:
        """Tell a run to save after its present step and leave; told twice, it leaves once.

        Raises:
            ArtifactMissingError: there is no such run.
        """
        if not self._home.run(run).is_dir():
            raise ArtifactMissingError(f"there is no run {run!r} in {self._home.runs}; see: failsoft runs")
        drop_notice(self._home.run(run), why)
        return f"run {run} is told to save and leave"
