"""Laws that hold of every mechanism, whatever it does."""

import copy
import math
import pickle

import mpmath
import oracles

from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction

TAIL = 1e-14
EPSILONS = (-1.0, 0.0, 0.1, 0.7, 2.0, 6.0)


def bounds_of(mechanism, epsilon, direction, tail_mass=TAIL):
    """Returns what the lower and the upper pair say of δ at ε."""
    low, high = (
        interface.pairs_of(mechanism, bound, tail_mass)
        .of(direction)
        .delta(epsilon, direction)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    return low, high


def assert_laws(mechanism, epsilons=EPSILONS):
    """Holds what a mechanism says of itself against the pairs that it makes."""
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    assert hash(copy.copy(mechanism)) == hash(mechanism)
    for bound in Bound:
        pairs = interface.pairs_of(mechanism, bound, TAIL)
        assert pairs.remove.bound is pairs.add.bound is bound
    for epsilon in epsilons:
        for direction in Direction:
            low, high = bounds_of(mechanism, epsilon, direction)
            assert low <= high
            _assert_closed_form(mechanism, epsilon, direction)
        if mechanism.is_symmetric():
            _assert_symmetry(mechanism, epsilon)
        if math.isfinite(mechanism.gaussian_precision()):
            _assert_dominated_by_a_gaussian(mechanism, epsilon)
    if math.isfinite(mechanism.largest_loss()):
        _assert_largest_loss(mechanism)


def _assert_closed_form(mechanism, epsilon, direction):
    """The truth is between the closed forms, and between what the pairs say."""
    below, above = (
        mechanism.closed_form_delta(epsilon, direction, bound)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    if above is None:
        assert below is None
        return
    low, high = bounds_of(mechanism, epsilon, direction)
    assert 0 <= below <= above <= 1
    assert low <= above
    assert below <= high
    assert above <= high * (1 + 1e-6) + 1e-12


def _assert_symmetry(mechanism, epsilon):
    remove = bounds_of(mechanism, epsilon, Direction.REMOVE)
    add = bounds_of(mechanism, epsilon, Direction.ADD)
    assert remove[0] <= add[1]
    assert add[0] <= remove[1]


def _assert_dominated_by_a_gaussian(mechanism, epsilon):
    """The Gaussian mechanism of that precision tells no less."""
    with mpmath.workdps(40):
        mean = mpmath.sqrt(mpmath.mpf(mechanism.gaussian_precision()))
        kappa = mpmath.exp(mpmath.mpf(epsilon))
        most = max(1 - kappa, mpmath.mpf(0))
        if mean:
            most = oracles.gaussian_delta(mean, epsilon)
        # It is rounded, as what uses it allows for.
        most = most * (1 + mpmath.mpf(1e-12))
    for direction in Direction:
        assert bounds_of(mechanism, epsilon, direction)[0] <= most


def _assert_largest_loss(mechanism):
    """Below it is every loss of what is dominated, and nearly every of what dominates.

    Losses on a lattice are raised by less than a step of it.
    """
    largest = mechanism.largest_loss() * (1 + 1e-12)
    for direction in Direction:
        low, _ = bounds_of(mechanism, largest, direction)
        _, high = bounds_of(mechanism, largest * 1.01 + 1e-9, direction)
        assert low == 0
        assert high <= 10 * TAIL
