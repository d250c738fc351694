"""The cost of one episode under one manager, means over episodes, and agreement with gold labels."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from data.pairs import LabelledPair
from eval.bootstrap import interval, resample_weights
from eval.episodes import Episode
from eval.llm_server import LocalServer
from eval.methods import Method
from eval.metrics import decide
from eval.store_run import USER, Fact
from roam.interfaces import Embedder
from roam.llm import LLMClient, Usage
from roam.records import Observation, Pair
from roam.relations import RELATIONS, Relation
from roam.validation import parse_time

WARM_UP = Pair("The user has a kettle.", "The user owns a boat.")
AGREEMENT_CHUNK = 10  # pairs between two moves of the progress bar


@dataclass(frozen=True, slots=True)
class Cost:
    """What one episode took. Tokens are the LLM server's count; `shared_tokens` of the input were a prefix seen before.

    `cpu_seconds` is processor time of this process and of the server started for the run, which other programs on the
    machine do not lengthen; None where the server's is not known. `units` are the texts that can be retrieved at the
    end. `failed` and `unusable` are calls; both are in `llm_calls`.
    """

    episode: str
    facts: int
    units: int
    seconds: float
    cpu_seconds: float | None = None
    llm_calls: int = 0
    failed: int = 0
    unusable: int = 0
    given_up: int = 0
    forward_passes: int = 0
    pairs: int = 0
    input_tokens: int = 0
    shared_tokens: float = 0.0
    cached_tokens: int = 0
    output_tokens: int = 0

    def row(self, manager: str) -> dict[str, Any]:
        """One line of rows.jsonl."""
        return {"manager": manager, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Setup:
    """A manager ready to run; `client` is its LLM, None for one that asks none."""

    method: Method
    client: LLMClient | None
    embedder: Embedder
    k: int
    server: LocalServer | None = None

    def cpu(self) -> float:
        """Processor time so far: of this process, and of the server if the manager asks one; NaN if not known."""
        if self.client is None:
            return time.process_time()
        return time.process_time() + (math.nan if self.server is None else self.server.cpu_seconds())

    def warm(self) -> None:
        """Load what is loaded at first use, so that no episode pays for it."""
        self.embedder.embed([WARM_UP.old])
        if self.client is None:
            self.method.relation_model.predict_proba([WARM_UP])


def measure(setup: Setup, episodes: Sequence[Episode], label: str, *, batched: bool) -> list[Cost]:
    """The cost of each episode; `batched` gives a store all facts of an episode at once, else they come one by one."""
    from tqdm import tqdm

    return [_episode(setup, episode, batched) for episode in tqdm(episodes, desc=label, unit="episode", disable=None)]


def _episode(setup: Setup, episode: Episode, batched: bool) -> Cost:
    before = Usage() if setup.client is None else setup.client.usage.copy()
    facts = [Fact(memory.id, memory.text, memory.time) for memory in episode.memories]
    run = _run_store if setup.method.peer is None else _run_peer
    started, cpu = time.perf_counter(), setup.cpu()
    units, passes, pairs = run(setup, facts, batched)
    seconds, cpu = time.perf_counter() - started, setup.cpu() - cpu
    used = Usage() if setup.client is None else setup.client.usage.since(before)
    return Cost(
        episode=episode.id,
        facts=len(facts),
        units=units,
        seconds=seconds,
        cpu_seconds=None if math.isnan(cpu) else cpu,
        llm_calls=used.calls,
        failed=used.failed,
        unusable=used.unusable,
        given_up=used.given_up,
        forward_passes=passes,
        pairs=pairs,
        input_tokens=used.input_tokens,
        shared_tokens=used.shared_tokens,
        cached_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
    )


def _run_store(setup: Setup, facts: Sequence[Fact], batched: bool) -> tuple[int, int, int]:
    """Retrievable texts, forward passes of a local model, pairs judged."""
    from roam.memory import Memory

    method = setup.method
    observations = [Observation(fact.text, USER, parse_time(fact.time), id=fact.id) for fact in facts]
    with Memory.open(
        ":memory:", manager=method.relation_model, embedder=setup.embedder, fusion=method.fusion, k=setup.k
    ) as memory:
        for part in [observations] if batched else [[observation] for observation in observations]:
            memory.add_many(part)
        stats = memory.stats
        local = setup.client is None and method.name != "append"
        return len(memory.primaries(user=USER)), stats.forward_passes if local else 0, stats.pairs


def _run_peer(setup: Setup, facts: Sequence[Fact], batched: bool) -> tuple[int, int, int]:
    assert setup.method.peer is not None
    store = setup.method.peer.open(setup.embedder, setup.k)
    for fact in facts:
        store.add(fact)
    return len(store.units()), 0, 0


def summarise(costs: Sequence[Cost], seed: int) -> dict[str, Any]:
    """Means an episode, `input_after_reuse`, `shared_share` of the input, and a 95 % bootstrap interval of seconds."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(Cost) if field.name != "episode"):
        values = [getattr(cost, name) for cost in costs]
        found[name] = None if None in values else float(np.mean(values))
    seconds = np.array([cost.seconds for cost in costs])
    weights = resample_weights(len(costs), seed)
    found["seconds_interval"] = list(interval(weights @ seconds / weights.sum(axis=1)))
    found["input_after_reuse"] = found["input_tokens"] - found["shared_tokens"]
    found["shared_share"] = found["shared_tokens"] / found["input_tokens"] if found["input_tokens"] else None
    return found


def sample_pairs(pairs: Sequence[LabelledPair], per_relation: int) -> list[LabelledPair]:
    """The first `per_relation` pairs of each relation, in file order: the same for every model and run."""
    counts = dict.fromkeys(RELATIONS, 0)
    kept = []
    for pair in pairs:
        if counts[pair.label] < per_relation:
            counts[pair.label] += 1
            kept.append(pair)
    return kept


def agreement(setup: Setup, pairs: Sequence[LabelledPair], label: str) -> dict[str, Any]:
    """Share of pairs to which a relation model gives the gold relation, in all and by relation; seconds a pair."""
    from tqdm import tqdm

    found: list[Relation] = []
    started = time.perf_counter()
    with tqdm(total=len(pairs), desc=f"{label} pairs", unit="pair", disable=None) as bar:
        for start in range(0, len(pairs), AGREEMENT_CHUNK):
            part = [Pair(pair.old, pair.new) for pair in pairs[start : start + AGREEMENT_CHUNK]]
            rows = np.asarray(setup.method.relation_model.predict_proba(part), dtype=np.float64)
            found += [RELATIONS[column] for column in decide(rows)]
            bar.update(len(part))
    seconds = time.perf_counter() - started
    right = [label is pair.label for label, pair in zip(found, pairs, strict=True)]
    return {
        "accuracy": float(np.mean(right)),
        "by_relation": _by_relation(pairs, right),
        "seconds_per_pair": seconds / len(pairs),
    }


def _by_relation(pairs: Sequence[LabelledPair], right: Sequence[bool]) -> Mapping[str, float]:
    found = {}
    for relation in RELATIONS:
        marks = [mark for pair, mark in zip(pairs, right, strict=True) if pair.label is relation]
        if marks:
            found[str(relation)] = float(np.mean(marks))
    return found
