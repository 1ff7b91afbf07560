"""Shrink the eigenvalues of a sample covariance, and subtract the noise of released rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_ROOT5 = np.sqrt(5.0)
_BLOCK = 512
_FAR = 50.0


def shrink_eigenvalues(eigenvalues: Vector, num_rows: float) -> Vector:
    """Estimate the variance that the population has along sample eigenvectors.

    The oracle is u' C u for each eigenvector u of the sample covariance. Its random-matrix limit
    is l / |1 - g - g l m(l)|^2 with g = d/T and m the Stieltjes transform of the spectrum (Ledoit
    & Péché 2011). It is estimated with the Epanechnikov kernel of bandwidth proportional to the
    eigenvalue (Ledoit & Wolf 2020, Annals of Statistics 48(5), section 4). With m taken over the
    positive eigenvalues only, one formula serves d < T and d > T.

    Args:
        eigenvalues: (r,) positive eigenvalues of a covariance of rank r.
        num_rows: Number of rows T behind it.

    Returns:
        (r,) shrunk eigenvalues; multiplying the input by a constant multiplies them by it.

    """
    density, hilbert = np.empty_like(eigenvalues), np.empty_like(eigenvalues)
    bandwidth = num_rows ** (-1 / 3) * eigenvalues
    for start in range(0, len(eigenvalues), _BLOCK):  # keeps memory linear in r
        part = slice(start, start + _BLOCK)
        x = (eigenvalues[part, None] - eigenvalues) / bandwidth
        density[part] = (_kernel(x) / bandwidth).sum(axis=1)
        hilbert[part] = (_kernel_hilbert(x) / bandwidth).sum(axis=1)
    scaled = np.pi * eigenvalues / num_rows
    real = 1 - len(eigenvalues) / num_rows - scaled * hilbert
    modulus = real**2 + (scaled * density) ** 2
    return np.asarray(eigenvalues / np.maximum(modulus, np.finfo(float).tiny))


def signal_variances(eigenvalues: Vector, noise: float, num_rows: int) -> Vector:
    """Return what random-matrix theory expects along sample eigenvectors, less the noise.

    Below d rows a covariance is singular, and subtracting from it can leave values below zero:
    along those directions the rows say nothing, and the median of the others stands in.
    """
    keep = eigenvalues > 1e-3 * noise + 1e-9 * np.abs(eigenvalues).max()
    if not keep.any():
        return np.zeros_like(eigenvalues)
    signal = np.maximum(shrink_eigenvalues(eigenvalues[keep], num_rows) - noise, 0)
    rest = float(np.median(signal)) if num_rows < len(eigenvalues) else 0.0
    variances = np.full_like(eigenvalues, rest)
    variances[keep] = signal
    return variances


def _kernel(x: Vector) -> Vector:
    return np.asarray(0.75 / _ROOT5 * np.maximum(1 - x**2 / 5, 0))


def _kernel_hilbert(x: Vector) -> Vector:
    """Hilbert transform of the kernel."""
    far = np.abs(x) > _FAR
    edge = np.abs(np.abs(x) - _ROOT5) < 1e-9
    z = np.where(far | edge, 0.0, x)
    log = np.log(np.abs((_ROOT5 - z) / (_ROOT5 + z)))
    near = -0.3 / np.pi * np.where(edge, x, z) + 0.75 / (_ROOT5 * np.pi) * (1 - z**2 / 5) * log
    # Far away the closed form cancels; there the kernel acts as a point mass.
    return np.asarray(np.where(far, -1 / (np.pi * np.where(far, x, 1.0)), near))
