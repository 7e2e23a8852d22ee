"""What browsers are told about every answer that FastAPI gives, its own pages of the API's description among them.

Those pages load their script from a network of copies, by FastAPI's own choice: the policy lets them load that and
nothing else, talk to this gateway alone, and lets no other page frame them. A page that says more of itself, as the
console does, is left as it is. No answer lets scripts of other origins read it: there is no header that would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.serving.web.problems import path_in_app

_POLICY = "Content-Security-Policy"
_CDN = "https://cdn.jsdelivr.net"
HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
"""On all of them."""
PLAIN_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Of what is no page."""
PAGE_POLICY = (
    f"default-src 'none'; script-src {_CDN} 'unsafe-inline'; worker-src blob:; "
    f"style-src {_CDN} https://fonts.googleapis.com 'unsafe-inline'; font-src https://fonts.gstatic.com; "
    "img-src https://fastapi.tiangolo.com https://cdn.redoc.ly data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of FastAPI's pages."""
_PAGES = "text/html"


class PageHeaders:
    """ASGI middleware: adds what an answer does not say itself.

    Args:
        app: what lies behind.
        spares: whether answers at a path stay as they are: those to models' callers, who are no browsers.
    """

    def __init__(self, app: ASGIApp, *, spares: Callable[[str], bool]) -> None:
        self._app, self._spares = app, spares

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        if scope["type"] != "http" or self._spares(path_in_app(scope)):
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, told)


def _complete(headers: MutableHeaders) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    is_page = headers.get("content-type", "").startswith(_PAGES)
    headers.setdefault(_POLICY, PAGE_POLICY if is_page else PLAIN_POLICY)
