"""One client for every OpenAI-compatible endpoint: vLLM, llama.cpp, Ollama, hosted services.

The package `openai` (extra `llm`) is imported at the first request, never before.
"""

from roam.llm.cache import ReplyCache
from roam.llm.client import LLMClient, Message, Question, Unanswered
from roam.llm.settings import LLMSettings, OutputMode
from roam.llm.usage import PrefixMeter, Usage

__all__ = ["LLMClient", "LLMSettings", "Message", "OutputMode", "PrefixMeter", "Question", "ReplyCache", "Unanswered",
           "Usage"]  # fmt: skip
