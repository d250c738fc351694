"""How a matrix of weights becomes whole numbers: with its inputs' errors in mind, not weight by weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
DAMPING = 0.01
"""Share of the mean squared input that is added to each: few samples say little about some directions."""
BLOCK = 32
SMALLEST = 1e-8  # scale of a column that is all zero


def column_scales(matrix: Array, levels: int) -> Array:
    """Steps of the columns of a matrix, shape (columns,), so that the largest weight gets the largest level."""
    return np.asarray(np.maximum(np.abs(matrix).max(axis=0), SMALLEST) / levels, dtype=np.float32)


def nearest_levels(matrix: Array, scales: Array, levels: int) -> Array:
    """The nearest whole numbers, shape of `matrix`, in -levels..levels."""
    return np.asarray(np.clip(np.rint(matrix / scales), -levels, levels), dtype=np.float32)


def damped(products: Array) -> Array:
    """Mean outer products of inputs, shape (width, width), with a little on the diagonal: they can be inverted."""
    out = products.copy()
    out[np.diag_indices(len(out))] += DAMPING * float(np.diag(out).mean()) + SMALLEST
    return np.asarray(out, dtype=np.float32)


def compensated_levels(matrix: Array, scales: Array, levels: int, products: Array) -> Array:
    """Whole numbers for a matrix of shape (width, columns) by GPTQ (Frantar et al. 2023, algorithm 1).

    Rows are rounded one after the other; what rounding does to the products with inputs of these mean outer products,
    shape (width, width), is made up for by the rows that are still to come.
    """
    upper = np.linalg.cholesky(np.linalg.inv(damped(products).astype(np.float64))).T.astype(np.float32)
    left = matrix.astype(np.float32).copy()
    whole = np.empty_like(left)
    for start in range(0, len(left), BLOCK):
        stop = min(start + BLOCK, len(left))
        errors = np.empty((stop - start, left.shape[1]), dtype=np.float32)
        for row in range(start, stop):
            whole[row] = nearest_levels(left[row], scales, levels)
            errors[row - start] = (left[row] - whole[row] * scales) / upper[row, row]
            left[row + 1 : stop] -= np.outer(upper[row, row + 1 : stop], errors[row - start])
        left[stop:] -= upper[start:stop, stop:].T @ errors
    return whole
