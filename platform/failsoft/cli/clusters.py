"""A Ray that runs elsewhere, as ``--submit`` and ``--address`` name it: does one answer there, to us, and does it fit?

Ray's own clients look at little before they begin: they take any Ray since 1.9, let a ``RAY_ADDRESS`` of the shell win
over the address that was given, and send no token where a token's file is there but ``RAY_AUTH_MODE`` is not set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import httpx

from failsoft.errors import ConfigError, NoRayError

_DASHBOARD_PORT = 8265
_KNOCK_S = 10.0
_HERE = {"127.0.0.1", "localhost", "::1"}
_WAY = "the head's dashboard must be reachable from here: ray dashboard cluster.yaml, kubectl port-forward, or "
_WAY += f"ssh -L {_DASHBOARD_PORT}:127.0.0.1:{_DASHBOARD_PORT} HEAD bring it to http://127.0.0.1:{_DASHBOARD_PORT}"
_TOKEN = "export RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE with the token that its nodes were started with"  # noqa: S105 -- words


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Ray that answered."""

    url: str
    """Of its dashboard, without a slash at the end."""
    ray: str
    """Its version."""
    sends_token: bool

    @property
    def remarks(self) -> list[str]:
        """What its user should know before anything is sent."""
        parts = urlsplit(self.url)
        if not self.sends_token or parts.scheme == "https" or parts.hostname in _HERE:
            return []
        return [f"the token goes to {self.url} over plain http, where others on the way can read it; better: {_WAY}"]


def cluster_at(address: str, *, transport: httpx.BaseTransport | None = None) -> Cluster:
    """The cluster at an address, after this process's environment was settled so that Ray's clients reach it, too.

    Args:
        address: of the dashboard: ``http://HOST:8265``, ``https://…``, ``HOST:PORT`` or ``HOST``.
        transport: for tests; None: the network.

    Raises:
        ConfigError: the address can't be meant, the token is missing or not the right one, or its Ray is another one.
        NoRayError: nobody answers, or no Ray does.
    """
    url = dashboard_url(address)
    settle(os.environ)
    token = token_of(os.environ)
    found = _version_at(url, token, transport)
    here = version("ray")
    if found.split(".")[:2] != here.split(".")[:2]:
        raise ConfigError(
            f"{url} runs Ray {found}, and here is Ray {here}: failsoft is made for one of them; install the same on "
            f"both: pip install 'ray=={here}' failsoft"
        )
    return Cluster(url=url, ray=found, sends_token=token is not None)


def dashboard_url(address: str) -> str:
    """Where an address's dashboard is.

    Raises:
        ConfigError: no dashboard can be there.
    """
    like = f"give the dashboard's address, as http://127.0.0.1:{_DASHBOARD_PORT}"
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the address {address!r} can't be read: {error}; {like}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ConfigError(f"no Ray is asked for work at {address!r}; {like}")
    if "://" not in address and port is None:
        parts = SplitResult("http", f"{parts.netloc}:{_DASHBOARD_PORT}", parts.path, "", "")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def settle(environ: MutableMapping[str, str]) -> None:
    """Have Ray's clients in this process go where they are told to, with the token that there is."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # each of them would win over the address given
        environ.pop(name, None)
    if "RAY_AUTH_MODE" not in environ and token_of(environ) is not None:
        environ["RAY_AUTH_MODE"] = "token"


def token_of(environ: Mapping[str, str]) -> str | None:
    """The token that Ray's clients send: $RAY_AUTH_TOKEN, the file of $RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token.

    Raises:
        ConfigError: the file that is named can't be read.
    """
    if environ.get("RAY_AUTH_MODE", "token") != "token":
        return None
    if environ.get("RAY_AUTH_TOKEN"):
        return environ["RAY_AUTH_TOKEN"].strip()
    named = environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return file.read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        if named:
            raise ConfigError(f"RAY_AUTH_TOKEN_PATH names {named}, which can't be read: {error}; {_TOKEN}") from error
        return None


def _version_at(url: str, token: str | None, transport: httpx.BaseTransport | None) -> str:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(transport=transport, timeout=_KNOCK_S) as http:
            answer = http.get(f"{url}/api/version", headers=headers)
    except httpx.TransportError as error:
        raise NoRayError(f"no Ray at {url}: {_why(error)}; {_WAY}") from error
    if answer.status_code in {401, 403}:
        why = "asks for a token, and there is none here" if token is None else "does not accept the token of this shell"
        raise ConfigError(f"Ray at {url} {why}; {_TOKEN}")
    try:
        return str(answer.raise_for_status().json()["ray_version"])
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        raise NoRayError(f"{url} answers ({answer.status_code}), and is no dashboard of Ray; {_WAY}") from error


def _why(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {_KNOCK_S:.0f} s"
    if isinstance(error, httpx.ConnectError):
        return "nobody listens there"
    return "who listens there speaks no HTTP (6379 is Ray's own port, the dashboard's is 8265)"
