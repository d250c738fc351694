"""The real package `mem0ai`, in its last release that manages, as a peer fed the same atoms (`--managers mem0ai`).

Its extraction call is answered with the atom itself; what it then decides (add, update, delete, none) is its own
prompt, answered by the LLM that all prompted managers here use, so its calls and tokens are counted in the same way.
What it drops is dropped: it is a measurement of the package as it is.

    pip install mem0ai==1.0.11
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from eval.peers.coverage import represented
from eval.peers.mem0_prompt import SCHEMA, TOKENS_PER_MEMORY
from eval.peers.store import Unit
from eval.store_run import USER, Fact
from roam.errors import InputError
from roam.interfaces import Embedder
from roam.llm.client import LLMClient, Question, Unanswered
from roam.llm.usage import Usage

VERSION: Final = "1.0.11"
SHOWN: Final = 5  # memories that the package looks up for a fact
MOST: Final = 10_000  # memories listed at the end


class Mem0Package:
    """`mem0ai` with on-disk Qdrant in a temporary folder, telemetry off, and our embedder and LLM."""

    def __init__(self, client: LLMClient) -> None:
        """Raises `InputError` when the package is missing or of another version."""
        try:
            version = metadata.version("mem0ai")
        except metadata.PackageNotFoundError:
            version = "not there"
        if version != VERSION:
            raise InputError(
                f"--managers mem0ai needs mem0ai=={VERSION}, the last release that decides updates, not {version!r}: "
                f"pip install mem0ai=={VERSION} (in an environment of its own, as it pins other packages)"
            )
        self.client = client

    @property
    def digest(self) -> str:
        """Version and model."""
        return f"mem0ai-{VERSION}:{self.client.settings.model}"

    @property
    def usage(self) -> Usage:
        """What the client has cost so far."""
        return self.client.usage

    def open(self, embedder: Embedder, k: int) -> Mem0PackageStore:
        """An empty store; how many memories are shown (`k`) is the package's own choice."""
        return Mem0PackageStore(self.client, embedder)


class _Llm:
    """Stands where the package keeps its LLM: the atom for the extraction call, our client for the decision."""

    def __init__(self, client: LLMClient) -> None:
        self.client, self.atom = client, ""

    def generate_response(self, messages: Sequence[Mapping[str, str]], *_: object, **__: object) -> str:
        """The text of an answer; empty where none came, which the package takes for no operation."""
        if messages[0]["role"] == "system":  # only the extraction call has rules of its own
            return json.dumps({"facts": [self.atom]})
        question = Question(tuple(messages), str, SCHEMA, TOKENS_PER_MEMORY * (SHOWN + 1))
        answer = self.client.ask(question)
        return "" if isinstance(answer, Unanswered) else answer


class _Embedding:
    """Stands where the package keeps its encoder."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def embed(self, text: str, *_: object, **__: object) -> list[float]:
        """The vector of one text."""
        return [float(value) for value in self.embedder.embed([text])[0]]


class Mem0PackageStore:
    """One user's memories in the package."""

    def __init__(self, client: LLMClient, embedder: Embedder) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mem0-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        os.environ["MEM0_TELEMETRY"] = "False"  # read at import
        os.environ.setdefault("MEM0_DIR", str(folder / "settings"))
        package: Any = importlib.import_module("mem0")
        offline = {"provider": "openai", "config": {"api_key": "none"}}  # made, and replaced below
        self._memory: Any = package.Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {
                        "path": str(folder / "qdrant"),
                        "on_disk": True,
                        "collection_name": "facts",
                        "embedding_model_dims": embedder.dimension,
                    },
                },
                "history_db_path": str(folder / "history.db"),
                "llm": offline,
                "embedder": offline,
            }
        )
        weakref.finalize(self, self._memory.vector_store.client.close)  # it complains when the interpreter closes it
        self._llm = _Llm(client)
        self._memory.llm, self._memory.embedding_model = self._llm, _Embedding(embedder)
        self._lineage: dict[str, dict[str, str]] = {}
        self._anchor: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def add(self, fact: Fact) -> None:
        """Hand the fact to the package, and note which of its memories it wrote."""
        self._llm.atom = fact.text
        self._texts[fact.id] = fact.text
        done = self._memory.add(fact.text, user_id=USER)
        for entry in done.get("results", []):
            identifier, event = str(entry.get("id")), str(entry.get("event"))
            if event in ("ADD", "UPDATE"):
                self._lineage.setdefault(identifier, {})[fact.id] = fact.text
                self._anchor[identifier] = fact.id

    def units(self) -> list[Unit]:
        """The memories, each with the facts of its lineage that its text still represents (appendix F.2).

        A fact that no memory was written for ("already there") counts where the text of a memory represents it.
        """
        written = {fact for lineage in self._lineage.values() for fact in lineage}
        unwritten = {id: text for id, text in self._texts.items() if id not in written}
        found = self._memory.get_all(user_id=USER, limit=MOST).get("results", [])
        units = []
        for entry in found:
            identifier, text = str(entry["id"]), str(entry["memory"])
            lineage = self._lineage.get(identifier, {}) | unwritten
            members = represented(text, lineage)
            anchor = self._anchor.get(identifier) or (members[0] if members else "")
            units.append(Unit(text, anchor, members))
        return units
