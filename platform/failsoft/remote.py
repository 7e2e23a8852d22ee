"""The operator's side of the gateway's HTTP routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self
from urllib.parse import quote

import httpx

from failsoft.errors import ConfigError, NotAuthorizedError, ServingError
from failsoft.health.within import within

_WAIT_S = 10.0
WITHIN_S = 30.0
"""For all of one answer, whatever drips in between: httpx's time is for each wait on the socket."""


class GatewayClient:
    """Asks and steers a running gateway. A context manager: its connections end with the block.

    Args:
        url: its address.
        token: the operator's, sent with every request; orders need it.
        reader: finds the token that reads, for a gateway that refuses to be read without one; asked only then, so that
            no other address ever hears it.
        transport: for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        reader: Callable[[], str | None] = lambda: None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._reader = reader
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url = url.rstrip("/")
        try:
            self._http = httpx.Client(base_url=self._url, headers=headers, timeout=_WAIT_S, transport=transport)
        except httpx.InvalidURL as error:
            raise ConfigError(f"{url!r} is no address ({error}); give one like http://127.0.0.1:8000") from error

    def __enter__(self) -> Self:
        """Nothing is asked yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its connections: one that is left open is closed, and warned of, wherever garbage is collected next."""
        self._http.close()

    def status(self) -> dict[str, Any]:
        """What the gateway replica that answers knows: plan, window, counters."""
        answer = self._call("GET", "/v1/status")
        if not {"gateway", "stage", "plan", "health", "counts"} <= answer.keys():
            raise self._somebody_else()
        return answer

    def degrade(self, *, for_s: float | None, why: str, by: str = "operator") -> dict[str, Any]:
        """Force the fallback for everyone, until :meth:`restore` or for ``for_s`` seconds."""
        return self._call("POST", "/v1/degrade", {"for_s": for_s, "why": why, "by": by})

    def restore(self, *, why: str, by: str = "operator") -> dict[str, Any]:
        """End an operator's force; the model returns through the stages."""
        return self._call("POST", "/v1/restore", {"why": why, "by": by})

    def propose(self, release: str, *, again: bool = False) -> dict[str, Any]:
        """Let a release begin its way through the stages, with ``again`` also a rejected one; the plan after that."""
        more = "?again=true" if again else ""
        return self._call("POST", f"/v1/releases/{quote(release, safe='')}/propose{more}")

    def rollout(self) -> dict[str, Any]:
        """Where the rollout stands and what it waits for, as the controller knows it."""
        return self._call("GET", "/v1/rollout")

    def steer(self, release: str, verb: str, *, why: str, by: str, from_stage: str | None = None) -> dict[str, Any]:
        """Order something of a release on its way.

        Args:
            release: which one; another one than the subject is refused.
            verb: ``abort``, ``hold``, ``resume`` or ``advance``.
            why: kept in the ledger.
            by: who; kept in the ledger.
            from_stage: with ``advance`` the stage that it has passed.
        """
        step = {} if from_stage is None else {"from_stage": from_stage}
        return self._call("POST", f"/v1/releases/{quote(release, safe='')}/{verb}", {"why": why, "by": by} | step)

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        response = self._http.request(method, path, json=body)
        if response.status_code == httpx.codes.UNAUTHORIZED and "Authorization" not in self._http.headers:
            token = self._reader()
            if token is not None:
                self._http.headers["Authorization"] = f"Bearer {token}"
                return self._http.request(method, path, json=body)
        return response

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = within(WITHIN_S, lambda: self._request(method, path, body))
        except TimeoutError as error:
            raise ServingError(f"no whole answer of {self._url} within {WITHIN_S:g} s; is that a gateway?") from error
        except httpx.HTTPError as error:
            raise ServingError(
                f"no gateway answers at {self._url} ({error.__class__.__name__}); start one with: failsoft serve"
            ) from error
        if response.status_code in (401, 403):
            raise NotAuthorizedError(
                f"{self._url}{path} refused {self._what_it_got()}; use the --home of that gateway, or "
                "set FAILSOFT_TOKEN"
            )
        if response.status_code != 200:
            raise ServingError(f"{self._url}{path} answered {response.status_code}: {response.text[:300]}")
        return self._read(response)

    def _what_it_got(self) -> str:
        return "this token" if "Authorization" in self._http.headers else "to be read without a token"

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            body = response.json()
        except ValueError:  # also what is no UTF-8
            body = None
        if not isinstance(body, dict):
            raise self._somebody_else()
        return body

    def _somebody_else(self) -> ServingError:
        return ServingError(f"no gateway answers at {self._url}, but something else; give its address with --url")
