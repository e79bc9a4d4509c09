"""Two laws over batches: never below placements and events, and attained by some.

The truths here are quadratures, sums and searches that share no code with the package.
"""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.pairs import batch_laws
from dp_accounting_ext.pairs import batch_programs
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import trade_off_curves

NOISE = {
    "gaussian": (trade_off_curves.GaussianCurves(), stats.norm),
    "laplace": (trade_off_curves.LaplaceCurves(), stats.laplace),
}


def two_sided(first, second, across, within):
    """Classes of i members of one group, or j of another one; (0, 0) is common."""
    sides = [(i, 0) for i in range(len(first))]
    sides += [(0, j) for j in range(1, len(second))]
    p = [first[i] if not j else 0.0 for i, j in sides]
    q = [second[j] if not i else 0.0 for i, j in sides]

    def distance(one, other):
        (i, j), (other_i, other_j) = one, other
        if (i and other_j) or (j and other_i):
            return across(i + other_i, j + other_j)
        return within(i + j, other_i + other_j)

    d = [[distance(one, other) for other in sides] for one in sides]
    return np.array(p), np.array(q), np.array(d, dtype=float)


def binomials(members, rate):
    return [
        math.comb(members, i) * rate**i * (1 - rate) ** (members - i)
        for i in range(members + 1)
    ]


EXAMPLE = np.array([0.8, 0.2, 0.0]), np.array([0.8, 0.0, 0.2]), 1 - np.eye(3)
POISSON = two_sided(
    binomials(3, 0.1), binomials(2, 0.1), lambda i, j: i + j, lambda i, k: abs(i - k)
)


def half_line(p, q, places, kappa, noise):
    """The largest P(x > t) − κ Q(x > t) of noise around places, over some t."""
    low, high = places.min() - 12, places.max() + 12
    for _ in range(3):
        tests = np.linspace(low, high, 2001)
        values = noise.sf(tests[:, None] - places) @ (p - kappa * q)
        best, step = tests[values.argmax()], tests[1] - tests[0]
        low, high = best - 2 * step, best + 2 * step
    return max(values.max(), 0.0)


def delta(pair, kappa, way=Direction.REMOVE):
    return float(pair.delta(math.log(kappa), way))


@pytest.mark.parametrize(
    ("epsilon", "value"), [(0.1, 0.051816), (0.3, 0.024978), (1.0, 0.0022968)]
)
def test_three_points_at_one_distance(epsilon, value):
    """For κ ≥ 1 the worst is a Poisson sample: N(0) but for weight .2 of N(1)."""
    pair = batch_laws.Laws(*EXAMPLE, NOISE["gaussian"][0]).upper_pair(1e-20)
    p, q, _ = EXAMPLE
    truth = half_line(p, q, np.array([0.0, 1.0, 0.0]), math.exp(epsilon), stats.norm)
    for way in Direction:
        found = float(pair.delta(epsilon, way))
        assert truth <= found <= truth * (1 + 1e-5)
    assert truth == pytest.approx(value, rel=3e-5)


@pytest.mark.parametrize("name", NOISE)
def test_members_who_leave_and_join_a_poisson_sample(name):
    """Theorem 3.8: i members are at i, and j at −j, whatever κ is."""
    curves, noise = NOISE[name]
    p, q, d = POISSON
    places = np.array([0.0, 1, 2, 3, -1, -2]) / 2
    laws = batch_laws.Laws(p, q, d / 2, curves)
    pair, lower = laws.upper_pair(1e-20), laws.lower_pairs(1e-20)
    for epsilon in (0.0, 0.02, 0.1, 0.3):
        kappa = math.exp(epsilon)
        truths = (
            half_line(p, q, places, kappa, noise),
            half_line(q, p, -places, kappa, noise),
        )
        for way, truth in zip((Direction.REMOVE, Direction.ADD), truths, strict=True):
            found = delta(pair, kappa, way)
            assert truth <= found <= truth * (1 + 3e-5) + 1e-9
            attained = float(lower.of(way).delta(epsilon, way))
            assert found * (1 - 3e-4) - 1e-9 <= attained <= found


@pytest.mark.parametrize("members", [1, 2, 3])
def test_replaced_members_of_fixed_batches(members):
    """For κ > 1 the worst is that those who join are like the others."""
    weights = stats.hypergeom.pmf(range(members + 1), 1000, members, 50).tolist()
    p, q, d = two_sided(weights, weights, max, lambda i, k: abs(i - k))
    pair = batch_laws.Laws(p, q, d / 2, NOISE["gaussian"][0]).upper_pair(1e-20)
    places = np.array([*range(members + 1), *[0] * members]) / 2
    half = places[: members + 1] / 2
    symmetric = np.append(half, -half[1:])
    for epsilon, at in ((0.0, symmetric), (0.1, places), (0.5, places)):
        truth = half_line(p, q, at, math.exp(epsilon), stats.norm)
        for way in Direction:
            found = delta(pair, math.exp(epsilon), way)
            assert truth <= found <= truth * (1 + 3e-5)


@pytest.mark.parametrize("kappa", [1.0, *nights.at_night(1.4)])
def test_placements_in_the_plane(kappa):
    """Local search among three points in the plane, by quadrature."""
    d = np.array([[0.0, 1.0, 1.2], [1.0, 0.0, 1.5], [1.2, 1.5, 0.0]])
    p, q = np.array([0.6, 0.4, 0.0]), np.array([0.5, 0.0, 0.5])
    pair = batch_laws.Laws(p, q, d, NOISE["gaussian"][0]).upper_pair(1e-12)

    def value(points, number=141):
        points = points.reshape(3, 2)
        apart = np.linalg.norm(points[:, None] - points, axis=2)
        points = points / max(1.0, (apart / (d + np.eye(3))).max())
        axis = np.linspace(-7, 7, number)
        x, y = np.meshgrid(axis, axis)
        squares = np.array([(x - u) ** 2 + (y - v) ** 2 for u, v in points])
        signed = np.tensordot(p - kappa * q, np.exp(-squares / 2), 1)
        cell = (axis[1] - axis[0]) ** 2 / (2 * math.pi)
        return -np.maximum(signed, 0).sum() * cell

    rng = np.random.default_rng(5)
    searches = [
        optimize.minimize(value, start, method="Nelder-Mead", options={"maxfev": 250})
        for start in rng.normal(size=(6, 6))
    ]
    best = min(searches, key=lambda search: search.fun)
    found = delta(pair, kappa)
    assert 0.99 * found < -value(best.x, 1401) <= found


def test_laws_that_are_exchanged_are_noticed():
    assert batch_laws.is_symmetric(*EXAMPLE)
    order = [2, 0, 1]
    p, q, d = EXAMPLE
    assert batch_laws.is_symmetric(p[order], q[order], d[np.ix_(order, order)])
    assert not batch_laws.is_symmetric(*POISSON)
    assert not batch_laws.is_symmetric(
        p, q, np.array([[0, 1, 2], [1, 0, 1.5], [2, 1.5, 0.0]])
    )


@st.composite
def certificates(draw):
    m, n = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    reals = st.floats(0.01, 1.0)
    a, b = (draw(st.lists(reals, min_size=k, max_size=k)) for k in (m, n))
    d = draw(st.lists(st.floats(0.05, 3.0), min_size=m * n, max_size=m * n))
    shares = st.lists(st.floats(1e-6, 1.0), min_size=m * n, max_size=m * n)
    z = draw(st.lists(st.floats(-4.0, 3.0), min_size=n, max_size=n))
    arrays = (np.array(v).reshape(m, n) for v in (d, draw(shares), draw(shares)))
    return np.array(a), np.array(b), *arrays, np.array(z)


@settings(max_examples=60, deadline=None)
@given(certificates(), st.sampled_from(list(NOISE)))
def test_any_multipliers_are_a_certificate(example, name):
    """Even arbitrary λ and ρ are never below a placement."""
    a, b, d, gains, costs, below = example
    curves, noise = NOISE[name]
    gains = gains / gains.sum(axis=1, keepdims=True)
    costs = costs / costs.sum(axis=0)
    bound = batch_programs.certified(
        a[None], b[None], d, curves, gains[None], costs[None]
    )[0]
    above = (below + d).min(axis=1)
    assert a @ noise.cdf(above) - b @ noise.cdf(below) <= bound + 1e-15


def of_placements(a, b, d, name):
    """The value of the placement that is found, and the certified bound."""
    curves, noise = NOISE[name]
    solved = batch_programs.solved(a[None], b[None], d, curves)
    (bound,) = batch_programs.certified(
        a[None], b[None], d, curves, solved.gains, solved.costs
    )
    above = noise.cdf(noise.ppf(solved.below[0]) + d).min(axis=1)
    return math.fsum(a * above) - math.fsum(b * solved.below[0]), bound


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("kappa", [1.1, 20.0, 8000.0])
def test_forty_classes_a_side_without_symmetry(name, kappa):
    """The certificate is within 1e-6 of the value of a placement."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(80, 2))
    a, b = rng.dirichlet(np.ones(40), 2)
    d = np.linalg.norm(points[:40, None] - points[40:], axis=2)
    value, bound = of_placements(a, kappa * b, d, name)
    assert max(value, 0.0) <= bound <= max(value, 0.0) * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("distance", [1e-3, 0.3, 2.0, 9.0])
@pytest.mark.parametrize("threshold", [1e-9, 0.3, 0.999, 1.0, 1.7, 60.0, 1e9])
def test_noise(distance, threshold):
    d, t = mpmath.mpf(distance), mpmath.mpf(threshold)
    with mpmath.workdps(60):
        z = mpmath.log(t) / d
        gaussian = mpmath.ncdf(d / 2 - z) - t * mpmath.ncdf(-d / 2 - z)
        log = mpmath.log(t)
        laplace = max(1 - mpmath.exp((log - d) / 2), 0) if log >= -d else 1 - t
    for curves, truth in (
        (trade_off_curves.GaussianCurves(), gaussian),
        (trade_off_curves.LaplaceCurves(), laplace),
    ):
        found = curves.profile(np.array([distance]), np.array([threshold]))[0]
        assert truth <= found <= truth * (1 + 1e-9) + mpmath.mpf("1e-250")


@pytest.mark.parametrize("kappa", [20.0, 206.0])
def test_a_value_far_above_that_of_the_start(kappa):
    """Forty classes a side in the plane: the best placement is none of those tried.

    What u_i ≤ f_d(u_j) allows at the u_j that were found is a bound from below.
    """
    generator = np.random.default_rng(8)
    points = generator.normal(size=(80, 2))
    p, q = generator.dirichlet(np.ones(80), 2)
    one, other = np.sort(generator.permutation(80).reshape(40, 2).T)
    distances = np.linalg.norm(points[other, np.newaxis] - points[one], axis=2)
    a, b = p[other] / p[other].sum(), kappa * q[one] / q[one].sum()
    least, most = of_placements(a, b, distances, "gaussian")
    curves = NOISE["gaussian"][0]
    (start,) = batch_programs.start(a[None], b[None], distances, curves)[1]
    assert start < least / 10
    assert least <= most <= least * (1 + 1e-5)


@pytest.mark.parametrize(
    ("less", "weight", "distance"),
    [
        (5e-13, 0.5, 3.0),
        (1.4e-10, 6.5e-4, 4.5),
        (3.3e-9, 1.9e-4, 8.2),
        (1e-9, 1e-8, 1),
        (-(2.0**-21), 2.0**-11, 30.0),
    ],
)
def test_laws_that_differ_by_little(less, weight, distance):
    """By more or by less than what counts as a rounding error of a weight."""
    first = np.array([weight, 1 - weight])
    second = np.array([weight * (1 - less), 1 - weight + weight * less])
    apart = distance * (1 - np.eye(2))
    pair = batch_laws.Laws(first, second, apart, NOISE["gaussian"][0]).upper_pair(1e-30)
    place = np.linspace(-20.0, 10.0, 20001)
    far, near = stats.norm.cdf(place + distance), stats.norm.cdf(place)
    for share in (0.0, 0.1, 0.5, 0.9):
        epsilon = share * less
        kappa = Fraction(math.exp(epsilon))
        for way, (p, q) in zip(
            Direction, ((first, second), (second, first)), strict=True
        ):
            weights = [
                Fraction(a) - kappa * Fraction(b) for a, b in zip(p, q, strict=True)
            ]
            gain, cost = float(max(weights)), float(min(weights))
            assert pair.delta(epsilon, way) >= (gain * far + cost * near).max()


def random_laws(seed, size):
    """Two laws over batches in the plane, in which some have no probability."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(size, 2))
    p, q = generator.dirichlet(np.ones(size), 2)
    p[: size // 4] = q[size // 4 : size // 2] = 0
    distances = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
    return p / p.sum(), q / q.sum(), distances


@pytest.mark.parametrize("seed", [1, *nights.at_night(2, 3, 4)])
@pytest.mark.parametrize("common", [1, 2, 4])
def test_the_profile_ends_with_the_largest_loss(seed, common):
    """Laplace noise on a line has its largest losses beyond all batches."""
    generator = np.random.default_rng(seed)
    near, far = 0.02 * generator.normal(size=common), generator.uniform(0.1, 0.5, 16)
    place = np.concatenate([near, far])
    second = np.append(generator.dirichlet(np.ones(common)), np.zeros(16))
    first = 0.3 * second
    first[common:] = 0.7 * generator.dirichlet(np.ones(16))
    largest = max(
        math.log(first @ np.exp(way * place)) - math.log(second @ np.exp(way * place))
        for way in (-1, 1)
    )
    distances = np.abs(np.subtract.outer(place, place))
    laws = batch_laws.Laws(first, second, distances, NOISE["laplace"][0])
    pair = laws.upper_pair(1e-15)
    assert pair.delta(1.01 * largest, Direction.REMOVE) == 0
    assert pair.delta(0.9 * largest, Direction.REMOVE) > 0


@pytest.mark.parametrize(("seed", "size"), [(0, 6), *nights.at_night((0, 10), (4, 10))])
def test_any_mechanism_that_is_known_by_its_profile(seed, size):
    """With the profile of Gaussian noise, nearly as good as Gaussian noise itself."""
    gaussian = NOISE["gaussian"][0]
    p, q, distances = random_laws(seed, size)
    distances = np.ceil(3 * distances / distances.max()) / 2
    for middle in range(size):  # No detour is shorter.
        through = distances[:, [middle]] + distances[middle]
        distances = np.minimum(distances, through)
    thresholds = np.geomspace(1, 1e9, 400)
    known = {}
    for distance in np.unique(distances[distances > 0]):
        profile = gaussian.profile(np.full(400, distance), thresholds)
        known[distance] = profile_pairs.Hinges.of(
            profile_pairs.pair_above(thresholds, profile)
        )
    curves = trade_off_curves.PairCurves(known)
    pair = batch_laws.Laws(p, q, distances, curves).upper_pair(1e-15)
    noise = batch_laws.Laws(p, q, distances, gaussian).upper_pair(1e-15)
    for epsilon in (0.05, 0.5, 2.0):
        for way in Direction:
            best = noise.delta(epsilon, way)
            assert pair.delta(epsilon, way) <= best * 1.04


@pytest.mark.parametrize(
    ("loss", "excess", "first", "second"),
    [
        (1.0, 1e-6, [0.369, 0.131, 0.32, 0.18], [0.145, 0.161, 0.521, 0.173]),
        (0.2, 1e-3, [0.2, 0.5, 0.3], [0.15, 0.6, 0.25]),
    ],
)
def test_any_two_batches_of_a_private_mechanism(loss, excess, first, second):
    """Two outputs attain the bound: one is likelier on some classes, by all it may be.

    The profile has kinks at which it falls by a factor of a thousand.
    """
    base = batch_mechanisms.NeighboringBatches(
        discrete_outputs.PrivacyParameters(loss, excess)
    )
    apart = 1 - np.eye(len(first))
    mechanism = batches.on_batch_laws(base, first, second, apart)
    epsilons = [0.05, 0.19, 0.2, 0.25, 0.27, 0.271, 0.28]
    for way, (p, q) in zip(Direction, ((first, second), (second, first)), strict=True):
        bounds = privacy_bounds.PrivacyBounds({mechanism: 1}, 1e-4, [way])
        for epsilon, found in zip(
            epsilons, bounds.upper_deltas(np.array(epsilons)), strict=True
        ):
            with mpmath.workdps(40):
                grown, more = mpmath.exp(loss), mpmath.mpf(excess)
                kappa = mpmath.exp(epsilon)
                weights = [mpmath.mpf(a) - kappa * b for a, b in zip(p, q, strict=True)]
                gain = sum(weight for weight in weights if weight > 0)
                cost = sum(weight for weight in weights if weight < 0)
                # From any level the likelier classes have e^ε times as much, and δ.
                levels = mpmath.mpf(0), (1 - more) / (1 + grown)
                truth = max(gain * (grown * low + more) + cost * low for low in levels)
                assert truth <= found <= max(truth, 0) * 1.03 + 1e-15
