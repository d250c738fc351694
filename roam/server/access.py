"""Who calls, and what of: the key of a request, its rate, and the store of its tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from roam.server.context import Context
from roam.server.keys import LOCAL, Key
from roam.server.problems import ForbiddenError, UnauthenticatedError
from roam.server.stores import OpenStore
from roam.validation import clean_user

_bearer = HTTPBearer(auto_error=False, description="A key that `roam key` made.")


@dataclass(frozen=True, slots=True)
class Caller:
    """The key that a request came with, and the store it works on."""

    key: Key
    store: OpenStore

    def user(self, name: str) -> str:
        """Return a user's name, once checked.

        Raises:
            InputError: a name that no user can have.
            ForbiddenError: a user that the key was not made for.
        """
        user = clean_user(name)
        if not self.key.may_touch(user):
            raise ForbiddenError(f"the key {self.key.name!r} was not made for user {user!r}: use that user's key")
        return user


def context_of(request: Request) -> Context:
    """Return what the application shares between requests."""
    context: Context = request.app.state.context
    return context


async def _key(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Key:
    context = context_of(request)
    address = f"address {request.client.host if request.client else ''}"
    if context.keys is None:
        context.rate.take(address)
        return LOCAL
    key = None if credentials is None else context.keys.find(credentials.credentials)
    # A flood of bad keys is slowed down by where it comes from, which costs no good key its own rate.
    context.rate.take(address if key is None else f"key {key.name}")
    if key is None:
        raise UnauthenticatedError
    return key


async def _caller(request: Request, key: Annotated[Key, Depends(_key)]) -> Caller:
    return Caller(key, await context_of(request).stores.get(key.tenant))


async def _operator(key: Annotated[Key, Depends(_key)]) -> Key:
    if not key.operator:
        raise ForbiddenError(f"the key {key.name!r} is no operator's: make one with `roam key NAME --operator`")
    return key


AnyKey = Annotated[Key, Depends(_key)]
Operator = Annotated[Key, Depends(_operator)]
CallerOf = Annotated[Caller, Depends(_caller)]
Shared = Annotated[Context, Depends(context_of)]
