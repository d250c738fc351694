"""MEME after the change: chains of updates, deletions, stale answers, and retrieval by question type (Table 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eval.benchmark_controlled import reference
from eval.benchmark_questions import measured, question_entries
from eval.benchmark_runner import Runner
from eval.benchmark_updates import is_stated, judged_as
from eval.diagnostics import RetainedUnit
from eval.meme_episodes import MemeEpisode
from eval.methods import Method
from eval.shares import paired_shares, summarise_shares
from eval.store_run import Question, StoreRun, run_store

SHARES = ("superseded_demoted", "chains_current", "deleted_demoted", "untouched_primary", "stale_answer")


def run_meme(
    episodes: Sequence[MemeEpisode], methods: Sequence[Method], runner: Runner
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]:
    """Return (report entries, one row a method, budget and question, seconds an episode by method).

    Beside the diagnostics of the questions, shares over all episodes at each budget:

    - superseded_demoted: atoms that an update or change replaced and that are not Primary.
    - chains_current: chains of such atoms whose last one is Primary and stands for all the others.
    - deleted_demoted: atoms that a deletion asked to remove and that are not Primary.
    - untouched_primary: plain facts that nothing replaces and that are Primary.
    - stale_answer: questions about something that changed where the context states an outdated atom and none of those
      that say it is outdated (`outdated_by`).
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for method in methods:

        def work(episode: MemeEpisode, method: Method = method) -> Mapping[str, Any]:
            stream = episode.stream
            texts = [question.text for question in stream.questions]
            store = run_store(stream.facts, texts, method, runner.embedder, runner.settings)
            return measured(stream, store, runner.answerer) | _chains(episode, store, runner.settings.budgets)

        found[method.name] = runner.results("meme", episodes, method, work)
    entries, rows, seconds = question_entries(found, methods, runner)
    groups = [episode.stream.id for episode in episodes]
    best, first = reference([method.name for method in methods]), runner.settings.budgets[0]
    for cell in entries["cells"]:
        shares = [result["shares"][str(cell["budget"])] for result in found[cell["manager"]]]
        cell["chains"] = summarise_shares(shares, groups, runner.seed)
    for pair in entries["comparisons"]:
        one, two = ([r["shares"][str(pair["budget"])] for r in found[name]] for name in (best, pair["other"]))
        pair["differences"] |= paired_shares(one, two, groups, runner.seed)
    for method in methods:
        entry = next(c for c in entries["cells"] if c["manager"] == method.name and c["budget"] == first)
        judged: Counter[str] = Counter()
        for result in found[method.name]:
            judged.update(result["stayed_judged"])
        entries["managers"][method.name] |= {
            "chains": entry["chains"], "superseded_stayed_judged": dict(sorted(judged.items()))
        }  # fmt: skip
    entries["unsupported_questions"] = sum(episode.unsupported for episode in episodes)
    return entries, rows, seconds


def _chains(episode: MemeEpisode, store: StoreRun, budgets: Sequence[int]) -> dict[str, Any]:
    primary_of = store.primary_of
    replaced = [(old, new) for new, old in episode.supersedes.items() if episode.kinds[new] != "delete"]
    deleted, chains = episode.deletions(), episode.chains()
    touched = {*episode.supersedes, *episode.supersedes.values()}
    plain = [id for id, kind in episode.kinds.items() if kind in ("fact", "exact") and id not in touched]

    def demoted(pairs: Sequence[tuple[str, str]]) -> tuple[int, int]:
        return sum(primary_of.get(old) != old for old, _ in pairs), len(pairs)

    fixed = {
        "superseded_demoted": demoted(replaced),
        "chains_current": (sum(all(primary_of.get(id) == chain[-1] for id in chain) for chain in chains), len(chains)),
        "deleted_demoted": demoted(deleted),
        "untouched_primary": (sum(primary_of.get(id) == id for id in plain), len(plain)),
    }
    texts = {fact.id: fact.text for fact in episode.stream.facts}
    stale = {budget: [is_stale(q, episode, store.retrieved[q.text, budget], texts)
                      for q in episode.stream.questions] for budget in budgets}  # fmt: skip
    stayed = Counter(judged_as(store, new, old) for old, new in (*replaced, *deleted) if primary_of.get(old) == old)
    return {
        "shares": {
            str(budget): fixed | {"stale_answer": (flags.count(True), len(flags) - flags.count(None))}
            for budget, flags in stale.items()
        },
        "stayed_judged": dict(stayed),
    }


def outdated_by(question: Question, episode: MemeEpisode) -> dict[str, tuple[str, ...]]:
    """Outdated gold atoms of a question, each with the gold atoms that say so.

    A replaced or deleted atom is outdated by all that came after it in its chain; an atom that depends on another is
    outdated by the rule that gives its new value, and by the change that it depends on.
    """
    successor = {old: new for new, old in episode.supersedes.items()}
    gold = set(question.gold)
    signs = tuple(id for id in question.gold if episode.kinds[id] in ("rule", "change"))
    found: dict[str, tuple[str, ...]] = {}
    for atom in question.gold:
        later, current = [], atom
        while current in successor:
            current = successor[current]
            later.append(current)
        if episode.kinds[atom] == "dependent":
            later += signs
        kept = tuple(id for id in later if id in gold)
        if kept:
            found[atom] = kept
    return found


def is_stale(
    question: Question, episode: MemeEpisode, units: Sequence[RetainedUnit], texts: Mapping[str, str]
) -> bool | None:
    """Whether the context states an outdated gold atom and none that says so; None when none is outdated."""
    outdated = outdated_by(question, episode)
    if not outdated:
        return None
    return any(
        is_stated(units, old, texts) and not any(is_stated(units, new, texts) for new in later)
        for old, later in outdated.items()
    )
