"""Which plan each gateway said it has, over time: that no gateway ever goes back is the oracle of every lost part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Look = Callable[[], dict[str, Any]]
"""The status of the gateway behind one entrance; empty when nobody answers."""
_LOOK_S = 0.1


class Epochs:
    """Looks at some entrances again and again from a thread, for the time of the block."""

    def __init__(self, entrances: Sequence[Look]) -> None:
        self._entrances = list(entrances)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: dict[str, list[int]] = {}
        """For each gateway the epochs that it named, in order."""

    def __enter__(self) -> Epochs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60.0)

    def watch(self, entrance: Look) -> None:
        """One more entrance."""
        self._entrances.append(entrance)

    def went_back(self) -> dict[str, list[int]]:
        """Gateways that named an older plan after a newer one; empty: none did."""
        return {
            gateway: epochs
            for gateway, epochs in self.seen.items()
            if any(later < earlier for earlier, later in pairwise(epochs))
        }

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            for entrance in list(self._entrances):
                said = entrance()
                if said:
                    self.seen.setdefault(str(said["gateway"]), []).append(int(said["plan"]["epoch"]))
