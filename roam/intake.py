"""From what callers hand in to checked observations, and from names to managers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from roam.errors import InputError
from roam.interfaces import Embedder, Fuser, RelationModel
from roam.records import Observation
from roam.validation import clean_id, clean_source, clean_text, clean_user, parse_time

_FIELDS = tuple(field.name for field in fields(Observation) if field.name != "sequence")
FUSIONS = ("auto", "deterministic", "manager", "off", "pretrained")


@dataclass(frozen=True, slots=True)
class Parts:
    """The relation model, fuser (None: views are atomic texts) and embedder of an open store."""

    relation_model: RelationModel
    fuser: Fuser | None
    embedder: Embedder


def make_observation(
    text: object, user: object, observed_at: object = None, source: object = None, id: object | None = None
) -> Observation:
    """Return a checked observation with an id; raises `InputError`."""
    return Observation(
        text=clean_text(text),
        user=clean_user(user),
        observed_at=parse_time(observed_at),
        source=clean_source(source),
        id=clean_id(id),
    )


def make_observations(items: Iterable[Observation | Mapping[str, object]]) -> list[Observation]:
    """Return checked observations; the error names the position of the first bad one, and nothing is stored."""
    if isinstance(items, (str, bytes, Mapping, Observation)):
        raise InputError(f"observations is one {type(items).__name__}: give an iterable of observations or mappings")
    checked: list[Observation] = []
    for position, item in enumerate(items):
        try:
            checked.append(_one(item))
        except InputError as error:
            raise InputError(f"observation {position}: {error}") from error
    ids = [observation.id for observation in checked]
    if len(set(ids)) != len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise InputError(f"id {twice!r} occurs twice in one batch: ids are unique")
    return checked


def _one(item: object) -> Observation:
    if isinstance(item, Observation):
        return make_observation(item.text, item.user, item.observed_at, item.source, item.id or None)
    if not isinstance(item, Mapping):
        raise InputError(f"{type(item).__name__} {item!r:.80}: give an Observation or a mapping with text and user")
    for key in item:
        if key not in _FIELDS:
            nearest = difflib.get_close_matches(str(key), _FIELDS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise InputError(f"unknown key {key!r}: use {', '.join(_FIELDS)}{hint}")
    for key in ("text", "user"):
        if key not in item:
            raise InputError(f"no {key!r}: give at least text and user")
    return make_observation(item["text"], item["user"], item.get("observed_at"), item.get("source"), item.get("id"))


def resolve_parts(manager: object, fusion: object, embedder: Embedder | None) -> Parts:
    """Return what a store runs on. `manager` is "pretrained", an adapter folder, a manager or a bare relation model.

    Raises:
        InputError: something that is none of these, or an unknown `fusion`.
        AdapterError, BaseModelError: an adapter or base weights that cannot be loaded.
    """
    if isinstance(manager, (str, Path)):
        from roam.managers import load_manager

        manager = load_manager(manager)
    model = getattr(manager, "relation_model", manager)
    if not isinstance(model, RelationModel):
        raise InputError(
            f"manager is {type(manager).__name__}: give 'pretrained', an adapter folder, an object with relation_model "
            "and fuser, or a relation model with digest, thresholds and predict_proba"
        )
    fuser = _resolve_fuser(manager, fusion)
    if embedder is None:
        from roam.embedders import load_embedder

        embedder = load_embedder()
    if not isinstance(embedder, Embedder):
        raise InputError(f"embedder is {type(embedder).__name__}: give an object with digest, dimension, embed, ...")
    return Parts(model, fuser, embedder)


def _resolve_fuser(manager: object, fusion: object) -> Fuser | None:
    if fusion == "off":
        return None
    if isinstance(fusion, Fuser):
        return fusion
    if fusion == "manager":
        fuser = getattr(manager, "fuser", None)
        if not isinstance(fuser, Fuser):
            raise InputError(
                f"fusion='manager', but {type(manager).__name__} has no fuser: use 'deterministic' or 'off'"
            )
        return fuser
    if fusion in ("auto", "deterministic", "pretrained"):
        from roam.fusion import DeterministicFuser
        from roam.managers import AUTO_FUSION, SHIPPED_FUSER

        if (AUTO_FUSION if fusion == "auto" else fusion) == "deterministic":
            return DeterministicFuser()
        if not SHIPPED_FUSER.is_dir():
            raise InputError(
                "fusion is 'pretrained', but this version ships no fuser adapter: use 'deterministic', or the "
                "folder of one that training.fuser saved"
            )
        fusion = SHIPPED_FUSER
    if isinstance(fusion, (str, Path)) and Path(fusion).is_dir():
        from roam.fusion.model import LazyFuser

        return LazyFuser(Path(fusion))
    raise InputError(f"fusion is {fusion!r}: use one of {', '.join(FUSIONS)}, an adapter folder or a fuser")
