"""Around every request: its id, its span and its metrics, the body's limit, and headers for browsers."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roam.server.context import Context
from roam.server.problems import ForbiddenError, HttpError, Problem, TooLargeError
from roam.server.settings import is_loopback

log = logging.getLogger("roam.server")
REQUEST_ID = "X-Request-Id"
_UNKNOWN = "(none)"  # a path that is no endpoint, or a made-up method, must not become a label of its own
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def problem_response(
    error: HttpError | Exception, message: str, status: int, request_id: str, **more: object
) -> JSONResponse:
    """Return the one JSON form of all refusals."""
    problem = Problem(error=type(error).__name__, message=message, request_id=request_id, **more)  # type: ignore[arg-type]
    own = error.headers if isinstance(error, HttpError) else {}
    # Said here as well as by `Guard`: what answers a failure stands outside of all middleware.
    headers = {**SECURITY_HEADERS, REQUEST_ID: request_id, **own}
    return JSONResponse(problem.model_dump(), status_code=status, headers=headers)


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app, self._context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, started, code = Headers(scope=scope), time.perf_counter(), 500
        request_id = scope.setdefault("state", {})["request_id"] = uuid.uuid4().hex

        async def answer(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                told = MutableHeaders(scope=message)
                told[REQUEST_ID] = request_id
                for name, value in SECURITY_HEADERS.items():
                    told.setdefault(name, value)
            await send(message)

        method = scope["method"] if scope["method"] in _METHODS else _UNKNOWN
        with self._context.tracing.request(method, headers) as span:
            try:
                await self._admitted(scope, headers, receive, answer)
            finally:
                route = getattr(scope.get("route"), "path", _UNKNOWN)
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", code)
                seconds = time.perf_counter() - started
                self._context.metrics.requests.labels(method, route, str(code)).inc()
                self._context.metrics.seconds.labels(method, route).observe(seconds)
                # Neither the query nor the body: they hold users and what is stored of them.
                log.info("%s %s %s %s %.1f ms", request_id, method, route, code, seconds * 1000)

    async def _admitted(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        try:
            self._check_site(headers)
            body = await _read(receive, headers, self._context.settings.max_body)
        except HttpError as error:
            request_id = scope["state"]["request_id"]
            await problem_response(error, str(error), error.status, request_id)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _check_site(self, headers: Headers) -> None:
        """Refuse what a web page of another site has a browser send, by name rebinding too."""
        host = headers.get("host", "")
        if self._context.keys is None and not is_loopback(_parts(f"//{host}").hostname or ""):
            raise ForbiddenError(f"host {host!r}: without API keys only this machine is served, as localhost")
        origin = headers.get("origin")
        if origin is not None and _parts(origin).netloc != host:
            raise ForbiddenError(f"origin {origin!r}: requests from other sites' pages are refused")


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # e.g. a bracket that is not closed
        raise ForbiddenError(f"{url!r} is no address ({error}): send the host that you call") from error


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes:
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise TooLargeError(limit)
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break  # the client has gone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:  # a body in chunks does not tell its length
            raise TooLargeError(limit)
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
