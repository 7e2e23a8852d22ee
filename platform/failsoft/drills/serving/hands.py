"""What carries a fault out and takes its cause away again, one small class for each way of breaking something."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from failsoft.drills.serving.course import Wave
from failsoft.drills.serving.parts import Parts
from failsoft.drills.serving.processes import Process, send_all
from failsoft.drills.serving.signs import Sign, Signs, Told
from failsoft.errors import ServingError
from failsoft.health.clock import Clock
from failsoft.health.faults import FaultKind
from failsoft.health.ledger import read_ledger

_SPOILT_WITHIN_S = 1.5
_LOOK_S = 0.05


class Hand(Protocol):
    """One fault, done and undone."""

    def strike(self) -> str:
        """Do it; what was done, in words.

        Raises:
            ServingError: it could not be done.
        """
        ...

    def mend(self) -> None:
        """Take the cause away. What was not struck is not mended; what is gone by now is fine."""
        ...

    def reached(self) -> bool | None:
        """Whether it is known to have had its effect; asked after :meth:`mend`. None: nobody can tell."""
        ...

    def wave(self) -> Wave:
        """Requests of others that were part of it."""
        ...


class Alone:
    """What every hand without requests of others has."""

    def wave(self) -> Wave:
        """None."""
        return Wave()


class Signal(Alone):
    """A signal to some processes, and another to those that live when it is over.

    Args:
        find: the processes.
        what: the signal.
        then: takes it back, as SIGCONT does SIGSTOP; None: nothing does.
        role: for the words.
    """

    def __init__(
        self,
        find: Callable[[], Sequence[Process]],
        what: signal.Signals,
        *,
        role: str,
        then: signal.Signals | None = None,
    ) -> None:
        self._find, self._what, self._then, self._role = find, what, then, role
        self._struck: list[Process] = []

    def strike(self) -> str:
        """All of them at once."""
        found = list(self._find())
        if not found:
            raise ServingError(f"there is no process of the {self._role} to send {self._what.name} to")
        self._struck = send_all(found, self._what)
        return f"{self._what.name} to {len(self._struck)} × {self._role}"

    def mend(self) -> None:
        """To those that were not replaced meanwhile."""
        if self._then is not None:
            send_all(self._struck, self._then)

    def reached(self) -> bool | None:
        """A signal that was sent to a living process reaches it."""
        return bool(self._struck)


class SignHand(Alone):
    """Processes of the app are told to do something wrong.

    Args:
        signs: where they are told.
        sign: what.
        told: how much, and whom it concerns.
    """

    def __init__(self, signs: Signs, sign: Sign, told: Told) -> None:
        self._signs, self._sign, self._told = signs, sign, told
        self._struck = 0

    def strike(self) -> str:
        """From now on; who followed it before does not count."""
        self._signs.forget(self._sign)
        self._signs.raise_(self._sign, self._told)
        whom = ", ".join(self._told.deployments) or "every process"
        amount = f", {self._told.amount:+g} s" if self._told.amount else ""
        return f"{self._sign} in {whom}{amount}"

    def mend(self) -> None:
        """No more."""
        self._struck = self._signs.struck(self._sign)
        self._signs.lower(self._sign)

    def reached(self) -> bool | None:
        """Whether any process said that it did."""
        return self._struck > 0


class BrokenWeights(Alone):
    """The weights in memory are shuffled by the app itself, which is failsoft's; a model that can't is spoilt by sign.

    Args:
        parts: of the app.
        instead: for models without ``break_weights()``.
        clock: waits for the model's word.
    """

    def __init__(self, parts: Parts, instead: SignHand, clock: Clock) -> None:
        self._file = parts.host.home.faults / FaultKind.BROKEN_WEIGHTS
        self._ledger, self._instead, self._clock = parts.host.home.ledger, instead, clock
        self._spoilt = False

    def strike(self) -> str:
        """Until the model says that it is broken."""
        before = len(self._said())
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch()
        until_s = self._clock.monotonic_s() + _SPOILT_WITHIN_S
        while len(said := self._said()) == before and self._clock.monotonic_s() < until_s:
            self._clock.sleep_s(_LOOK_S)
        self._spoilt = len(said) > before and "nothing was spoilt" not in said[-1]
        if self._spoilt:
            return said[-1]
        self._file.unlink(missing_ok=True)
        return self._instead.strike()

    def mend(self) -> None:
        """A load from disk heals the weights."""
        if self._spoilt:
            self._file.unlink(missing_ok=True)
        else:
            self._instead.mend()

    def reached(self) -> bool | None:
        """The model's own word."""
        return True if self._spoilt else self._instead.reached()

    def _said(self) -> list[str]:
        return [event.why for event in read_ledger(self._ledger).events if event.kind == "planned_fault"]


class FlippedByte(Alone):
    """One byte of the model's largest file is another one, and whoever holds the model must load it again.

    Args:
        find: the files, largest first.
        kill: ends the processes that have it in memory.
        chance: draws the byte.
    """

    def __init__(self, find: Callable[[], Sequence[Path]], kill: Signal, chance: random.Random) -> None:
        self._find, self._kill, self._chance = find, kill, chance
        self._file: Path | None = None
        self._at, self._was = 0, 0

    def strike(self) -> str:
        """Flip, then kill."""
        files = self._find()
        if not files or not files[0].stat().st_size:
            raise ServingError("no file is known that the model is loaded from; name one with --bundle FILE")
        self._file = files[0]
        content = self._file.read_bytes()
        self._at = self._chance.randrange(len(content))
        self._was = content[self._at]
        self._put(self._was ^ 0xFF)
        try:
            return f"byte {self._at} of {self._file.name} flipped, {self._kill.strike()}"
        except BaseException:  # the file is its owner's, and nobody mends what could not be done; re-raised
            self._put(self._was)
            raise

    def mend(self) -> None:
        """The byte as it was."""
        if self._file is not None:
            self._put(self._was)

    def reached(self) -> bool | None:
        """Whether somebody had to load it again."""
        return self._file is not None and self._kill.reached()

    def _put(self, byte: int) -> None:
        if self._file is None:
            return
        with self._file.open("r+b") as file:
            file.seek(self._at)
            file.write(bytes([byte]))


class LostHead(Alone):
    """All of Ray's daemons are killed; then the same command starts everything again, as systemd would.

    Args:
        parts: of the app.
    """

    def __init__(self, parts: Parts) -> None:
        self._host = parts.host
        self._killed = 0
        self.left: tuple[str, ...] = ()
        """What outlived its head."""

    def strike(self) -> str:
        """Kill the daemons, not the workers."""
        self._killed = self._host.lose_head()
        return f"SIGKILL to {self._killed} daemons of the head"

    def mend(self) -> None:
        """What remains must have ended by itself; then start again."""
        self.left = self._host.gone()
        self._host.start()

    def reached(self) -> bool | None:
        """Whether there was a head."""
        return self._killed > 0


class Replaced(Alone):
    """Every replica leaves in good order and another takes its place, as in a rolling update or a drain.

    Args:
        parts: of the app.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._before: list[Process] = []

    def strike(self) -> str:
        """Returns when Serve says that all new ones stand."""
        self._before = self._parts.replicas(self._all())
        self._parts.host.drain()
        return f"{len(self._before)} replicas were replaced one after the other"

    def mend(self) -> None:
        """Nothing is to be mended."""

    def reached(self) -> bool | None:
        """Whether no old replica is left."""
        return bool(self._before) and not any(one.lives for one in self._before)

    def _all(self) -> tuple[str, ...]:
        return tuple(map(str, self._parts.host.told.get("deployments", ())))
