"""Quality of factors beyond the error: recovery of known components, and agreement of clusters with known classes."""

import numpy as np


def unit_columns(matrix):
    """Returns the matrix with columns of norm 1, and the norms; a zero column stays zero."""
    norms = np.linalg.norm(matrix, axis=0)
    return matrix / np.where(norms > 0, norms, 1.0), norms


def recovery(components, right):
    """Returns the mean cosine of the true components (n x k) and those of a run (n x k'), each used once.

    The pair with the largest cosine is matched first. 1 means that all components are found.
    """
    cosines = unit_columns(components)[0].T @ unit_columns(right)[0]
    total = 0.0
    for _ in range(min(cosines.shape)):
        i, j = np.unravel_index(np.argmax(cosines), cosines.shape)
        total += cosines[i, j]
        cosines[i, :] = cosines[:, j] = -1.0
    return total / components.shape[1]


def cluster(points, count, seed=0, restarts=5, iterations=50):
    """Returns the clusters of the rows of `points` by k-means: the best of several starts by k-means++."""
    rng, best = np.random.default_rng(seed), (np.inf, None)
    squares = (points * points).sum(axis=1)

    def distances(centres):
        return np.maximum(squares[:, None] - 2 * points @ centres.T + (centres * centres).sum(axis=1), 0.0)

    for _ in range(restarts):
        centres = points[rng.integers(len(points))][None]
        while len(centres) < count:
            nearest = distances(centres).min(axis=1) + 1e-12
            chosen = rng.choice(len(points), p=nearest / nearest.sum())
            centres = np.concatenate((centres, points[chosen][None]))
        previous = None
        for _ in range(iterations):
            to_centres = distances(centres)
            label = to_centres.argmin(axis=1)
            if previous is not None and (label == previous).all():
                break
            previous = label
            for c in np.unique(label):
                centres[c] = points[label == c].mean(axis=0)
        inertia = to_centres.min(axis=1).sum()
        if inertia < best[0]:
            best = inertia, label
    return best[1]


def adjusted_rand_index(a, b):
    """Returns the adjusted Rand index of two clusterings: 1 if they are equal, about 0 if they are independent."""

    def pairs(counts):
        return (counts * (counts - 1.0) / 2.0).sum()

    a, b = (np.unique(labels, return_inverse=True)[1] for labels in (a, b))
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    both, left, right = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = left * right / pairs(np.array([a.size]))
    return (both - expected) / ((left + right) / 2.0 - expected)


def clustering_agreement(labels, left, right):
    """Returns the adjusted Rand index of the classes and of k-means on the rows of U.

    The components are weighted by the norm of their columns in V, and each row is scaled to norm 1.
    """
    weighted = left[: labels.size] * unit_columns(right)[1]
    points = unit_columns(weighted.T)[0].T
    return adjusted_rand_index(labels, cluster(points, np.unique(labels).size))


def quality(known, factors):
    """Returns (recovery, adjusted Rand index); None for what is not known, and without factors."""
    if factors is None or not all(np.isfinite(factor).all() for factor in factors):
        return None, None
    left, right = (np.asarray(factor, float) for factor in factors)
    found = None if known.components is None else recovery(known.components, right)
    agreement = None if known.labels is None else clustering_agreement(known.labels, left, right)
    return found, agreement
