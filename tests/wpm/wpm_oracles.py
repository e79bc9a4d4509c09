"""Slow truths and shared cases of the tests of the Wasserstein projection."""

from fractions import Fraction

from hypothesis import strategies as st
import mpmath
import numpy as np
from scipy import optimize
from scipy import sparse

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.projections import ldp_polytope

EPSILONS = [0.01, 0.3, 1.0, 4.0, 10.0, 40.0]


def transport_program(masses, cost, lower, upper):
    """The least cost by the paper's linear program, all arcs at once."""
    rows, columns = cost.shape
    arcs = np.arange(rows * columns)
    inputs, outputs = np.divmod(arcs, columns)
    held = np.arange(columns)
    matrix = sparse.csc_array(
        (
            np.concatenate([np.ones(2 * arcs.size), -np.ones(columns)]),
            (
                np.concatenate([inputs, rows + outputs, rows + held]),
                np.concatenate([arcs, arcs, arcs.size + held]),
            ),
        )
    )
    scale = 1e6
    bounds = [(0, None)] * arcs.size
    bounds += [
        (scale * low, scale * high) for low, high in zip(lower, upper, strict=True)
    ]
    largest = cost.max() or 1.0
    # Bounds whose sum is one up to rounding need one of the wider tolerances.
    for tolerance in (1e-10, 1e-9, 1e-8, 1e-7):
        found = optimize.linprog(
            np.append(cost.ravel() / largest, np.zeros(columns)),
            A_eq=matrix,
            b_eq=np.append(scale * masses, np.zeros(columns)),
            bounds=bounds,
            method="highs-ds",
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
            },
        )
        if found.status == 0:
            return found.fun * largest / scale
    raise AssertionError(found.message)


def reaching_cost(masses, cost, law):
    """The least cost of reaching a law, whose sum is one up to rounding only."""
    slack = 1e-12
    return transport_program(masses, cost, law * (1 - slack), law * (1 + slack) + 1e-15)


def minimax_program(cost, epsilon):
    """The least worst case over all private channels, one program."""
    rows, columns = cost.shape
    least, most = np.exp(-epsilon / 2), np.exp(epsilon / 2)
    laws = rows * columns
    size = laws + columns + 1
    below, sides = [], []
    for row in range(rows):
        spent = np.zeros(size)
        spent[row * columns : (row + 1) * columns] = cost[row]
        spent[-1] = -1
        below.append(spent)
        for column in range(columns):
            for sign, bound in ((1, most), (-1, least)):
                limit = np.zeros(size)
                limit[row * columns + column] = sign
                limit[laws + column] = -sign * bound
                below.append(limit)
    equal = np.zeros((rows, size))
    for row in range(rows):
        equal[row, row * columns : (row + 1) * columns] = 1
    sides = np.zeros(len(below))
    found = optimize.linprog(
        np.append(np.zeros(size - 1), 1),
        A_ub=np.array(below),
        b_ub=sides,
        A_eq=equal,
        b_eq=np.ones(rows),
        bounds=[(0, None)] * size,
        options={
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
        },
    )
    assert found.status == 0
    return found.fun


_PLACES = 1074  # Of binary numbers: all that floats have.


def _whole(values):
    """Floats in units of 2^−1074: integers, which are quick to add and to compare."""
    ratios = map(float.as_integer_ratio, np.asarray(values, dtype=float).tolist())
    return [n << (_PLACES + 1 - d.bit_length()) for n, d in ratios]


def rational_lower_bound(masses, prices, cost, lower, upper):
    """The dual's value as a rational number, of the floats as they are."""
    g, low, high = _whole(prices), _whole(lower), _whole(upper)
    total = sum(
        mass * min(c - p for c, p in zip(_whole(row), g, strict=True))
        for mass, row in zip(_whole(masses), cost, strict=True)
        if mass > 0
    )
    left = (1 << _PLACES) - sum(low)
    total += sum(p * least for p, least in zip(g, low, strict=True))
    for place in np.argsort(prices).tolist():
        taken = min(max(left, 0), high[place] - low[place])
        total += g[place] * taken
        left -= taken
    return Fraction(total, 1 << (2 * _PLACES))


def rational(value):
    """The number, not negative, that an mpmath float is."""
    sign, mantissa, exponent, _ = value._mpf_
    assert sign == 0
    return Fraction(int(mantissa)) * Fraction(2) ** exponent


def exponential_lower_bound(epsilon):
    """A rational number at most e^ε and very near, by interval arithmetic."""
    with mpmath.workprec(600):
        return rational(mpmath.exp(mpmath.mpf(epsilon)) * (1 - mpmath.mpf(2) ** -500))


def small_case(seed, most=7):
    """A small matrix of costs, and ε."""
    generator = np.random.default_rng(seed)
    k, size = generator.integers(1, most, 2)
    cost = np.round(generator.random((k, size)), 2)
    return cost, float(generator.choice([0.01, 0.5, 2.0, 6.0]))


def ring(size, order=2):
    """Powers of distances on a ring."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    return np.minimum(apart, size - apart).astype(float) ** order


def random_case(generator, most=40):
    """A projection: sizes, metric, order, mass, measure and ε of many kinds."""
    k, size = generator.integers(1, most + 1, 2)
    dimension = generator.integers(1, 4)
    inputs = generator.random((k, dimension))
    outputs = generator.random((size, dimension))
    if generator.random() < 0.3:
        outputs = inputs[generator.integers(0, k, size)]
    distances = np.linalg.norm(inputs[:, np.newaxis] - outputs, axis=2)
    cost = distances ** generator.integers(1, 3)
    kind = generator.integers(3)
    if kind == 0:
        masses = np.eye(k)[generator.integers(k)]
    else:
        masses = generator.dirichlet(np.full(k, [0.1, 1.0][kind - 1]))
        masses = np.where(generator.random(k) < 0.2, 0.0, masses)
        masses = masses / masses.sum() if masses.sum() > 0 else np.eye(k)[0]
    epsilon = float(generator.choice(EPSILONS))
    measure = random_measure(generator, size, epsilon)
    return masses, cost, measure, epsilon


def random_measure(generator, size, epsilon):
    """A feasible base measure: uniform, uneven, or with zeros."""
    kind = generator.integers(3)
    measure = np.ones(size) if kind == 0 else generator.dirichlet(np.full(size, 0.5))
    if kind == 2:
        measure[generator.random(size) < 0.3] = 0.0
    if measure.sum() <= 0:
        measure = np.ones(size)
    place = generator.choice([generator.uniform(-1, 1), -1.0, 1.0], p=[0.8, 0.1, 0.1])
    return measure * (np.exp(place * epsilon / 2) / measure.sum())


def assert_in_polytope(distributions, polytope):
    """Bounds without tolerance, the sum up to rounding."""
    assert (distributions >= polytope.lower).all()
    assert (distributions <= polytope.upper).all()
    np.testing.assert_allclose(distributions.sum(axis=-1), 1.0, rtol=0, atol=1e-12)


def polytope_of(measure, epsilon):
    """The polytope as users get it, with the sum in its range."""
    inside = checks.base_measure(measure, len(measure), epsilon)
    return ldp_polytope.from_base_measure(inside, epsilon)


def assert_private(weights, total, epsilon):
    """Rows sum to the total, and no ratio is above a lower bound of e^ε; exactly."""
    bound = exponential_lower_bound(epsilon)
    columns = [[int(weight) for weight in column] for column in weights.T]
    assert all(sum(row) == total for row in zip(*columns, strict=True))
    for column in columns:
        assert min(column) >= 0
        assert Fraction(max(column)) <= bound * min(column)


seeds = st.integers(0, 2**32 - 1)


def kinds_of_masses(generator, size):
    """Users of every kind, by what their masses are like."""
    heavy = generator.pareto(0.7, size) + 1e-3
    tiny = np.maximum(generator.dirichlet(np.full(size, 0.3)), 1e-300)
    found = {
        "counts": generator.integers(1, 6, size).astype(float),
        "Dirichlet(1)": generator.dirichlet(np.ones(size)),
        "Dirichlet(0.3)": tiny,
        "equal": np.ones(size),
        "near equal": 1 + 1e-3 * generator.random(size),
        "heavy-tailed": heavy,
        "one big": np.append(100.0 * size, generator.random(size - 1)),
        "one place": np.eye(size)[0],
    }
    return {kind: masses / masses.sum() for kind, masses in found.items()}
