"""Who may read the console, where reading needs a token: whoever has the viewer's or the operator's.

Wrong guesses are counted by the address that they come from. Behind a proxy all come from the proxy's, so there a
stranger can keep readers out for a minute at a time; orders by ``failsoft`` are not concerned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from failsoft.errors import ConfigError, NotAuthorizedError
from failsoft.health.clock import Clock

MOST_WRONG, WITHIN_S = 10, 60.0
"""So many wrong guesses of one address within so long, and it is not heard until that time is over."""
_ADDRESSES = 4096
"""Those that guessed wrong last are remembered."""


class Door:
    """Lets readers in.

    Args:
        guard: raises NotAuthorizedError unless an ``Authorization`` header may pass, in constant time.
        clock: tells how long ago a guess was made.
        most_wrong: wrong guesses that one address has.
        within_s: within this time, from the first of them on.
    """

    def __init__(
        self,
        guard: Callable[[str | None], None],
        clock: Clock,
        *,
        most_wrong: int = MOST_WRONG,
        within_s: float = WITHIN_S,
    ) -> None:
        if most_wrong < 1:
            raise ConfigError(f"most_wrong is {most_wrong}; people mistype, leave them 1 guess at least")
        self._guard, self._clock = guard, clock
        self._most_wrong, self._within_s = most_wrong, within_s
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def check(self, authorization: str | None, address: str) -> None:
        """Let it pass.

        Raises:
            NotAuthorizedError: no token, or a wrong one.
        """
        if authorization is None:  # nobody guesses: a page that has no token yet must not be shut out
            self._guard(None)
            return
        count, since_s = self._of(address)
        if count >= self._most_wrong:
            raise NotAuthorizedError(
                f"too many wrong tokens from {address}; it is heard again in {self.shut_s(address)} s"
            )
        try:
            self._guard(authorization)
        except NotAuthorizedError:
            self._wrong[address] = (count + 1, since_s)
            self._wrong.move_to_end(address)
            if len(self._wrong) > _ADDRESSES:
                self._wrong.popitem(last=False)
            raise

    def shut_s(self, address: str) -> int:
        """Whole seconds until the address is heard again; 0: it is heard."""
        count, since_s = self._of(address)
        return 0 if count < self._most_wrong else ceil(since_s + self._within_s - self._clock.monotonic_s())

    def _of(self, address: str) -> tuple[int, float]:
        """How often it guessed wrong, and since when that is counted."""
        now_s = self._clock.monotonic_s()
        count, since_s = self._wrong.get(address, (0, now_s))
        return (count, since_s) if now_s - since_s < self._within_s else (0, now_s)
