"""Data of several sites with known parts: programmes of cells, signatures of mutations, patterns of answers.

The sites differ in how often each part occurs. A drawing has the rows of all sites, one site after another, and then those that are in
nobody's data.
"""

from dataclasses import dataclass

import numpy as np

#: Types of cells and programmes, genes, median of the counts of a cell.
TYPES, GENES, DEPTH = 6, 100, 1000
#: What a site adds: its own programme has this share of each cell, and a gene's logarithm is off by this standard deviation.
OWN_SHARE, GENE_EFFECT = 0.2, 0.4
#: Types of mutations (of one base, with both neighbours), signatures, median of the mutations in a sample.
MUTATIONS, SIGNATURES, BURDEN = 96, 5, 300
#: Questions, patterns of answers, questions of a pattern, share of answers that are flipped.
QUESTIONS, PATTERNS, LENGTH, FLIPPED = 60, 6, 10, 0.1
#: How much the shares of the parts differ between sites: the parameter of a Dirichlet distribution.
MIXTURE = 2.0


@dataclass
class Planted:
    """Rows of the sites; those in nobody's data; the parts (columns x parts); what is known of each row of the sites."""

    sites: list
    outside: np.ndarray
    parts: np.ndarray
    known: np.ndarray


def places(rng, sizes):
    """The site whose mixture each row has, and whether it is in the data.

    Rows in nobody's data, whose number is the last one, are as those of the sites but the first, which does not know them.
    """
    *sites, outside = sizes
    others = np.array(sites[1:])
    place = np.append(np.repeat(np.arange(len(sites)), sites), 1 + rng.choice(len(others), outside, p=others / others.sum()))
    return place, np.arange(len(place)) < sum(sites)


def planted(rows, place, inside, parts, known):
    sites = [rows[inside & (place == site)] for site in range(place.max() + 1)]
    return Planted(sites, rows[~inside], parts, known[inside])


def cells(rng, sizes):
    """Counts with batch effects; known are the types."""
    place, inside = places(rng, sizes)
    programmes = rng.dirichlet(np.full(GENES, 0.3), TYPES)
    own = rng.dirichlet(np.full(GENES, 0.3), place.max() + 1)
    effects = np.exp(rng.normal(0, GENE_EFFECT, (len(own), GENES)))
    shares = rng.dirichlet(np.full(TYPES, MIXTURE), len(own))
    types = np.array([rng.choice(TYPES, p=shares[s]) for s in place])
    weights = 0.6 * np.eye(TYPES)[types] + 0.4 * rng.dirichlet(np.full(TYPES, 0.5), len(types))
    rates = ((1 - OWN_SHARE) * weights @ programmes + OWN_SHARE * own[place]) * effects[place]
    rates *= rng.lognormal(np.log(DEPTH), 0.4, len(types))[:, None] / rates.sum(axis=1, keepdims=True)
    return planted(rng.poisson(rates).astype(float), place, inside, programmes.T, types)


def mutations(rng, sizes):
    """Counts of mutations; known are the mean numbers that each signature has in a sample."""
    place, inside = places(rng, sizes)
    signatures = rng.dirichlet(np.full(MUTATIONS, 0.2), SIGNATURES)
    shares = rng.dirichlet(np.full(SIGNATURES, MIXTURE), place.max() + 1)
    exposures = np.array([rng.dirichlet(SIGNATURES * shares[s]) for s in place])
    exposures *= rng.lognormal(np.log(BURDEN), 0.7, len(place))[:, None]
    return planted(rng.poisson(exposures @ signatures).astype(float), place, inside, signatures.T, exposures)


def answers(rng, sizes):
    """Zeros and ones, some flipped; known are the answers before that."""
    place, inside = places(rng, sizes)
    patterns = np.zeros((PATTERNS, QUESTIONS), bool)
    for pattern in patterns:
        pattern[rng.choice(QUESTIONS, LENGTH, replace=False)] = True
    shares = PATTERNS * rng.dirichlet(np.full(PATTERNS, MIXTURE), place.max() + 1)
    has = rng.random((len(place), PATTERNS)) < np.minimum(0.3 * shares[place], 0.9)
    clean = (has[:, :, None] & patterns).any(axis=1)
    return planted((clean ^ (rng.random(clean.shape) < FLIPPED)).astype(float), place, inside, patterns.T, clean)
