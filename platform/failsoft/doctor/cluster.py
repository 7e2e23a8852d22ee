"""What listens: the gateway's port, and Ray, with the mode in which it asks who is there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

from failsoft.doctor.finding import Finding, Mark
from failsoft.errors import ConfigError, FailsoftError, NotAuthorizedError
from failsoft.remote import GatewayClient
from failsoft.serving.plan.plan import Stage
from failsoft.serving.start_up import check_port, local_url

_KNOCK_S = 2.0
_RAY_ANSWERS_S = 10.0
_LOOPBACK = ("127.", "localhost", "::1")


def gateway(*, host: str, port: int, reader: Callable[[], str | None] = lambda: None) -> Finding:
    """Who has the gateway's port: nobody, a gateway that answers, or somebody else.

    ``reader`` finds the token for one that strangers may not read.
    """
    try:
        check_port(host, port)
    except ConfigError:
        return _who_answers(local_url(host, port), reader)
    return Finding(about="gateway", mark=Mark.GOOD, said=f"none runs, {host}:{port} is free for one")


def _who_answers(url: str, reader: Callable[[], str | None]) -> Finding:
    try:
        with GatewayClient(url, reader=reader) as client:
            answer = client.status()
    except NotAuthorizedError as error:
        said = f"{url} answers, and what it does is not known here: {error}"
        return Finding(about="gateway", mark=Mark.UNKNOWN, said=said, mend="failsoft doctor --home HOME, with its home")
    except FailsoftError as error:
        return Finding(about="gateway", mark=Mark.BAD, said=str(error), mend="another one with --port")
    stage = answer["stage"]
    if stage == Stage.SERVING:
        return Finding(about="gateway", mark=Mark.GOOD, said=f"{url} answers, and its model serves everybody")
    said = f"{url} answers, in stage {stage}"
    return Finding(about="gateway", mark=Mark.REMARK, said=said, mend=f"failsoft status --url {url}")


def ray(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Whether the Ray that the environment names can be reached, and whether strangers may submit code to it."""
    address = environment.get("RAY_ADDRESS", "")
    if not address:
        said = "RAY_ADDRESS is not set: failsoft train and serve start a private Ray on loopback"
        return [Finding(about="ray", mark=Mark.GOOD, said=said)]
    return [_reached(address), _auth(address, environment)]


def _reached(address: str) -> Finding:
    host, port = _parts(address)
    if port is None:
        said = f"RAY_ADDRESS is {address!r}, whose port can't be told"
        return Finding(about="ray", mark=Mark.UNKNOWN, said=said, mend="export RAY_ADDRESS=HOST:6379")
    try:
        socket.create_connection((host, port), timeout=_KNOCK_S).close()
    except (OSError, ValueError, OverflowError) as error:  # the others: of what is no name or port of a machine
        mend = "ray start --head on that machine, or unset RAY_ADDRESS"
        return Finding(about="ray", mark=Mark.BAD, said=f"{host}:{port} can't be reached ({error})", mend=mend)
    if "://" in address:
        return Finding(about="ray", mark=Mark.UNKNOWN, said=f"somebody listens at {host}:{port}; Ray was not asked")
    return _answers_as_ray(f"{host}:{port}")


def _answers_as_ray(address: str) -> Finding:
    """Ray's own question, in a child: asked of somebody else it would wait, and write into this terminal."""
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    mend = f"ray health-check --address {address}"
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=_RAY_ANSWERS_S, check=False)
    except subprocess.TimeoutExpired:
        said = f"somebody listens at {address}, and did not answer as Ray within {_RAY_ANSWERS_S:.0f} s"
        return Finding(about="ray", mark=Mark.BAD, said=said, mend=mend)
    if answer.returncode:
        words = (answer.stderr.strip() or answer.stdout.strip() or "it is not well").splitlines()[-1]
        return Finding(about="ray", mark=Mark.BAD, said=f"{address}: {words}", mend=mend)
    return Finding(about="ray", mark=Mark.GOOD, said=f"{address} is well, and of this version")


def _auth(address: str, environment: Mapping[str, str]) -> Finding:
    mode = environment.get("RAY_AUTH_MODE", "")
    if mode == "token":
        held = bool(environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"))
        if held or os.path.exists(os.path.expanduser("~/.ray/auth_token")):
            return Finding(about="ray's token", mark=Mark.GOOD, said="RAY_AUTH_MODE=token, with a token")
        said = "RAY_AUTH_MODE=token, and no token is set"
        return Finding(about="ray's token", mark=Mark.BAD, said=said, mend="export RAY_AUTH_TOKEN=…, as on the head")
    host, _ = _parts(address)
    here = host.startswith(_LOOPBACK)
    return Finding(
        about="ray's token",
        mark=Mark.REMARK if here else Mark.BAD,
        said=f"RAY_AUTH_MODE is {mode or 'not set'}: whoever reaches {host} may run code there",
        mend="export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=…, before ray start",
    )


def _parts(address: str) -> tuple[str, int | None]:
    bare = address.split("://", 1)[-1]
    host, _, port = bare.rpartition(":")
    return (host or bare).strip("[]"), int(port) if host and port.isdecimal() else None
