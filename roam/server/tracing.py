"""OpenTelemetry spans, where its package is installed. They go nowhere unless the environment names a collector."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from roam.errors import ConfigError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
FLUSH_MS = 5_000
"""How long the end waits for a collector that does not answer."""


class Span(Protocol):
    """What a span is told while it runs."""

    def set_attribute(self, key: str, value: Any) -> Any: ...


class Tracing(Protocol):
    """Makes spans."""

    def request(self, method: str, headers: Mapping[str, str]) -> AbstractContextManager[Span]:
        """Span of one request; the caller's trace goes on in it."""
        ...

    def span(self, name: str, **attributes: int | str) -> AbstractContextManager[Span]:
        """Span of one step within."""
        ...

    def flush(self) -> None:
        """Send what has not been sent: a signal may end the process before anything else does it."""
        ...


class _Nothing:
    def set_attribute(self, key: str, value: Any) -> None:
        pass


class NoTracing:
    """Spans that cost nothing."""

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[Span]:
        yield _Nothing()

    @contextmanager
    def span(self, name: str, **attributes: int | str) -> Iterator[Span]:
        yield _Nothing()

    def flush(self) -> None:
        pass


class OpenTelemetry:
    """Spans of the global tracer provider: whatever the program, or `export_from_environment`, has set up."""

    def __init__(self) -> None:
        from opentelemetry import propagate, trace

        self._propagate, self._trace = propagate, trace
        self._tracer = trace.get_tracer("roam.server")

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[Span]:
        context = self._propagate.extract(headers)
        with self._tracer.start_as_current_span(method, context=context, kind=self._trace.SpanKind.SERVER) as span:
            span.set_attribute("http.request.method", method)
            yield span

    @contextmanager
    def span(self, name: str, **attributes: int | str) -> Iterator[Span]:
        with self._tracer.start_as_current_span(name, attributes=attributes) as span:
            yield span

    def flush(self) -> None:
        # The API alone has no providers that keep spans back.
        flush = getattr(self._trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(FLUSH_MS)


def find_tracing() -> Tracing:
    """Return OpenTelemetry's spans where its API is installed, else none."""
    return OpenTelemetry() if importlib.util.find_spec("opentelemetry") is not None else NoTracing()


def export_from_environment(environment: Mapping[str, str] = os.environ) -> bool:
    """Send spans to the collector that OpenTelemetry's own variables name; without one nothing is set up.

    Raises:
        ConfigError: a collector is named, but the packages that talk to it are not installed.
    """
    if not any(environment.get(name) for name in ENDPOINTS):
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{ENDPOINTS[0]} names a collector, but {error.name} is not installed: pip install 'roam-distilled[otel]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": environment.get("OTEL_SERVICE_NAME", "roam")}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True
