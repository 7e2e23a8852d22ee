"""The network between workers, as one config instead of a dozen variables whose units nobody remembers.

:meth:`FabricConfig.variables` is what NCCL, gloo and torch read when a process group is made, so it must be in the
environment by then. What the user has set is never touched, but it is checked: ``NCCL_IB_TIMEOUT=300`` looks like five
minutes and is no valid exponent at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from failsoft.errors import ConfigError

_IB_UNIT_S = 4.096e-6
"""One tick of the InfiniBand transport timer (IBTA specification, local ACK timeout)."""
_IB_TIMEOUT = "NCCL_IB_TIMEOUT"
_HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"


@dataclass(frozen=True, kw_only=True)
class FabricConfig:
    """How long the network may be silent, and which way it goes."""

    collective_timeout_s: int = 300
    """A collective that takes longer is an error on all its ranks; handed to the process group, not to a variable."""
    heartbeat_s: int = 300
    """NCCL's own watchdog thread was silent for so long: torch ends the process."""
    ib_timeout_exponent: int | None = None
    """InfiniBand waits 4.096 µs · 2^n for an answer before it sends again: 20 is 4.3 s (NCCL's default), 22 is 17 s.
    None leaves it to NCCL."""
    ib_retries: int | None = None
    """How often InfiniBand sends again before the connection is lost, 0 to 7; None leaves it to NCCL, which says 7."""
    interface: str | None = None
    """Name of the network interface between nodes, ``eth0`` say; None lets NCCL and gloo choose."""

    def __post_init__(self) -> None:
        """Refuse times that mean something else than they seem to."""
        for name in ("collective_timeout_s", "heartbeat_s"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use a positive number of seconds")
        if self.ib_timeout_exponent is not None:
            _check_exponent("ib_timeout_exponent", self.ib_timeout_exponent)
        if self.ib_retries is not None and not 0 <= self.ib_retries <= 7:
            raise ConfigError(f"ib_retries is {self.ib_retries}; InfiniBand knows 0 to 7")
        if self.interface is not None and not self.interface.strip():
            raise ConfigError("interface is empty; name one of `ip -brief link`, or use None")
        gives_up_s = self.ib_gives_up_s
        if gives_up_s is not None and not gives_up_s < self.collective_timeout_s:
            raise ConfigError(
                f"ib_timeout_exponent is {self.ib_timeout_exponent}: a dead link is noticed after {gives_up_s:.0f} s, "
                f"later than collective_timeout_s {self.collective_timeout_s}; use a smaller exponent"
            )

    @property
    def ib_gives_up_s(self) -> float | None:
        """Seconds from the first unanswered packet to a lost connection, at least; None when NCCL decides."""
        if self.ib_timeout_exponent is None:
            return None
        tries = (7 if self.ib_retries is None else self.ib_retries) + 1
        return ib_timeout_s(self.ib_timeout_exponent) * tries

    def variables(self) -> dict[str, str]:
        """What NCCL, gloo and torch read, by name."""
        given = {
            _HEARTBEAT: self.heartbeat_s,
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": 3,  # end the process without tidying, for tidying may hang as well
            _IB_TIMEOUT: self.ib_timeout_exponent,
            "NCCL_IB_RETRY_CNT": self.ib_retries,
            "NCCL_SOCKET_IFNAME": None if self.interface is None else f"={self.interface}",  # = is exactly this one
            "GLOO_SOCKET_IFNAME": self.interface,
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    def missing_from(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that the user has not set.

        Raises:
            ConfigError: one that the user has set means something else than it seems to.
        """
        check_environment(environment)
        return {name: value for name, value in self.variables().items() if not environment.get(name)}

    def explained(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Each variable as it holds in an environment, with whose it is; for the ledger."""
        ours = self.missing_from(environment)
        told = {name: f"{value} (failsoft)" for name, value in ours.items()}
        told |= {name: f"{environment[name]} (yours)" for name in self.variables() if name not in ours}
        exponent = environment.get(_IB_TIMEOUT) or ours.get(_IB_TIMEOUT)
        if exponent is not None:
            told[_IB_TIMEOUT] = f"{told.get(_IB_TIMEOUT, f'{exponent} (yours)')}: {ib_timeout_s(int(exponent)):.3g} s"
        return told | {"collective timeout": f"{self.collective_timeout_s} s"}


def ib_timeout_s(exponent: int) -> float:
    """Seconds that InfiniBand waits for an answer before it sends again: 4.096 µs · 2^exponent."""
    return math.ldexp(_IB_UNIT_S, exponent)


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse a user's variables that mean something else than they seem to.

    Raises:
        ConfigError: names the variable, its value, what it means, and what would be right.
    """
    exponent, heartbeat = environment.get(_IB_TIMEOUT), environment.get(_HEARTBEAT)
    if exponent:
        _check_exponent(_IB_TIMEOUT, _number(_IB_TIMEOUT, exponent))
    if heartbeat and _number(_HEARTBEAT, heartbeat) < 1:
        raise ConfigError(f"{_HEARTBEAT} is {heartbeat}; use a positive number of seconds, or leave it out for 300")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{name} is {text!r}, which is no whole number; unset it, or see FabricConfig") from error


def _check_exponent(name: str, exponent: int) -> None:
    if not 1 <= exponent <= 31:
        fits = next((n for n in range(1, 31) if ib_timeout_s(n) * 8 >= exponent), 31)
        raise ConfigError(
            f"{name} is {exponent}; it is no number of seconds but an exponent from 1 to 31: InfiniBand waits "
            f"4.096 µs · 2^n, 8 times. For {exponent} s in all use {fits}, which waits {ib_timeout_s(fits):.3g} s each"
        )
