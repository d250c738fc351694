"""Whether probabilities mean what they say: calibration error, reliability bins, risk against coverage."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eval.metrics import FloatArray, IntArray, decide
from roam.errors import InputError

Binning = Literal["equal_mass", "equal_width"]
BINS = 15


def check_probabilities(gold: IntArray, probabilities: NDArray[np.floating]) -> FloatArray:
    """Return `probabilities` as float64 after checking shape (n, classes), range and that rows sum to 1."""
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or len(values) != len(gold):
        raise InputError(f"probabilities of shape {values.shape} do not fit {len(gold)} pairs: need (n, 5)")
    if not np.isfinite(values).all() or values.min() < 0 or np.abs(values.sum(axis=1) - 1).max() > 1e-3:
        raise InputError("probabilities must be finite, not negative and sum to 1 in every row: got something else")
    return values


def reliability(
    gold: IntArray, probabilities: NDArray[np.floating], binning: Binning = "equal_mass", bins: int = BINS
) -> list[dict[str, float]]:
    """Return one {confidence, accuracy, count, low, high} a non-empty bin of the top-class probability.

    `equal_mass` puts the same number of pairs in each bin (a confident classifier leaves most equal-width bins with a
    handful of pairs, which makes their error mostly noise); `equal_width` cuts 0..1 in `bins` equal parts.
    """
    values = check_probabilities(gold, probabilities)
    confidence = values.max(axis=1)
    correct = decide(values) == gold
    order = np.argsort(confidence, kind="stable")
    if binning == "equal_mass":
        groups = [part for part in np.array_split(order, bins) if len(part)]
    else:
        slot = np.minimum((confidence * bins).astype(np.int64), bins - 1)
        groups = [np.flatnonzero(slot == index) for index in np.unique(slot)]
    return [
        {
            "confidence": float(confidence[part].mean()),
            "accuracy": float(correct[part].mean()),
            "count": len(part),
            "low": float(confidence[part].min()),
            "high": float(confidence[part].max()),
        }
        for part in groups
    ]


def expected_calibration_error(
    gold: IntArray, probabilities: NDArray[np.floating], binning: Binning = "equal_mass", bins: int = BINS
) -> float:
    """Top-label ECE: mean over pairs of |accuracy - confidence| of their bin (Guo et al. 2017), 0 is perfect."""
    parts = reliability(gold, probabilities, binning, bins)
    return float(sum(p["count"] * abs(p["accuracy"] - p["confidence"]) for p in parts) / len(gold))


def proper_scores(gold: IntArray, probabilities: NDArray[np.floating]) -> dict[str, float]:
    """Multi-class Brier score (0..2) and negative log-likelihood in nats; lower is better."""
    values = check_probabilities(gold, probabilities)
    one_hot = np.eye(values.shape[1])[gold]
    of_gold = np.clip(values[np.arange(len(gold)), gold], 1e-12, 1.0)
    return {
        "brier": float(((values - one_hot) ** 2).sum(axis=1).mean()),
        "negative_log_likelihood": float(-np.log(of_gold).mean()),
    }


def risk_coverage(gold: IntArray, probabilities: NDArray[np.floating]) -> dict[str, Any]:
    """What abstaining on the least confident pairs buys.

    Returns `points` (coverage 0.1 .. 1.0 with the error rate among the most confident pairs of that share, and the
    least confidence among them) and `area`, the mean error over all coverages (lower is better).
    """
    values = check_probabilities(gold, probabilities)
    confidence = values.max(axis=1)
    order = np.argsort(-confidence, kind="stable")
    wrong = (decide(values) != gold)[order]
    risk = np.cumsum(wrong) / np.arange(1, len(gold) + 1)
    points = []
    for tenth in range(1, 11):
        kept = max(1, round(len(gold) * tenth / 10))
        points.append(
            {"coverage": tenth / 10, "risk": float(risk[kept - 1]), "confidence": float(confidence[order[kept - 1]])}
        )
    return {"points": points, "area": float(risk.mean())}
