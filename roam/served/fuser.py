"""The fuser in a server: a LoRA module of vLLM, asked through the completions endpoint with the prompt of training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from roam.fusion.model import fuser_name, read_fuser_card
from roam.llm.settings import LLMSettings
from roam.prompts import VIEW_TOKENS, fusion_prompt
from roam.records import FusionRequest
from roam.served.endpoint import Endpoint, malformed

REQUEST_VIEWS: Final = 32  # prompts a request


class VllmFuser:
    """A trained fuser behind vLLM. It proposes: use it behind the guard, as every fuser.

    `settings.model` is the name that --lora-modules gave the adapter, not that of the base, which would answer too.
    """

    def __init__(self, settings: LLMSettings, folder: str | Path) -> None:
        """`folder` is the adapter that vLLM serves; raises `AdapterError` unless it was trained on this prompt."""
        card = read_fuser_card(Path(folder))
        self.endpoint, self.card = Endpoint(settings), card
        self.name = f"{fuser_name(card)} on vllm"

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """One view text a request; empty where the model did not come to an end. Raises `LLMError`."""
        prompts = [fusion_prompt(request) for request in requests]
        parts = [prompts[start : start + REQUEST_VIEWS] for start in range(0, len(prompts), REQUEST_VIEWS)]
        return [view for views in self.endpoint.each(parts, self._views) for view in views]

    def _views(self, prompts: Sequence[str]) -> list[str]:
        settings = self.endpoint.settings
        reply = self.endpoint.call(
            lambda client: client.completions.create(
                model=settings.model, prompt=list(prompts), max_tokens=VIEW_TOKENS, temperature=0.0, seed=settings.seed
            )
        )
        choices = sorted(reply.choices or [], key=lambda choice: choice.index)
        if [choice.index for choice in choices] != list(range(len(prompts))):
            raise malformed(settings, f"{len(choices)} views to {len(prompts)} prompts")
        return [choice.text.strip() if choice.finish_reason == "stop" else "" for choice in choices]
