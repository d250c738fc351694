"""Rules for episodes of the controlled benchmark: what a confounder may say, and what an episode file must hold.

A confounder must not help to answer (paper, appendix F.1): Type I is like the question and gives neither the answer nor
an alternative to it; Type II gives a value that was true before the current one. The lexical rules look for the answer
and for gold facts in the text; the embedding rule catches a gold fact in other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.episodes import Episode, EpisodeMemory, MemoryRole
from eval.stated import normalise, states, terms
from roam.interfaces import Embedder

POOL = 8
"""Confounders of a question, fixed for all methods (appendix F.1)."""
LEAK_COSINE = 0.95
"""Cosine to a gold fact at which a Type I confounder counts as that fact in other words. Type II is meant to be close
to the gold fact, from which only its value differs, so the rule is not for it."""
MIN_BACKGROUND = 6
COPY_OVERLAP = 0.8
"""Shared part of the content words (Jaccard) at which a sentence counts as taken over from another file."""
KNOWLEDGE_UPDATE = "knowledge-update"
MIN_WORDS = 5
"""Sentences with fewer content words are not compared with other files: short ones coincide by chance."""


def type_of(question_type: str) -> str:
    """The confounder type of a question: obsolete values for knowledge updates, similar memories for all others."""
    return "II" if question_type == KNOWLEDGE_UPDATE else "I"


def gives_answer(text: str, answer: str) -> bool:
    """Whether `text` states the answer: literally as whole words, or all its names and numbers and most other words.

    The second rule is for answers of two words or more: one word inside another ("4" in "14") says nothing.
    """
    short = normalise(answer).strip(" .!?")
    if not short:
        return False
    exact, content = terms(answer)
    whole = re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(short)}(?!\w|[.,]\d)", normalise(text))
    return whole is not None or (len(exact | content) > 1 and states(text, answer))


def names_answer(memory: EpisodeMemory, episode: Episode) -> bool:
    """Whether a memory states the answer of its episode.

    A question that offers the answer itself ("which came first, A or B?") gives nothing away by naming it again.
    """
    return gives_answer(memory.text, episode.answer) and not gives_answer(episode.question, episode.answer)


def lexical_leak(memory: EpisodeMemory, episode: Episode) -> str | None:
    """Why a confounder may not be used, by its words and its time; None when it may."""
    expected = type_of(episode.question_type)
    if memory.type != expected:
        return f"confounder type {memory.type!r}, where {episode.question_type} questions take type {expected}"
    gold = [other for other in episode.memories if other.role is MemoryRole.GOLD]
    if names_answer(memory, episode):
        return "states the answer"
    for other in gold:
        if states(memory.text, other.text):
            return f"states the gold memory {other.id}"
    if memory.type == "II" and not memory.time < max(other.time for other in gold):
        return "an obsolete value must be dated before the latest gold memory"
    same = normalise(memory.text)
    for other in episode.memories:
        if other.id != memory.id and normalise(other.text) == same and (
            other.role is not MemoryRole.CONFOUNDER or other.id < memory.id
        ):  # fmt: skip
            return f"the same text as {other.id}"
    return None


def embedding_leak(memory: EpisodeMemory, episode: Episode, vectors: Mapping[str, NDArray[np.float32]]) -> str | None:
    """Why a Type I confounder is a gold fact in other words, by the cosine of its vector; None when it is not."""
    if memory.type == "II":
        return None
    for other in episode.memories:
        if other.role is MemoryRole.GOLD:
            cosine = float(vectors[memory.text] @ vectors[other.text])
            if cosine >= LEAK_COSINE:
                return f"cosine {cosine:.2f} to the gold memory {other.id}"
    return None


def vectors_of(episodes: Sequence[Episode], embedder: Embedder) -> dict[str, NDArray[np.float32]]:
    """L2-normalised vectors of all questions and memories by text."""
    texts = list(dict.fromkeys(t for e in episodes for t in (e.question, *(m.text for m in e.memories))))
    return dict(zip(texts, embedder.embed(texts), strict=True))


def episode_problems(episode: Episode) -> Iterator[str]:
    """What is wrong with a finished episode, in words, apart from what needs an encoder."""
    roles = {role: [m for m in episode.memories if m.role is role] for role in MemoryRole}
    confounders, background = roles[MemoryRole.CONFOUNDER], roles[MemoryRole.BACKGROUND]
    if len(confounders) != POOL:
        yield f"{len(confounders)} confounders: give exactly {POOL}"
    if len(background) < MIN_BACKGROUND:
        yield f"{len(background)} background memories: give at least {MIN_BACKGROUND}"
    if not episode.answer.strip():
        yield "no answer"
    for memory in episode.memories:
        if (memory.type is None) is (memory.role is MemoryRole.CONFOUNDER):
            yield f"{memory.id}: ctype {memory.type!r} on a {memory.role} memory: confounders have I or II, others null"
        if memory.role is MemoryRole.BACKGROUND and names_answer(memory, episode):
            yield f"{memory.id}: a background memory that states the answer"
    for memory in confounders:
        reason = lexical_leak(memory, episode)
        if reason:
            yield f"{memory.id}: {reason}"


def unanswerable(episode: Episode) -> bool:
    """Whether no gold memory holds the answer's words: right for answers that are worked out, wrong for all others."""
    exact, content = terms(episode.answer)
    gold = [m.text for m in episode.memories if m.role is MemoryRole.GOLD]
    present = frozenset().union(*(part for text in gold for part in terms(text)))
    return not ((exact | content) & present) and not any(gives_answer(text, episode.answer) for text in gold)


def copied(episodes: Sequence[Episode], others: Sequence[Episode]) -> Iterator[str]:
    """Memories and questions that share most of their content words with a sentence of other files."""
    known = [(e.id, words) for e in others for text in _sentences(e) if len(words := _words(text)) >= MIN_WORDS]
    for episode in episodes:
        for text in _sentences(episode):
            words = _words(text)
            if len(words) < MIN_WORDS:
                continue
            for identifier, theirs in known:
                if len(words & theirs) >= COPY_OVERLAP * len(words | theirs):
                    yield f"{episode.id}: {text!r:.60} says what {identifier} of another file says"
                    break


def _sentences(episode: Episode) -> list[str]:
    return [episode.question, *(memory.text for memory in episode.memories)]


def _words(text: str) -> frozenset[str]:
    return frozenset().union(*terms(text))
