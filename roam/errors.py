"""Typed errors. Every message says what was got, what is allowed and what to do next."""

from __future__ import annotations


class RoamError(Exception):
    """Base of all errors this project raises on purpose; the command line maps it to exit code 2."""


class InputError(RoamError, ValueError):
    """A public entry point got a value it cannot take (text, time, user, budget, ...)."""


class LabelError(InputError):
    """A relation name that is not one of the five."""


class DataError(RoamError, ValueError):
    """A data file with malformed, contradictory or missing content."""


class ConfigError(RoamError, ValueError):
    """An unknown or ill-typed configuration key."""


class AdapterError(RoamError):
    """An adapter folder that is incomplete or does not fit the base, the labels or its own probes."""


class ExportError(RoamError):
    """An exported model that can't be made, is damaged or foreign, or does not answer as its adapter does."""


class BaseModelError(RoamError):
    """Base weights that cannot be found or whose content hash differs."""


class TrainingError(RoamError):
    """A training run that must stop: NaN loss, one-class collapse, an incompatible checkpoint."""


class LLMError(RoamError):
    """An LLM endpoint that cannot be worked with: nobody there, a wrong key, an unknown model."""


class StoreError(RoamError):
    """A store that cannot be opened, is of a newer schema, is corrupt, or belongs to another embedder."""


class NotFoundError(StoreError, KeyError):
    """An id that the store does not hold for this user."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0]) if self.args else ""
