"""The route that takes Alertmanager's notices: who may send them, and what becomes of them.

It is a process of its own: an alert reaches a run where nothing is served, and a gateway that is itself ill does not
stand between an alert and its remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from failsoft.alerts.orders import Answer, Notice, Order, orders_of
from failsoft.alerts.settings import Action, Rule
from failsoft.artifacts.tokens import Digests
from failsoft.errors import FailsoftError, NotAuthorizedError
from failsoft.health.clock import SystemClock
from failsoft.serving.web.auth import bearer_guard
from failsoft.serving.web.guess_limit import GuessLimit

_log = logging.getLogger(__name__)
ROUTE = "/v1/alerts"
MAX_BODY_BYTES = 1_048_576


class Acts(Protocol):
    """What carries orders out. Both are safe to be told twice: Alertmanager repeats itself."""

    def degrade(self, *, for_s: float, why: str) -> str:
        """Hold the model back; says what came of it. Raises a FailsoftError when that could not be ordered."""
        ...

    def stop_run(self, run: str, *, why: str) -> str:
        """Tell a run to save and leave; says what came of it. Raises a FailsoftError when there is none."""
        ...


def build_receiver(*, rules: Callable[[], Sequence[Rule]], acts: Acts, token: str | Digests) -> FastAPI:
    """The app.

    Args:
        rules: asked for each notice, so that a changed file holds at once. A file that can't be meant answers 503.
        acts: carries orders out.
        token: the bearer token that whoever sends notices must know, or what gives digests of those that open now.
    """
    app = FastAPI(title="failsoft alerts", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GuessLimit, clock=SystemClock())
    check = bearer_guard(token)

    def sender(authorization: Annotated[str | None, Header()] = None) -> None:
        try:
            check(authorization)
        except NotAuthorizedError as error:
            raise HTTPException(401, "send 'Authorization: Bearer TOKEN' with the token of alert-token") from error

    @app.post(ROUTE, dependencies=[Depends(sender)])
    async def receive(request: Request) -> dict[str, Any]:
        notice = await _notice(request)
        try:
            answers = orders_of(notice, rules())
        except FailsoftError as error:
            raise HTTPException(503, str(error)) from error
        results = [await run_in_threadpool(_carry_out, answer, acts) for answer in answers]
        if any(not done for done, _said in results):  # then Alertmanager tries again
            raise HTTPException(503, [said for _done, said in results])
        return {"answers": [said for _done, said in results]}

    return app


async def _notice(request: Request) -> Notice:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"a notice has at most {MAX_BODY_BYTES} bytes; set max_alerts in Alertmanager")
    try:
        return Notice.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(422, f"{where}: {first['msg']}; this takes Alertmanager's webhook, version 4") from error


def _carry_out(answer: Answer, acts: Acts) -> tuple[bool, dict[str, str]]:
    said, done = answer.said, True
    if answer.order is not None:
        try:
            said = _act(answer.order, acts)
        except FailsoftError as error:
            said, done = str(error), False
            _log.warning("alert %s was not acted upon: %s", answer.alert, error)
    return done, {"alert": answer.alert, "said": said}


def _act(order: Order, acts: Acts) -> str:
    if order.action is Action.DEGRADE:
        return acts.degrade(for_s=order.for_s or 0.0, why=order.why)
    return acts.stop_run(order.run or "", why=order.why)
