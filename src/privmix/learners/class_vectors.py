"""What is known of the classes beforehand: public vectors, towards which noisy ones are pulled.

A text encoder makes a vector of a class's name as it makes one of a record. Where noise hides how
classes differ, such a name says more than the rows; where the rows are clear it says less.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from privmix import _validate
from privmix.learners.base import Matrix, ReleaseLike, Vector

# How far vectors are pulled, over the noise's energy in their own. Chosen on a division of Banking77's
# training records with names of the intents: from 0.3 to 1 it makes less than a point of difference
# from epsilon 0.5 on, in four designs.
_STRENGTH = 0.6
_TINY = np.finfo(float).tiny

# Noisy vectors of the classes (K, d), and the noise's variance in all coordinates of a class mean together.
Pull = Callable[[Matrix, float], Matrix]


def no_pull(vectors: Matrix, noise_energy: float) -> Matrix:
    """Leave vectors as they are."""
    return vectors


def pull_towards(release: ReleaseLike, class_vectors: ArrayLike | None) -> Pull:
    """Return what pulls noisy vectors of the classes towards public ones.

    With T_k the public vectors less their mean, as records would be mixed, and M_k the noisy ones,

        M_k + 0.6 a (E / mean |T|^2) T_k,   a = max(0, sum M.T / sum |T|^2)

    where E is the energy of the noise in what the release shows of a class's mean. A normal prior of mean a T_k and of variance
    a-fold that of T itself gives this direction but for the factor; a, the scale of the classes in
    units of T, is what the release shows: vectors that have nothing to do with the classes have an a near 0.

    Args:
        release: Its preprocessing is applied to the vectors.
        class_vectors: (K, num_inputs) finite numbers, a row for each class in the schema's order, in the
            space of the records before preprocessing; None for none.

    Raises:
        InvalidInputError: Vectors of another shape, or that are not finite.

    """
    if class_vectors is None:
        return no_pull
    directions = _directions(release, class_vectors)
    energy = float(np.square(directions).sum(axis=1).mean())

    def pull(vectors: Matrix, noise_energy: float) -> Matrix:
        scale = float((vectors * directions).sum()) / max(energy * len(vectors), _TINY)
        strength = _STRENGTH * max(scale, 0.0) * noise_energy / max(energy, _TINY)
        return np.asarray(vectors + strength * directions)

    return pull


def sized(pull: Pull, shares: Vector | None) -> Pull:
    """Return a pull of class sums, over n / K, of which a class's share times K is its mean."""
    if shares is None or pull is no_pull:
        return pull
    sizes = (len(shares) * shares)[:, None]
    return lambda sums, noise: np.asarray(sums + sizes * (pull(sums, noise) - sums))


def _directions(release: ReleaseLike, class_vectors: ArrayLike) -> Matrix:
    preprocessor = getattr(release, "preprocessor", None)
    width = release.num_features if preprocessor is None else preprocessor.facts.num_features
    expected = (release.num_classes, width)
    found = np.asarray(class_vectors)
    if found.shape != expected or found.dtype.kind not in "biuf":
        allowed = f"numbers of shape {expected}, a row for each class"
        _validate.fail("class_vectors", allowed, f"{found.dtype} {found.shape}")
    if not np.isfinite(found).all():
        _validate.fail("class_vectors", "finite numbers", "NaN or infinity")
    vectors: Matrix = found.astype(np.float64)
    if preprocessor is not None:
        vectors = preprocessor.transform(vectors)
    return np.asarray(vectors - vectors.mean(axis=0))
