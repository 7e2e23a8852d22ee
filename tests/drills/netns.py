"""Machines on one machine: each a network namespace of its own on a bridge, to be cut off from another or killed.

The address space is the kernel's own, so ports, routes and silence are those of a real network: what is cut off gets no
refusal, its packets vanish. Needs root and iproute2; :data:`WHY_NOT` says what is absent.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.drills.cluster import wait_until


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One of them."""

    name: str
    namespace: str
    port: str
    """Its end of the cable on the bridge."""
    address: str

    def inside(self, command: list[str]) -> list[str]:
        """The command as it is run there."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def processes(self) -> list[int]:
        """All that run there."""
        return [int(pid) for pid in _ip("netns", "pids", self.namespace).split()]

    def lose_power(self) -> int:
        """SIGKILL to all of its processes at once; how many there were. Nothing else of the host is touched."""
        killed = 0
        while pids := self.processes():
            killed += sum(map(_strike, pids))
            wait_until(partial(self._are_gone, pids), what="a dead machine", timeout_s=60)
        return killed

    def _are_gone(self, pids: list[int]) -> bool:
        return not set(pids) & set(self.processes())


class Network:
    """A bridge in this test's own namespace, which is where callers stand: they reach every machine."""

    def __init__(self) -> None:
        self._number = os.getpid() % 250 + 1
        self._bridge = f"fsb{os.getpid()}"
        self._machines: list[Machine] = []

    @property
    def gateway(self) -> str:
        """Where the callers stand."""
        return f"10.213.{self._number}.1"

    def add(self, name: str) -> Machine:
        """Plug another machine in."""
        count = len(self._machines) + 11
        mine = f"{os.getpid()}x{count}"
        machine = Machine(
            name=name, namespace=f"fsn{mine}", port=f"fsv{mine}", address=f"10.213.{self._number}.{count}"
        )
        self._machines.append(machine)
        _ip("netns", "add", machine.namespace)
        _ip("link", "add", machine.port, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
        _ip("link", "set", machine.port, "master", self._bridge, "up")
        way_out = f"route add default via {self.gateway}"  # leads nowhere, but programs look up their address by it
        for words in (f"addr add {machine.address}/24 dev eth0", "link set eth0 up", "link set lo up", way_out):
            _ip("-n", machine.namespace, *words.split())
        return machine

    def part(self, one: Machine, other: Machine) -> None:
        """Let neither hear of the other from now on; both still reach everybody else."""
        self._isolate("on", one, other)

    def heal(self, one: Machine, other: Machine) -> None:
        """Join them again."""
        self._isolate("off", one, other)

    def _isolate(self, state: str, *machines: Machine) -> None:
        for machine in machines:  # ports of a bridge that are both isolated don't reach each other
            _ip("link", "set", "dev", machine.port, "type", "bridge_slave", "isolated", state)

    def lay(self) -> None:
        """Make the bridge."""
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def clear(self) -> None:
        """End what runs there and take everything away."""
        for machine in self._machines:
            machine.lose_power()
            _ip("netns", "del", machine.namespace)
        _ip("link", "del", self._bridge)


@contextmanager
def network() -> Iterator[Network]:
    """For the time of the block."""
    net = Network()
    net.lay()
    try:
        yield net
    finally:
        net.clear()


def machine_of(pid: int, machines: list[Machine]) -> Machine:
    """On which of them a process runs."""
    (found,) = [machine for machine in machines if pid in machine.processes()]
    return found


def _strike(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def _why_not() -> str | None:
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (package iproute2)"
    if os.geteuid() != 0 or not Path("/proc/self/ns/net").exists():
        return "network namespaces need root"
    probe = ["unshare", "--net", "ip", "link", "add", "fsprobe", "type", "bridge"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"this machine gives no network namespaces: {done.stderr.strip()}"


WHY_NOT = _why_not()
"""Why there can be no such network here; None: there can."""
