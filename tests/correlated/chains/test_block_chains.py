"""A block of b-min-sep sampling: the cut, the repair, the chain, and its recursion."""

import itertools

import correlated_oracles
import min_sep_oracles
import numpy as np
import pytest

from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated.chains import block_chains
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import gauss_markov

COLUMNS = [
    (1.0,),
    (1.0, 0.5),
    (1.0, 0.9, 0.8),
    (0.1, 0.2, 0.9, 1.0),  # S has negative eigenvalues.
    (1.0, 0.0, 0.7, 0.0, 0.9),
]


def products(column, sigma=1.0):
    size = len(column)
    return np.array([np.dot(column[: size - d], column[d:]) for d in range(size)]) / (
        sigma**2
    )


@pytest.mark.parametrize("column", COLUMNS)
def test_repair_leaves_neighbours_orthogonal(column):
    """[[D, −S], [−S, D]] is positive semidefinite: D + S and D − S are."""
    table = products(column)
    size = table.size - 1
    repaired = block_chains.repair(table)
    cross = np.array(
        [
            [table[i + j + 1] if i + j + 1 <= size else 0.0 for j in range(size)]
            for i in range(size)
        ]
    ).reshape(size, size)
    for sign in (1, -1):
        if size:
            assert np.linalg.eigvalsh(repaired + sign * cross).min() >= 0
    # No more than the root of S², but for rounding.
    assert np.trace(repaired) <= np.linalg.svd(cross, compute_uv=False).sum() + 1e-6


def joined(column, length, blocks):
    """The Gram matrix of several blocks, and of them with what a cut adds."""
    table = np.zeros(length * blocks)
    table[: len(column)] = products(column)
    places = np.arange(table.size)
    whole = table[abs(places[:, None] - places)]
    repaired = block_chains.repair(products(column))
    number = min(len(repaired), length)
    apart = whole.copy()
    for cut in range(length, table.size, length):
        ends = repaired[:number, :number]
        apart[cut : cut + number, cut : cut + number] += ends
        apart[cut - number : cut, cut - number : cut] += ends[::-1, ::-1]
    return whole, apart


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_a_repaired_matrix_is_larger_with_orthogonal_blocks(column):
    length = len(column)
    whole, apart = joined(column, length, 3)
    inside = np.kron(np.eye(3), np.ones((length, length))) > 0
    assert np.linalg.eigvalsh(np.where(inside, apart, 0) - whole).min() > -1e-12


def nearest_repair(surplus, rounds=3000):
    """The least that any positive semidefinite matrix is above a surplus, by entry.

    Alternating projections (Dykstra) between {R ≤ surplus} and the cone.
    """
    current, corrections = np.zeros_like(surplus), [np.zeros_like(surplus)] * 2
    for _ in range(rounds):
        moved = current + corrections[0]
        lowered = np.minimum(moved, surplus)
        corrections[0] = moved - lowered
        moved = lowered + corrections[1]
        values, vectors = np.linalg.eigh(moved)
        current = (vectors * np.maximum(values, 0)) @ vectors.T
        corrections[1] = moved - current
    return float((current - surplus).max())


def covariance(chain):
    """A block's matrix, from its variances and slopes."""
    found = correlated_oracles.chain_covariance(chain.variances(), chain.correlation)
    found *= chain.variance * chain.share
    found += chain.variance * (1 - chain.share) * np.eye(chain.length)
    return found + chain.shared


@pytest.mark.parametrize(
    ("column", "length", "is_alone"),
    [
        ((1.0, 0.5), 2, False),
        ((1.0, 0.5), 5, False),
        ((1.0, 0.9, 0.8), 3, False),
        ((1.0, 0.9, 0.8), 4, True),
        ((0.1, 0.2, 0.9, 1.0), 4, False),
        ((1.0, 0.6, 0.5, 0.4, 0.35, 0.3), 6, False),
        ((1.0, 0.0, 0.7, 0.0, 0.9), 12, False),
    ],
)
def test_chains_are_above_their_block(column, length, is_alone):
    """What a chain has more is a positive semidefinite matrix and one ≥ 0."""
    _, apart = joined(column, length, 1 if is_alone else 3)
    middle = slice(0, length) if is_alone else slice(length, 2 * length)
    block = apart[middle, middle]
    chain = block_chains.fit(products(column), length, is_alone=is_alone)
    found = covariance(chain)
    assert nearest_repair(found - block) <= 1e-5 * found.max()
    assert min(chain.heights) == 1
    assert chain.heights == chain.heights[::-1]


@pytest.mark.parametrize(
    ("column", "length", "rate", "sigma", "is_alone"),
    [
        ((1.0, 0.5), 2, 0.3, 1.0, True),
        ((1.0, 0.5), 3, 0.1, 1.5, True),
        ((1.0, 0.9, 0.8), 3, 0.6, 2.0, True),
        ((1.0, 0.5), 2, 0.3, 1.0, False),
    ],
)
def test_a_block_from_every_state_against_quadrature(
    column, length, rate, sigma, is_alone
):
    """The pair of a block that has neighbors is above that of one alone."""
    chain = block_chains.fit(products(column, sigma), length, is_alone=is_alone)
    pairs = gauss_markov.of_block(chain, rate, tail_mass=1e-16)
    gram = min_sep_oracles.gram_of(
        min_sep_oracles.toeplitz(column, length + len(column)), sigma
    )[:length, :length]
    for start in range(length):
        law = min_sep_oracles.law_of_steps(rate, length, length - start, warm=False)
        moved = {tuple(s + start for s in taken): w for taken, w in law.items()}
        for epsilon, way in itertools.product((-0.3, 0.0, 0.4, 1.2), Direction):
            truth = min_sep_oracles.profile(
                gram, moved, epsilon, remove=way is Direction.REMOVE
            )
            bound = pairs.of(way).delta(epsilon, way)
            assert truth <= bound
            if is_alone and start == 0 and epsilon == 0:
                assert bound <= 1.1 * truth


def test_a_chain_of_too_little_noise_says_nothing():
    chain = chain_fits.Chain(801.0, 1 / 801, 0.5, (1.0, 1.0))
    pairs = gauss_markov.of_block(chain, 0.1, tail_mass=1e-12)
    assert pairs.remove.infinity_mass == 1
