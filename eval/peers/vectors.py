"""The k texts most like a new one: what a peer shows its model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def nearest_places(vector: NDArray[np.float32], others: Sequence[NDArray[np.float32]], k: int) -> list[int]:
    """Places of the `k` vectors of highest cosine, best first, ties by place; all vectors are L2-normalised."""
    if not others:
        return []
    scores = np.stack(others) @ vector
    return [int(place) for place in np.argsort(-scores, kind="stable")[:k]]
