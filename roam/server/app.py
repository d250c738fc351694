"""The application: endpoints, errors in one form, the inspector, and an orderly start and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from roam import __version__
from roam.errors import RoamError
from roam.interfaces import RelationModel
from roam.server.context import Context
from roam.server.keys import KeyRing
from roam.server.limits import RateLimit, Waiting
from roam.server.metrics import Metrics
from roam.server.middleware import Guard, problem_response
from roam.server.passes import SharedPasses
from roam.server.problems import HttpError, status_of
from roam.server.routes import router
from roam.server.settings import Settings
from roam.server.stores import OpenMemory, Stores
from roam.server.tracing import Tracing, find_tracing

log = logging.getLogger("roam.server")
STATIC = Path(__file__).parent / "static"


def create_app(
    open_memory: OpenMemory, model: RelationModel, settings: Settings | None = None, *, tracing: Tracing | None = None
) -> FastAPI:
    """Return the application over the stores that `open_memory` opens.

        model = SharedPasses(load_manager().relation_model)
        app = create_app(lambda path: Memory.open(path, manager=model), model, Settings(db="memory.db"))

    Args:
        open_memory: opens the store at a path; called twice for each store, for a writer and for a reader.
        model: what /v1/relations asks. Hand a `SharedPasses` to both, so that all requests share passes.
        tracing: None finds OpenTelemetry where it is installed.

    Raises:
        ConfigError: a key file that cannot be read, or that names tenants while all keys share one store.
    """
    chosen = settings or Settings()
    shared = model if isinstance(model, SharedPasses) else SharedPasses(model)
    metrics, spans = Metrics(), tracing or find_tracing()
    shared.observe = metrics.observe_pass
    shared.span = lambda pairs: spans.span("roam.classify", pairs=pairs)
    keys = None if chosen.keys is None else KeyRing(chosen.keys)
    for tenant in () if keys is None else keys.tenants():
        chosen.store_of(tenant)  # a tenant without a store is refused now, not at its first request
    stores = Stores(open_memory, chosen, metrics)
    metrics.watch(stores.stats, stores.waiting)
    rate, waiting = RateLimit(chosen.rate, chosen.burst), Waiting(chosen.max_waiting)
    context = Context(chosen, shared, stores, keys, rate, waiting, metrics, spans)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        try:
            await stores.close()
        finally:
            await asyncio.to_thread(spans.flush)

    app = FastAPI(
        title="ROAM distilled",
        version=__version__,
        description="Long-term memory for agents, managed by a small relation classifier instead of LLM calls.",
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from a content network; /openapi.json is here
        redoc_url=None,
        # FastAPI's own spans hold the query, which names users; earlier versions ignore this.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.context = context
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_api_route("/", _inspector, include_in_schema=False)
    app.add_exception_handler(RoamError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)
    app.add_middleware(Guard, context=context)
    if keys is None:
        _without_keys(app)
    return app


async def _inspector() -> FileResponse:
    return FileResponse(STATIC / "index.html")


def _id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RoamError)
    status, message = status_of(error), str(error)
    context: Context = request.app.state.context
    if status == 503 and not isinstance(error, HttpError):
        log.error("%s %s: %s", _id(request), type(error).__name__, message)
        if context.keys is not None:  # it names files and hosts of the operator, which callers need not know
            message = "the server cannot do this at present: its operator finds the cause in the log by the request_id"
    return problem_response(error, message, status, _id(request))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # What was sent is not repeated: it may be personal, and need not be text at all.
    details = [
        {"where": ".".join(str(part) for part in entry["loc"]), "message": str(entry["msg"])}
        for entry in error.errors()
    ]
    message = "; ".join(f"{entry['where']}: {entry['message']}" for entry in details[:5])
    return problem_response(error, message, 422, _id(request), details=details)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = problem_response(error, str(error.detail), error.status_code, _id(request))
    response.headers.update(error.headers or {})
    if error.status_code == 405:  # the router knows the methods of one endpoint only
        routes = (route for route in router.routes if isinstance(route, APIRoute) and route.path == request.url.path)
        methods = {method for route in routes for method in route.methods or ()}
        if methods:
            response.headers["Allow"] = ", ".join(sorted(methods))
    return response


async def _failed(request: Request, error: Exception) -> Response:
    log.exception("%s failed", _id(request), exc_info=error)
    message = "the server failed on this request: report it with the request_id"
    return problem_response(error, message, 500, _id(request))


def _without_keys(app: FastAPI) -> None:
    """A server for this machine asks for no key, and its OpenAPI must say so."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema.get("components", {}).pop("securitySchemes", None)
        for path in schema["paths"].values():
            for operation in path.values():
                operation.pop("security", None)
                for code in ("401",):
                    operation["responses"].pop(code, None)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
