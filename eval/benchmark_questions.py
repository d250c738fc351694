"""Streams with questions (LongMemEval, LoCoMo, MEME): what the context holds of the facts that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from eval.answering import Answerer, accuracy
from eval.benchmark_controlled import reference
from eval.benchmark_runner import Runner, diagnosis_of, marked, mean_seconds
from eval.diagnostics import Diagnosis, FinalState, Roles, measure, paired_differences, summarise_by_type
from eval.methods import Method
from eval.store_run import StoreRun, Stream, run_store

COMPARED = ("any_source", "all_source", "gold_recall", "stated_gold")


def run_questions(
    streams: Sequence[Stream], methods: Sequence[Method], runner: Runner
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]:
    """Return (report entries, one row a method, budget and question, seconds a stream by method)."""
    found: dict[str, list[dict[str, Any]]] = {}
    for method in methods:

        def work(stream: Stream, method: Method = method) -> Mapping[str, Any]:
            texts = [question.text for question in stream.questions]
            store = run_store(stream.facts, texts, method, runner.embedder, runner.settings)
            return measured(stream, store, runner.answerer)

        found[method.name] = runner.results("questions", streams, method, work)
    return question_entries(found, methods, runner)


def measured(stream: Stream, store: StoreRun, answerer: Answerer | None = None) -> dict[str, Any]:
    """Diagnoses of every question by budget, marks of the answers, and how many facts are Primary."""
    texts = {fact.id: fact.text for fact in stream.facts}
    demoted_by = store.demoted_by
    diagnoses: dict[str, list[dict[str, Any]]] = {}
    for budget in sorted({budget for _, budget in store.retrieved}):
        diagnoses[str(budget)] = [
            asdict(
                measure(
                    question.id,
                    question.kind,
                    Roles({identifier: texts[identifier] for identifier in question.gold}),
                    FinalState(store.retrieved[question.text, budget], store.primary_of, demoted_by),
                    group=stream.id,
                )
            )
            for question in stream.questions
        ]
    primaries = sum(member == primary for member, primary in store.primary_of.items())
    answered = {
        str(budget): [
            marked(answerer, store.retrieved[q.text, budget], q.text, q.answer, q.asked_at) for q in stream.questions
        ]
        for budget in sorted({budget for _, budget in store.retrieved})
    }
    return {"diagnoses": diagnoses, "answered": answered, "primaries": primaries, "facts": len(stream.facts)}


def question_entries(
    found: Mapping[str, Sequence[Mapping[str, Any]]], methods: Sequence[Method], runner: Runner
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, float]]:
    """The same as `run_questions`, from the results of every stream by method."""
    cells: dict[tuple[str, int], list[Diagnosis]] = {
        (name, budget): [diagnosis_of(d) for result in results for d in result["diagnoses"][str(budget)]]
        for name, results in found.items()
        for budget in runner.settings.budgets
    }
    summaries = {place: summarise_by_type(part, runner.seed) for place, part in cells.items()}
    best = reference([method.name for method in methods])
    first = runner.settings.budgets[0]
    primary_share = {
        name: sum(r["primaries"] for r in results) / max(1, sum(r["facts"] for r in results))
        for name, results in found.items()
    }
    entries = {
        "questions": len(cells[best, first]),
        "managers": {
            m.name: summaries[m.name, first] | m.identity() | {"primary_share": primary_share[m.name]}
            | _answers(found[m.name], cells[m.name, first], first, runner) for m in methods
        },
        "cells": [{"manager": name, "budget": budget} | entry for (name, budget), entry in summaries.items()],
        "comparisons": [
            {"manager": best, "other": name, "budget": budget,
             "differences": _differences(cells[best, budget], part, runner.seed)}
            for (name, budget), part in cells.items() if name != best
        ],
    }  # fmt: skip
    rows = [
        {"manager": name, "budget": budget, "stream": d.group, "question": d.episode, "kind": d.type, **d.values}
        for (name, budget), part in cells.items()
        for d in part
    ]
    return entries, rows, {name: mean_seconds(results) for name, results in found.items()}


def _differences(ours: Sequence[Diagnosis], theirs: Sequence[Diagnosis], seed: int) -> dict[str, Any]:
    found = paired_differences(ours, theirs, seed)
    return {name: found[name] for name in COMPARED}


def _answers(
    results: Sequence[Mapping[str, Any]], diagnoses: Sequence[Diagnosis], budget: int, runner: Runner
) -> dict[str, Any]:
    """Accuracy in all and by question type at one budget; nothing without an answerer."""
    if runner.answerer is None:
        return {}
    marks = [mark for result in results for mark in result["answered"][str(budget)]]
    return accuracy(list(zip([diagnosis.type for diagnosis in diagnoses], marks, strict=True)))
