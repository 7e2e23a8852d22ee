"""What is looked at before anything is started: what would fail in a minute is said in a moment, with its mend."""

from __future__ import annotations

import socket
import sys
import tempfile
from importlib.metadata import version

import httpx

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.health.within import within

TESTED_RAY = "2.60"
"""The Ray whose internals the fast ingress and the drills were tried with."""
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
_KNOCK_S = 1.0


def check_start(home: Home, *, host: str, port: int) -> list[str]:
    """Look at versions, storage and the port before a start.

    Args:
        home: where releases, the plan and the ledger lie.
        host: to listen on.
        port: to listen on.

    Returns:
        Remarks in words on what may be a problem; none stops the start.

    Raises:
        ConfigError: the start would fail: the Python is too old, the home can't be written, or the port is taken.
    """
    remarks = check_versions(python=(sys.version_info.major, sys.version_info.minor), ray=version("ray"))
    check_writable(home)
    check_port(host, port)
    return remarks


def check_versions(*, python: tuple[int, int], ray: str) -> list[str]:
    """Remarks on versions that nobody has tried.

    Raises:
        ConfigError: the Python can't run it.
    """
    major, minor = python
    if python < OLDEST_PYTHON:
        raise ConfigError(f"this is Python {major}.{minor}; use {_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)}")
    remarks = []
    if python > NEWEST_PYTHON:
        remarks.append(
            f"Python {major}.{minor} was not tried; {_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)} were"
        )
    if not ray.startswith(f"{TESTED_RAY}."):
        remarks.append(
            f"Ray {ray} was not tried; {TESTED_RAY} was: watch the first answers, or install ray=={TESTED_RAY}.*"
        )
    return remarks


def check_writable(home: Home) -> None:
    """Write and remove a file where the plan is stored.

    Raises:
        ConfigError: that does not work; an order such as ``degrade`` could not be made durable.
    """
    try:
        home.serving.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home.serving) as probe:
            probe.write(b"0")
            probe.flush()
    except OSError as error:
        raise ConfigError(
            f"{home.serving} can't be written ({error}), so no order could be kept there; free some space, mend the "
            "rights, or choose another folder with --home"
        ) from error


def check_port(host: str, port: int) -> None:
    """Whether one may listen there.

    Raises:
        ConfigError: the host is none of this machine's, or somebody listens there; says so when it is a gateway.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ConfigError(_why_taken(host, port, error)) from error


def local_url(host: str, port: int) -> str:
    """How this machine itself reaches what listens there."""
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104 -- compared, not bound


def _why_taken(host: str, port: int, error: Exception) -> str:
    url = local_url(host, port)
    try:
        answer = within(2.0 * _KNOCK_S, lambda: httpx.get(f"{url}/v1/status", timeout=_KNOCK_S))
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return (
                f"somebody at {url} asks for a token, as a gateway with console_token does; look at it with: failsoft "
                f"status --url {url} --home ITS-HOME; or start another one with --port"
            )
        there = answer.json()
        release = there["plan"]["releases"][there["plan"]["subject"]]
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, KeyError, TypeError):
        return f"port {port} on {host} can't be used ({error}); choose another with --port"
    return (
        f"a gateway already answers at {url} (release {release}, {there.get('stage')}); look at it with: failsoft "
        f"status --url {url}; or start another one with --port"
    )


def _dotted(pair: tuple[int, int]) -> str:
    return ".".join(map(str, pair))
