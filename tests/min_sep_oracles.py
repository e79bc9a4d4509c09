"""Steps of a record under correlated noise: all sets, written out, and quadrature."""

import functools
import itertools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy


def law_of_steps(rate, apart, steps, *, warm):
    """{set of steps: probability}, by following a record from step to step."""
    whole = 1 + (apart - 1) * rate
    firsts = [1 / whole] + [rate / whole] * (apart - 1) if warm else [1]
    found = {}

    def follow(step, ready, taken, chance):
        if step == steps:
            found[taken] = found.get(taken, 0) + chance
        elif step < ready:
            follow(step + 1, ready, taken, chance)
        else:
            follow(step + 1, step + apart, (*taken, step), chance * rate)
            follow(step + 1, ready, taken, chance * (1 - rate))

    for ready, chance in enumerate(firsts):
        follow(0, ready, (), chance)
    return found


def law_of_groups(rate, length, steps):
    """The same of Poisson samples of secret groups; of all records if there is one."""
    found = {}
    for group in range(length):
        own = range(group, steps, length)
        for taken in itertools.product((False, True), repeat=len(own)):
            chosen = tuple(itertools.compress(own, taken))
            rest = len(own) - len(chosen)
            chance = rate ** len(chosen) * (1 - rate) ** rest / length
            found[chosen] = found.get(chosen, 0) + chance
    return found


def law_of_epochs(selected, steps, epochs):
    """The same of one set of k steps from every epoch."""
    sets = list(itertools.combinations(range(steps), selected))
    found = {}
    for choice in itertools.product(sets, repeat=epochs):
        taken = tuple(
            epoch * steps + step for epoch, own in enumerate(choice) for step in own
        )
        found[taken] = len(sets) ** -epochs
    return found


def gram_of(matrix, sigma):
    """Inner products of the columns of a matrix of rows, over σ²."""
    columns = np.asarray(matrix, dtype=float)
    return columns.T @ columns / sigma**2


def toeplitz(column, steps):
    """The rows of a lower triangular Toeplitz matrix."""
    rows = np.zeros((steps, steps))
    for row, place in itertools.product(range(steps), range(steps)):
        if 0 <= row - place < len(column):
            rows[row, place] = column[row - place]
    return rows


def profile(gram, law, epsilon, *, remove, points=61, reach=8.5):
    """δ of the mixture against N(0, I), by quadrature over all steps but the last."""
    weights, fixed, mean, spread = _ratios(
        tuple(map(tuple, gram)), tuple(law.items()), points, reach
    )
    kappa = math.exp(epsilon)
    if remove:
        values = _call(mean, spread, kappa - fixed)
    else:
        values = _put(mean, spread, 1 / kappa - fixed) * kappa
    return float((weights * values).sum())


@functools.cache
def _ratios(gram, law, points, reach):
    """At all steps but the last: a ratio is a constant and a lognormal variable."""
    steps = len(gram)
    lower = np.linalg.cholesky(np.asarray(gram) + 1e-14 * np.eye(steps))
    axis = np.linspace(-reach, reach, points)
    grids = np.meshgrid(*[axis] * (steps - 1), indexing="ij")
    weights = np.ones((points,) * (steps - 1))
    for grid in grids:
        weights = weights * np.exp(-(grid**2) / 2)
    weights /= weights.sum()
    logs = [
        sum((lower[row, j] * grids[j] for j in range(min(row + 1, steps - 1))), 0.0)
        - gram[row][row] / 2
        for row in range(steps)
    ]
    fixed, mean = np.zeros(weights.shape), np.zeros(weights.shape)
    spread = lower[-1, -1]
    for taken, chance in law:
        met = sum(gram[i][j] for i, j in itertools.combinations(taken, 2))
        product = float(chance) * np.exp(
            sum((logs[step] for step in taken), np.full(weights.shape, -met))
        )
        if steps - 1 in taken:
            mean = mean + product * math.exp(spread**2 / 2)
        else:
            fixed = fixed + product
    return weights, fixed, mean, spread


def _places(mean, spread, strike):
    """A positive strike, and where it is in spreads of the logarithm."""
    positive = np.maximum(strike, 1e-300)
    logs = np.log(np.maximum(mean, 1e-300)) - np.log(positive)
    return positive, logs / spread + spread / 2


def _call(mean, spread, strike):
    positive, place = _places(mean, spread, strike)
    value = mean * special.ndtr(place) - positive * special.ndtr(place - spread)
    return np.where(strike > 0, np.maximum(value, 0.0), mean - strike)


def _put(mean, spread, strike):
    """Not by the call: for a small strike, nothing would be left of the difference."""
    positive, place = _places(mean, spread, strike)
    value = positive * special.ndtr(spread - place) - mean * special.ndtr(-place)
    return np.where(strike > 0, np.maximum(value, 0.0), 0.0)


def assert_bounded(run, gram, law, epsilons):
    """Lower ≤ truth ≤ upper, of a mechanism, in each direction by itself.

    Args:
        run: The mechanism.
        gram: Inner products of its steps' means.
        law: {set of a record's steps: probability}.
        epsilons: Where δ is compared.
    """
    assert abs(math.fsum(law.values()) - 1) < 1e-12
    below, above = (
        run.pairs(bound, accuracy.Accuracy(1e-12))
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    for epsilon, way in itertools.product(epsilons, Direction):
        remove = way is Direction.REMOVE
        truth = profile(gram, law, epsilon, remove=remove)
        assert below.of(way).delta(epsilon, way) <= truth
        assert truth <= above.of(way).delta(epsilon, way)
