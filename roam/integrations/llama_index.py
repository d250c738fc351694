"""`RoamMemoryBlock`: the store as a LlamaIndex memory block (package llama-index-core, 0.13 and later).

    from llama_index.core.memory import Memory as ChatMemory
    from roam import Memory
    from roam.integrations.llama_index import RoamMemoryBlock

    block = RoamMemoryBlock(memory=Memory.open("memory.db"), user="maya")
    chat = ChatMemory.from_defaults(session_id="maya", memory_blocks=[block])

Messages that leave the short-term window are stored as facts; what the last message asks for comes back within a budget
of tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory import BaseMemoryBlock


def users_words(messages: Sequence[ChatMessage]) -> list[str]:
    """Return each text of the user as one fact."""
    return [message.content for message in messages if message.role == MessageRole.USER and message.content]


class RoamMemoryBlock(BaseMemoryBlock[str]):
    """Long-term memory of one user."""

    name: str = Field(default="long_term_memory", description="Name of the block in the prompt.")
    memory: Any = Field(exclude=True, description="An open roam.Memory; it is not closed by the block.")
    user: str = Field(description="Whose memory; matched exactly.")
    budget: int = Field(default=256, gt=0, description="Most tokens of the block.")
    extract: Callable[[Sequence[ChatMessage]], Sequence[str]] = Field(
        default=users_words, exclude=True, description="Makes facts of messages."
    )

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Return what the last message of the user asks for; nothing without one."""
        asked = users_words(messages or [])
        if not asked:
            return ""
        found = await asyncio.to_thread(self.memory.search, asked[-1], user=self.user, budget=self.budget)
        return str(found.context)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Store the facts of messages."""
        facts = [{"text": fact, "user": self.user} for fact in self.extract(messages)]
        if facts:
            await asyncio.to_thread(self.memory.add_many, facts)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Drop whole lines from the end, where the least similar views are; a word counts as one token at least."""
        lines, dropped = content.split("\n"), 0
        while lines and dropped < tokens_to_truncate:
            dropped += len(lines.pop().split())
        return "\n".join(lines) or None
