"""Where a run stands on its memory ladder, and when it moves. Judges only; :mod:`.net` carries out.

Down at once, one notch for each time that memory was short; up one notch after a quiet time, with growing patience
after a relapse. Time is counted in applied updates, which all ranks count alike, so that they climb together without a
word; what memory was short of, the ranks agree on before the ladder is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.backoff import grown
from failsoft.health.lifecycle import Lifecycle
from failsoft.training.memory.rungs import LOSSLESS, MemoryPolicy, Notch, Rung, Setting

FORMAT = 1
"""Of the ladder's state in a checkpoint."""
_SEVERAL = frozenset({Rung.MICRO_BATCHES, Rung.INPUT_CAP, Rung.SMALLER_UPDATES})
MOVES = {rung: frozenset(set(Rung) - ({rung} - _SEVERAL)) for rung in Rung}
"""The order is the policy's, so any rung may come before any other; those of several notches follow themselves. None
stays where it is."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One move along the ladder, as it is told."""

    before: Notch
    after: Notch
    why: str
    patience_steps: int
    """Quiet updates until the next notch up."""
    relapses: int


class MemoryLadder:
    """The rung that holds, and the patience. Its state is small JSON and part of the checkpoint.

    Args:
        policy: which rungs, and when back.
        notches: the whole ladder of this run (:func:`failsoft.training.memory.rungs.notches`).
        on_step: told of each move, when it holds.
        lossless: rungs that are taken for pressure alone.
    """

    def __init__(
        self,
        policy: MemoryPolicy,
        notches: Sequence[Notch],
        on_step: Callable[[Step], object] = lambda _step: None,
        *,
        lossless: frozenset[Rung] = LOSSLESS,
    ) -> None:
        if not notches or notches[0].rung is not Rung.FULL_SIZE:
            raise ConfigError("a ladder begins at full size; make its notches with rungs.notches")
        self.policy = policy
        self.notches = tuple(notches)
        self.on_step = on_step
        self._lossless = lossless
        self.life = Lifecycle(MOVES, Rung.FULL_SIZE)
        self.setting = notches[0].setting
        """What holds now."""
        self.relapses = 0
        self._index = 0
        self._quiet = 0
        self._climbed = False

    @property
    def notch(self) -> Notch:
        """Where the run stands."""
        return self.notches[self._index]

    @property
    def patience_steps(self) -> int:
        """Quiet updates before one notch is climbed: first, then by the factor more for each relapse, up to the cap."""
        policy = self.policy
        most = max(policy.max_climb_after_steps, policy.climb_after_steps)
        return round(grown(policy.climb_after_steps, self.relapses + 1, factor=policy.patience_factor, cap=most))

    @property
    def at_the_end(self) -> bool:
        """Whether nothing is left to try."""
        return self._index + 1 >= len(self.notches)

    @property
    def only_giving_up_is_left(self) -> bool:
        """Whether no notch below relieves anything; a batch is given up when it failed, not before."""
        return all(notch.rung is Rung.BATCH_GIVEN_UP for notch in self.notches[self._index + 1 :])

    def ran_out(self, why: str) -> Notch:
        """Memory ran out; one notch down.

        Raises:
            ConfigError: nothing is left to try (see :attr:`at_the_end`).
        """
        if self.at_the_end:
            raise ConfigError(f"{why}, and the ladder ends at {self.notch.in_words()}; allow more rungs, or use less")
        self._relapsed()
        return self._go(self._index + 1, why)

    def pressed(self, why: str) -> bool:
        """Memory grows short, and nothing failed yet: one notch down if the gradient stays what it is.

        Returns:
            Whether it moved; else the quiet time begins anew, so that nothing is climbed under pressure.
        """
        if self.at_the_end or self.notches[self._index + 1].rung not in self._lossless:
            self._quiet = 0
            return False
        self._relapsed()
        self._go(self._index + 1, why)
        return True

    def given_up(self) -> None:
        """The batch is dead; the notch above holds for the next one."""
        if self.notch.rung is Rung.BATCH_GIVEN_UP:
            self._go(self._index - 1, "the batch that did not fit is passed over")

    def applied(self) -> None:
        """One more update without trouble."""
        if not self._index and not self._climbed:  # nothing to climb, and no relapse to be feared
            return
        self._quiet += 1
        if self._quiet < self.patience_steps:
            return
        if self._index:
            quiet = self._quiet
            self._go(self._index - 1, f"{quiet} updates without trouble")
            self._climbed = True
        else:
            self.relapses, self._quiet, self._climbed = 0, 0, False

    def state_dict(self) -> dict[str, Any]:
        """As small JSON. The notch goes by what holds there: another policy may have others before it."""
        setting = self.setting
        held = {"micro_batches": setting.micro_batches, "cap_level": setting.cap_level}
        held |= {"offloaded": setting.offloaded, "updates": setting.updates}
        return {
            "format": FORMAT,
            "rung": self.notch.rung,
            "setting": held,
            "relapses": self.relapses,
            "quiet": self._quiet,
            "climbed": self._climbed,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the state of a checkpoint on; where this ladder has no such notch, the first that relieves as much."""
        if state_dict["format"] != FORMAT:
            raise ConfigError(
                f"the memory ladder's state has format {state_dict['format']}, this failsoft reads {FORMAT}; use the "
                "version that wrote it"
            )
        then = Notch(rung=Rung(state_dict["rung"]), setting=Setting(**state_dict["setting"]))
        resting = [notch for notch in self.notches if notch.rung is not Rung.BATCH_GIVEN_UP]
        fits = [number for number, notch in enumerate(resting) if notch == then or _relieves(notch.setting, then)]
        self.relapses = int(state_dict["relapses"])
        index = 0 if then.rung is Rung.FULL_SIZE else next(iter(fits), len(resting) - 1)
        if index != self._index:
            self._go(index, "so it was when the checkpoint was written")
        self._quiet, self._climbed = int(state_dict["quiet"]), bool(state_dict["climbed"])

    def _go(self, index: int, why: str) -> Notch:
        before, after = self.notch, self.notches[index]
        self.life.move(after.rung, why=why)
        self._index, self.setting = index, after.setting
        self._quiet, self._climbed = 0, False
        told = Step(before=before, after=after, why=why, patience_steps=self.patience_steps, relapses=self.relapses)
        self.on_step(told)
        return after

    def _relapsed(self) -> None:
        if self._climbed and self._quiet < self.patience_steps:
            self.relapses += 1


def _relieves(setting: Setting, then: Notch) -> bool:
    """Whether it saves at least as much, in each way; caches alone save nothing that lasts."""
    old = then.setting
    return (
        old != Setting()
        and setting.micro_batches >= old.micro_batches
        and setting.cap_level >= old.cap_level
        and setting.offloaded >= old.offloaded
        and setting.updates >= old.updates
    )
