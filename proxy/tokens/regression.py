"""Linear least squares that learns one observation at a time, held near a prior and within bounds. (pure)

Ridge regression towards prior coefficients: minimises Σ weight·(target − shares·w)² + Σ stiffness·(w − prior)², with
low ≤ w ≤ high. What was seen is kept as the sums of the normal equations, which forget exponentially.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST = 1_000.0  # of a share or a target: more is no observation of anything


@dataclass(frozen=True, slots=True)
class Sums:
    """The normal equations of what was seen: the lower triangle of the products, row by row, and the targets."""

    products: tuple[float, ...]
    targets: tuple[float, ...]

    def plus(self, shares: Sequence[float], target: float, *, weight: float, keep: float) -> "Sums":
        """With one more observation, after forgetting all but `keep` of the earlier ones."""
        x = np.clip(np.asarray(shares, dtype=float), -MOST, MOST)
        y = min(max(target, -MOST), MOST)
        products = keep * np.asarray(self.products) + weight * np.outer(x, x)[np.tril_indices(len(x))]
        targets = keep * np.asarray(self.targets) + weight * x * y
        return Sums(tuple(products.tolist()), tuple(targets.tolist()))

    def solve(
        self, prior: Sequence[float], stiffness: Sequence[float], low: Sequence[float], high: Sequence[float]
    ) -> tuple[float, ...]:
        """The coefficients. All `stiffness` is positive, so there is one solution.

        One that would leave its bounds is set on them, and the others are solved again.
        """
        size = len(prior)
        a = np.zeros((size, size))
        a[np.tril_indices(size)] = self.products
        a = a + np.tril(a, -1).T + np.diag(stiffness)
        b = np.asarray(self.targets) + np.asarray(stiffness) * np.asarray(prior)
        least, most = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        w: Any = np.zeros(size)
        free = np.ones(size, dtype=bool)
        while free.any():
            w[free] = np.linalg.solve(a[np.ix_(free, free)], b[free] - a[np.ix_(free, ~free)] @ w[~free])
            outside = free & ((w < least) | (w > most))
            if not outside.any():
                break
            w[outside] = np.clip(w[outside], least[outside], most[outside])
            free &= ~outside
        return tuple(w.tolist())


def nothing(size: int) -> Sums:
    """The sums before anything was seen of `size` coefficients."""
    return Sums((0.0,) * (size * (size + 1) // 2), (0.0,) * size)
