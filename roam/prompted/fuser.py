"""Views by prompt (paper equation 9, one call a fusion); use it behind the guard, as every fuser."""

from __future__ import annotations

from collections.abc import Sequence

from roam.llm.client import LLMClient, Unanswered
from roam.llm.usage import Usage
from roam.prompted.fusion_prompt import fusion_question
from roam.records import FusionRequest


class PromptedFuser:
    """A fuser that asks an LLM for each view. It proposes: a store checks what it says (`roam.fusion.guard`)."""

    def __init__(self, client: LLMClient) -> None:
        self.client = client
        self.name = f"prompted {client.settings.model}"

    @property
    def usage(self) -> Usage:
        """What the client has cost so far."""
        return self.client.usage

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """One view text a request; empty where no usable answer came, which the guard replaces by the rules' view."""
        answers = self.client.ask_many([fusion_question(request) for request in requests])
        return ["" if isinstance(answer, Unanswered) else answer for answer in answers]
