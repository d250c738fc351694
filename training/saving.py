"""From a trained model to an adapter folder: calibration on dev, probes, card, metrics and the learning curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.pairs import LabelledPair
from eval.provenance import versions
from roam.adapters import AdapterCard, Probe, read_card, weights_hash, write_card
from roam.bases import ResolvedBase
from roam.records import Pair
from roam.relation_model import TorchRelationModel, calibrated, softmax
from roam.relations import INDEX, RELATIONS, Relation
from training.card import relation_metrics, write_model_card
from training.config import RelationConfig
from training.models import quantisation_of

PROBE_COUNT = 10


BIAS_PENALTY = 0.01
"""Per squared unit of bias, in nats: keeps biases near 0 where dev says little."""


def fit_calibration(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[float, dict[str, float]]:
    """Temperature and class biases that minimise the negative log-likelihood of `labels` (Guo et al. 2017).

    Classes weigh the same whatever their counts in `labels`. IND's bias is 0, and OSN and NSO share one: a pair and its
    swap must stay mirror images.
    """
    from scipy.optimize import minimize

    counts = np.bincount(labels, minlength=len(RELATIONS))
    weights = (1 / np.maximum(counts, 1))[labels]
    weights /= weights.sum()

    def biases(values: NDArray[np.float64]) -> NDArray[np.float64]:
        eqv, one_way, con = values[1:]
        by_relation = {Relation.EQV: eqv, Relation.OSN: one_way, Relation.NSO: one_way, Relation.CON: con}
        return np.array([by_relation.get(relation, 0.0) for relation in RELATIONS])

    def loss(values: NDArray[np.float64]) -> float:
        probabilities = softmax((logits / np.exp(values[0]) + biases(values)).astype(np.float32))
        of_gold = np.clip(probabilities[np.arange(len(labels)), labels].astype(np.float64), 1e-12, None)
        return float(-(weights * np.log(of_gold)).sum() + BIAS_PENALTY * np.square(values[1:]).sum())

    found = minimize(loss, np.zeros(4), method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-4, "fatol": 1e-7}).x
    bias = {relation.value: round(float(value), 4) for relation, value in zip(RELATIONS, biases(found), strict=True)}
    return round(float(np.exp(found[0])), 4), bias


def cost_thresholds(
    probabilities: NDArray[np.float32], labels: NDArray[np.int64], false_merge_cost: float
) -> dict[str, float]:
    """For each relation that hides a memory, the acceptance threshold of least cost on dev (DESIGN section 4.5).

    Accepting a wrong relation costs `false_merge_cost`, rejecting a right one costs 1. Ties take the higher threshold.
    """
    predicted = probabilities.argmax(axis=1)
    out = {}
    for relation in RELATIONS[1:]:
        column = INDEX[relation]
        chosen = predicted == column
        confidence, right = probabilities[chosen, column], labels[chosen] == column
        grid = np.arange(0.20, 0.991, 0.01)
        costs = [
            false_merge_cost * np.sum(~right & (confidence >= limit)) + np.sum(right & (confidence < limit))
            for limit in grid
        ]
        out[relation.value] = round(float(grid[len(grid) - 1 - int(np.argmin(costs[::-1]))]), 2)
    return out


def pick_probes(pairs: Sequence[LabelledPair], model: TorchRelationModel) -> tuple[Probe, ...]:
    """A few dev pairs of every relation with the probabilities the model gives them."""
    chosen = [
        pair for relation in RELATIONS
        for pair in [p for p in pairs if p.label is relation][: PROBE_COUNT // len(RELATIONS)]
    ]  # fmt: skip
    found = model.predict_proba([Pair(pair.old, pair.new) for pair in chosen])
    return tuple(
        Probe(
            pair.old, pair.new, {name.value: round(float(value), 5) for name, value in zip(RELATIONS, row, strict=True)}
        )
        for pair, row in zip(chosen, found, strict=True)
    )


def calibrate(
    model: TorchRelationModel, dev_pairs: Sequence[LabelledPair], false_merge_cost: float,
    fixed: Mapping[str, float] | None = None,
) -> AdapterCard:  # fmt: skip
    """Return the model's card with temperature, biases, thresholds, probes and dev metrics found on `dev_pairs`.

    `fixed` thresholds replace the ones of least cost.
    """
    logits = model.predict_logits([Pair(pair.old, pair.new) for pair in dev_pairs])
    labels = np.array([INDEX[pair.label] for pair in dev_pairs])
    temperature, bias = fit_calibration(logits, labels)
    model.card = replace(model.card, temperature=temperature, bias=bias)
    probabilities = calibrated(logits, model.card)
    thresholds = cost_thresholds(probabilities, labels, false_merge_cost) | dict(fixed or {})
    metrics = relation_metrics(probabilities, labels, {Relation(name): limit for name, limit in thresholds.items()})
    return replace(
        model.card, thresholds=thresholds, metrics={**model.card.metrics, "dev": metrics},
        probes=pick_probes(dev_pairs, model),
    )  # fmt: skip


def finish_run(
    *, folder: Path, config: RelationConfig, model: Any, tokenizer: Any, base: ResolvedBase,
    dev_pairs: Sequence[LabelledPair], data_hashes: Mapping[str, str], history: Sequence[Mapping[str, Any]],
) -> tuple[Path, dict[str, Any]]:  # fmt: skip
    """Calibrate, save and reload the adapter; returns its folder and the metrics on dev."""
    adapter = folder / "adapter"
    adapter.mkdir(parents=True, exist_ok=True)
    # By name: the folder that the weights were read from means nothing on another machine.
    model.peft_config["default"].base_model_name_or_path = base.name
    model.save_pretrained(str(adapter))
    tokenizer.save_pretrained(str(adapter))
    card = AdapterCard(
        kind="relation", labels=tuple(relation.value for relation in RELATIONS), base=base.name,
        base_hash=base.content_hash, max_length=config.max_length, swap_margin=config.swap_margin,
        quantisation=quantisation_of(config),
        weights_hash=weights_hash(adapter),
        data_hash={**earlier_data(config), **data_hashes}, versions=versions(), metrics={"seed": config.seed},
    )  # fmt: skip
    card = calibrate(TorchRelationModel(model, tokenizer, card), dev_pairs, config.false_merge_cost)
    metrics = card.metrics["dev"]
    write_card(adapter, card)
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    (folder / "versions.json").write_text(json.dumps(card.versions, indent=2) + "\n", encoding="utf-8")
    write_model_card(adapter, card)
    draw_curve(history, folder / "curve.png")
    TorchRelationModel.load(adapter, base=base.path)  # an adapter that can't be read back is no result
    return adapter, metrics


def earlier_data(config: RelationConfig) -> dict[str, str]:
    """Hashes of what the initial adapter had been trained on, when there is one."""
    if config.initial_adapter is None:
        return {}
    return trained_on(read_card(Path(config.initial_adapter)), "before")


def trained_on(card: AdapterCard, where: str) -> dict[str, str]:
    """Hashes of the files that an adapter's weights have seen, dev files left out; `where` stands before each name."""
    return {f"{where}: {name}": digest for name, digest in card.data_hash.items() if "dev" not in name}


def draw_curve(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Training loss and dev macro-F1 against steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, left = pyplot.subplots(figsize=(7, 4))
    losses = [(row["step"], row["loss"]) for row in history if "loss" in row]
    scores = [(row["step"], 100 * row["eval_macro_f1"]) for row in history if "eval_macro_f1" in row]
    if losses:
        left.plot(*zip(*losses, strict=True), color="tab:blue", label="training loss")
    left.set(xlabel="step", ylabel="training loss")
    right = left.twinx()
    if scores:
        right.plot(*zip(*scores, strict=True), "o-", color="tab:orange", label="dev macro-F1")
    right.set(ylabel="dev macro-F1 (%)", ylim=(0, 100))
    figure.legend(loc="upper center", ncol=2)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
