"""Memory management by prompting an LLM: what the distilled manager replaces, behind the same interfaces."""

from __future__ import annotations

from roam.fusion.guard import GuardedFuser
from roam.llm.client import LLMClient
from roam.managers import Manager
from roam.prompted.extractor import Extraction, PromptedExtractor, Turn
from roam.prompted.fuser import PromptedFuser
from roam.prompted.relation_model import PromptedRelationModel

__all__ = ["Extraction", "PromptedExtractor", "PromptedFuser", "PromptedRelationModel", "Turn", "prompted_manager"]


def prompted_manager(client: LLMClient) -> Manager:
    """The prompted ROAM manager: one call a judged candidate, one a fusion (paper section 2.2).

    Use it as `Memory.open(path, manager=prompted_manager(client), fusion="manager")`. Views are checked by rules alone:
    the relation model is not asked whether a view entails its inputs, as each such pair would be a further call.
    """
    return Manager(PromptedRelationModel(client), GuardedFuser(PromptedFuser(client)))
