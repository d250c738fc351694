"""What goes wrong over HTTP: typed errors with a status, and one JSON form for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from roam.errors import (
    AdapterError,
    BaseModelError,
    ConfigError,
    ExportError,
    LLMError,
    NotFoundError,
    RoamError,
    StoreError,
)


class Problem(BaseModel):
    """Body of every answer that is no success."""

    error: str = Field(description="Name of the error, for programs.", examples=["InputError"])
    message: str = Field(description="What was got, what is allowed, what to do next.")
    request_id: str = Field(description="Also in the header X-Request-Id and in the server's log.")
    details: list[dict[str, str]] = Field(default_factory=list, description="Fields that a request has wrong.")


class HttpError(RoamError):
    """A refusal that only a server makes."""

    status = 400
    headers: Mapping[str, str] = {}


class UnauthenticatedError(HttpError):
    """No API key, or one that is unknown or revoked."""

    status = 401
    headers: Mapping[str, str] = {"WWW-Authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__("no valid API key: send `Authorization: Bearer KEY` with a key that `roam key` made")


class ForbiddenError(HttpError):
    """A key that may not do this."""

    status = 403


class TooLargeError(HttpError):
    """A body over the limit."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has over {limit} bytes, which is the most that is taken: send it in parts")


class TooManyError(HttpError):
    """More requests than the key's rate allows."""

    status = 429

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many requests: repeat in {seconds:.1f} s")
        self.headers = {"Retry-After": str(max(1, round(seconds + 0.5)))}


class BusyError(HttpError):
    """Too much waits already: facts to be written, or pairs to be classified."""

    status = 503
    headers: Mapping[str, str] = {"Retry-After": "1"}

    def __init__(self, waiting: int, what: str = "facts wait to be written") -> None:
        super().__init__(f"{waiting} {what} already, nothing of this request was done: repeat it")


class StoppingError(HttpError):
    """The server is about to stop."""

    status = 503
    headers: Mapping[str, str] = {"Retry-After": "5"}

    def __init__(self) -> None:
        super().__init__("the server stops, nothing of this request was stored: repeat it")


STATUSES: Sequence[tuple[type[RoamError], int]] = (
    (NotFoundError, 404),
    (StoreError, 503),
    (AdapterError, 503),
    (BaseModelError, 503),
    (ExportError, 503),
    (LLMError, 503),
    (ConfigError, 503),  # the key file was broken while the server ran
)


def status_of(error: RoamError) -> int:
    """Return the HTTP status of an error; 422 where the request is at fault."""
    if isinstance(error, HttpError):
        return error.status
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 422)
