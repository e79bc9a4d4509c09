"""b-min-sep sampling by its definition: all sets of a record's steps, written out."""

from fractions import Fraction
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


def enumerated_cut(rng, steps, apart, cut):
    """Yields both sides of the lemma about cuts, at several κ, as exact fractions.

    X is two-valued and independent from step to step.

    Yields:
        Pairs of E (Z − κ)₊ and its bound, E A · max_u E (V_u − κ / A)₊.
    """
    rate = Fraction(int(rng.integers(1, 16)), 16)
    low, high = Fraction(int(rng.integers(0, 8)), 8), 1 + int(rng.integers(1, 30))
    chance = (1 - low) / (high - low)
    values = {low: 1 - chance, Fraction(high): chance}

    def ratios(law, xs):
        return sum(w * math.prod(xs[step] for step in taken) for taken, w in law)

    whole = law_of_steps(rate, apart, steps, warm=False)
    past = {}
    for taken, weight in whole.items():
        before = tuple(step for step in taken if step < cut)
        past[before] = past.get(before, 0) + weight
    ready = {before: max((*before, -apart)) + apart - cut for before in past}
    futures = {}
    for state in {max(each, 0) for each in ready.values()}:
        rest = steps - cut
        moved = law_of_steps(rate, apart, max(rest - state, 0), warm=False)
        futures[state] = [
            (tuple(step + state for step in taken), weight)
            for taken, weight in moved.items()
        ]
    laws = {}
    for state, law in futures.items():
        laws[state] = [
            (ratios(law, xs), math.prod(values[x] for x in xs))
            for xs in itertools.product(values, repeat=steps - cut)
        ]
    outcomes, totals = [], []
    for xs in itertools.product(values, repeat=steps):
        weight = math.prod(values[x] for x in xs)
        outcomes.append((ratios(whole.items(), xs), weight))
    for xs in itertools.product(values, repeat=cut):
        weight = math.prod(values[x] for x in xs)
        totals.append((ratios(past.items(), xs), weight))
    places = sorted({z for z, _ in outcomes})
    for kappa in places[:: max(len(places) // 8, 1)]:
        truth = sum(w * max(z - kappa, 0) for z, w in outcomes)
        bound = sum(
            w
            * a
            * max(
                sum(v * max(z - kappa / a, 0) for z, v in law) for law in laws.values()
            )
            for a, w in totals
            if a > 0
        )
        yield truth, bound
