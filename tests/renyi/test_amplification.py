"""Rényi divergences of allocations, batches and shifts, against other quadrature."""

import math

from dp_accounting import dp_event as stock
from dp_accounting.rdp import rdp_privacy_accountant as library
from flint import arb
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import pytest
import renyi_oracles

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import renyi_curves
from dp_accounting_ext.renyi import gaussian_allocation
from dp_accounting_ext.renyi import shifted_noise
from dp_accounting_ext.renyi import subsampling

TIGHT = 1 + arb(10) ** -10


def rdp(noise, steps, orders):
    one = additive_noise.Gaussian(noise)
    return renyi_curves.of(allocated.allocate(one, 1, steps), orders).values


@pytest.mark.parametrize("noise", [0.15, 1.0, 20.0])
def test_two_steps_against_50_digits(noise):
    orders = [1.01, 1.9, 2.0, 2.6, 17.0, 40.0][: 3 if noise < 0.3 else None]
    for order, found in zip(orders, rdp(noise, 2, orders), strict=True):
        remove, add = (
            renyi_oracles.two_step_rdp(order, noise, remove=remove)
            for remove in (True, False)
        )
        truth = remove.max(add)
        assert truth <= found
        assert found <= truth * (1 + 1e-5)


@pytest.mark.parametrize(
    ("noise", "steps"),
    [(1.0, 1000), (1.0, 10**6), (0.3, 100), (20.0, 10**6), (1000.0, 10**9), (2.0, 5)],
)
def test_integer_moments_against_the_power_series(noise, steps):
    truths = renyi_oracles.raw_moments(24, noise, steps)
    orders = {2, 3, 9, 24}
    got = gaussian_allocation.log_remove_moments(orders, noise, steps)
    for order in orders:
        truth = truths[order].log()
        assert abs(got[order] - truth) <= 1e-12 * truth
        rdp = gaussian_allocation.removing_rdp([order], noise, steps)[0]
        assert truth / (order - 1) <= rdp <= truth / (order - 1) * TIGHT


@pytest.mark.parametrize(
    ("noise", "steps"), [(5.0, 10**4), (1.0, 10**6), (100.0, 10**6), (3.0, 1000)]
)
def test_adding_against_moments_of_many_steps(noise, steps):
    orders = 1.0000001, 1.5, 3.0, 8.3
    one = allocated.allocate(additive_noise.Gaussian(noise), 1, steps)
    _, found, _ = renyi_curves.both_ways(one, orders)
    raw = renyi_oracles.raw_moments(30, noise, steps)
    central = renyi_oracles.central_moments(raw)
    for order, value in zip(orders, found, strict=True):
        truth, rest = renyi_oracles.add_rdp_by_moments(order, central)
        assert rest < 1e-18
        assert truth <= value


@pytest.mark.parametrize("noise", [1e-60, 1e-40, 1e-3, 1e6, 1e60])
@pytest.mark.parametrize("steps", [2, 10**12])
def test_extreme_parameters_have_valid_answers(noise, steps):
    orders = [1.0, 1.5, 2.0, 2.5, 64.0, 4096.0, 1e7, math.inf]
    got = rdp(noise, steps, orders)
    assert not np.any(np.isnan(got))
    assert np.all(got > 0)
    assert got[-1] == math.inf
    # E Z^α ≥ t^{1−α} E X^α, and more where α log t is small.
    least = np.array(orders[2:7]) / (2 * noise**2) - math.log(steps)
    assert np.all(got[2:7] >= least)


ORDERS = [2.0, 3.0]


def moments(sigma, parameter):
    """E X² and E X³ of Gaussian and Laplace noise together, X the ratio under Q."""
    b = 1 / mpmath.mpf(parameter)
    found = []
    for power in (2, 3):
        gaussian = mpmath.exp(power * (power - 1) / (2 * mpmath.mpf(sigma) ** 2))
        # With τ = 1/b: half of the line has the ratio e^τ, a part e^−τ.
        last = power - 1
        laplace = mpmath.mpf(power) / (2 * power - 1) * mpmath.exp(
            last * b
        ) + mpmath.mpf(last) / (2 * power - 1) * mpmath.exp(-power * b)
        found.append(gaussian * laplace)
    return found


@pytest.mark.parametrize("steps", [1, 2, 100])
@pytest.mark.parametrize(("sigma", "parameter"), [(1.0, 1.0), (3.0, 0.7), (0.5, 4.0)])
def test_one_of_t_gaussian_and_laplace_steps(steps, sigma, parameter):
    """Nothing bounded the tail of their sum, and so every order was infinite."""
    both = stock.ComposedDpEvent(
        [stock.GaussianDpEvent(sigma), stock.LaplaceDpEvent(parameter)]
    )
    event = ext.RandomAllocationEvent(both, 1, steps) if steps > 1 else both
    found = ext.RdpAccountant(ORDERS).compose(event).rdp
    with mpmath.workdps(40):
        second, third = moments(sigma, parameter)
        t = mpmath.mpf(steps)
        removed = [
            mpmath.log((second + t - 1) / t),
            mpmath.log((third + 3 * (t - 1) * second + (t - 1) * (t - 2)) / t**2) / 2,
        ]
    for got, exact in zip(found, removed, strict=True):
        assert exact <= got
        # Of little noise in one of t steps a record that is removed tells more.
        if sigma <= parameter:
            assert got <= exact * 1.002


@pytest.mark.parametrize("delta", [1e-4, *nights.at_night(1e-9)])
def test_schedules_and_samples_of_them_have_an_epsilon(delta):
    both = stock.ComposedDpEvent(
        [stock.GaussianDpEvent(1.0), stock.LaplaceDpEvent(1.0)]
    )
    schedule = ext.ScheduledAllocationEvent(
        [both, stock.GaussianDpEvent(2.0), stock.LaplaceDpEvent(3.0)], [3, 4, 5], 20
    )
    for event in (schedule, stock.PoissonSampledDpEvent(0.1, schedule)):
        losses = ext.PLDAccountant().compose(event)
        least, _ = losses.get_epsilon_bounds(delta)
        found = ext.RdpAccountant().compose(event).get_epsilon(delta)
        assert least <= found <= least + 1


RATES = [1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99]


def divergence(order, p, q):
    """The divergence of P from Q, which have the same outcomes, in 40 digits."""
    pairs = list(zip(p, q, strict=True))
    if order == 1:
        return sum(x * mpmath.log(x / y) for x, y in pairs)
    return mpmath.log(sum((x / y) ** order * y for x, y in pairs)) / (order - 1)


def laws_of(logs, losses):
    """Three laws on the same outcomes, as ratios to one law."""
    tilted = [
        [mpmath.exp(m) * mpmath.exp(x) for m, x in zip(logs, t, strict=True)]
        for t in losses
    ]
    return [[x / sum(law) for x in law] for law in tilted]


@st.composite
def triples(draw):
    """Masses, and three lists of losses, of which two may be the same."""
    size = draw(st.integers(2, 5))
    logs = [draw(st.floats(-12, 0)) for _ in range(size)]
    scale = 10 ** draw(st.floats(-2, 0.8))
    losses = [[scale * draw(st.floats(-2, 2)) for _ in range(size)] for _ in range(3)]
    losses[2] = losses[draw(st.sampled_from([2, 2, 1, 0]))]
    return logs, losses


@settings(max_examples=100, deadline=None)
@given(triples(), st.sampled_from(RATES), st.integers(2, 15))
def test_no_three_laws_diverge_more(triple, rate, order):
    """Two laws of batches with the record, and one without; all pairs are neighbors."""
    with mpmath.workdps(40):
        laws = p, q, a = laws_of(*triple)
        curve = {
            i: max(divergence(i, x, y) for x in laws for y in laws if x is not y)
            for i in range(1, order + 1)
        }

        def known(orders):
            # Rounded up. Between integers that of the next one, by monotonicity.
            return np.array(
                [float(curve[math.ceil(i)]) * (1 + 1e-15) + 1e-30 for i in orders]
            )

        (bound,) = subsampling.without_replacement_rdp([order], known, rate)
        m = [(1 - rate) * x + rate * y for x, y in zip(a, p, strict=True)]
        n = [(1 - rate) * x + rate * y for x, y in zip(a, q, strict=True)]
        assert divergence(order, m, n) <= bound


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.4])
def test_it_is_at_most_the_bound_for_gaussian_noise(noise, rate):
    """That of Wang, Balle and Kasiviswanathan, as dp_accounting has it."""
    orders = [3, 4, 10, 63, 200]

    def curve(orders):
        return np.array(orders) / (2 * noise**2)

    found = subsampling.without_replacement_rdp(orders, curve, rate)
    for order, bound in zip(orders, found, strict=True):
        log_moment = library._compute_rdp_sample_wor_gaussian_int(rate, noise, order)
        assert bound <= log_moment / (order - 1)


def test_golden_value():
    """σ = 4, γ = .1, order 10: .0434 by Theorem 9, .0139 for Gaussian noise alone."""
    (bound,) = subsampling.without_replacement_rdp(
        [10], lambda orders: np.array(orders) / 32, 0.1
    )
    assert bound == pytest.approx(0.011656, rel=1e-3)


def test_nothing_and_everything():
    def nothing(orders):
        return np.zeros(len(orders))

    def everything(orders):
        return np.full(len(orders), math.inf)

    orders = [1.0, 1.5, 2.0, 5000.0, math.inf]
    assert not subsampling.without_replacement_rdp(orders, nothing, 0.3).any()
    found = subsampling.without_replacement_rdp(orders, everything, 0.3)
    assert np.isinf(found).all()


NOTHING = ((0.0, 1.0),)
THREE = ((0.0, 0.5), (1.0, 0.3), (2.0, 0.2))
UNEVEN = ((0.0, 0.9), (0.3, 0.07), (1.1, 0.03))
NEAR = ((0.25, 0.5), (0.25 + 1e-9, 0.25), (0.7, 0.25))
RARE = ((0.0, 1 - 1e-9), (0.1, 9e-10), (4.0, 1e-10))
# p, q, α.
CASES = [
    (THREE, NOTHING, 2.0),
    (THREE, NOTHING, 30.0),
    (NOTHING, THREE, 1.5),
    (NOTHING, THREE, 12.0),
    (UNEVEN, THREE, 3.3),
    (THREE, UNEVEN, 8.0),
    (NEAR, NOTHING, 5.0),
    (NEAR, UNEVEN, 2.5),
    (RARE, NOTHING, 2.0),
    (NOTHING, RARE, 7.0),
    (((0.0, 0.99), (1 / 3000, 0.01)), NOTHING, 1024.0),
    (((0.0, 0.99), (1e-5, 0.01)), NOTHING, 1.1),
]


@pytest.mark.parametrize(("p", "q", "order"), CASES)
def test_against_50_digits(p, q, order):
    laws = (shifted_noise.mixture(each) for each in (p, q))
    (found,) = shifted_noise.rdp([order], *laws)
    exact = renyi_oracles.shifts_rdp(p, q, order)
    assert exact <= found <= exact * (1 + arb(10) ** -9)


@pytest.mark.parametrize("order", [1.3, 4.0, 25.0])
def test_a_mechanism_has_the_larger_direction(order):
    q = tuple((-shift, weight) for shift, weight in UNEVEN)
    (found,) = additive_noise.GaussianMixture(THREE, q).rdp([order]).values
    exact = renyi_oracles.shifts_rdp(THREE, UNEVEN, order).max(
        renyi_oracles.shifts_rdp(UNEVEN, THREE, order)
    )
    assert exact <= found <= exact * (1 + arb(10) ** -9)


@pytest.mark.parametrize("sigma", [3e3, 1e4, 3e4, 1e8, 1e30])
def test_much_noise_is_no_harder_than_little(sigma):
    """At σ = 30,000 the lattice was given up, and δ = 1e-6 had an ε of 0.006."""
    event = stock.PoissonSampledDpEvent(0.01, stock.GaussianDpEvent(sigma))
    accountant = ext.RdpAccountant([1.1, 2.0, 16.0, 1024.0]).compose(event)
    # χ² is r² (e^{1/σ²} − 1); small, all orders are multiples of it.
    exact = np.array([1.1, 2.0, 16.0, 1024.0]) / 2 * 1e-4 * np.expm1(sigma**-2)
    assert (accountant.rdp >= exact * (1 - 1e-3)).all()
    assert accountant.rdp == pytest.approx(exact, rel=0.05)


def test_shifts_may_be_many_or_alike():
    alike = additive_noise.GaussianMixture(((0.5, 0.25),) * 4, NOTHING)
    assert alike.rdp([2.0]).values[0] >= 0.25
    assert alike.rdp([2.0]).values == pytest.approx([0.25], rel=1e-10)
    many = additive_noise.GaussianMixture(
        tuple((i / 40, 1 / 40) for i in range(40)), NOTHING
    )
    assert many.rdp([2.0]) is None


@pytest.mark.parametrize("log_error", [-1.0, -8.0, *nights.at_night(-3.0, -20.0)])
def test_the_rule_is_as_accurate_as_promised(log_error):
    """At order 2, of N(0, 1) from a mixture: the integrand has poles off the line."""
    p, q = (
        shifted_noise.mixture(NOTHING),
        shifted_noise.mixture(((0.0, 0.5), (2.0, 0.5))),
    )
    step = shifted_noise._step(2.0, log_error, p, q)
    with mpmath.workdps(40):

        def f(x):
            return mpmath.npdf(x) / (1 + mpmath.exp(2 * x - 2)) * 2

        truth = mpmath.quad(f, np.linspace(-14, 14, 29).tolist())
        errors = []
        for shift in (0.0, 0.25, 0.5):
            lattice = [step * (n + shift) for n in range(-400, 401)]
            total = step * mpmath.fsum(f(x) for x in lattice)
            errors.append(abs(total / truth - 1))
        assert max(errors) <= mpmath.exp(log_error)
        # The step is not needlessly small either.
        assert max(errors) >= mpmath.exp(1.5 * log_error - 3)


GROUPS = [
    # α, K₋, K₊, r, σ
    (2.0, 1, 0, 0.01, 1.0),
    (3.0, 4, 0, 0.2, 0.7),
    (30.0, 1, 0, 1e-4, 1.0),
    (2.0, 16, 0, 1e-3, 5.0),
    (1.5, 1, 1, 0.3, 1.0),
    (8.0, 0, 3, 0.2, 0.8),
    (3.0, 8, 8, 0.5, 3.0),
    (1.1, 2, 2, 1e-4, 5.0),
    (1.01, 0, 4, 1e-3, 10.0),
    (10.0, 2, 2, 0.999, 1.0),
    (2.0, 0, 1, 1e-6, 20.0),
    (40.0, 0, 4, 0.7, 1.0),
    # Nearly everybody in the sample: q changes late. Nearly nobody: Ψ is next to 1.
    (50.5, 1, 2, 1 - 1.4e-5, 4.4),
    (10.0, 1, 7, 1.3e-6, 16.2),
]


@pytest.mark.parametrize(("order", "removed", "inserted", "rate", "noise"), GROUPS)
def test_groups_against_50_digits(order, removed, inserted, rate, noise):
    rows = shifted_noise.group_rdp([order], removed + inserted, rate, noise)
    truth = renyi_oracles.group_rdp(order, removed, inserted, rate, noise)
    assert truth <= rows[removed, 0] <= truth * (1 + arb(10) ** -10)


def test_order_one_is_the_kullback_leibler_divergence():
    truth = renyi_oracles.group_rdp(1, 2, 1, 0.1, 2.0)
    got = shifted_noise.group_rdp([1.0], 3, 0.1, 2.0)[2, 0]
    assert truth <= got <= truth * (1 + arb(10) ** -8)


def test_no_noise_and_no_sampling():
    assert np.all(shifted_noise.group_rdp([1.0, 7.0], 3, 0.2, 0.0) == math.inf)
    assert np.all(shifted_noise.group_rdp([1.0, 7.0], 3, 0.0, 0.0) == 0.0)
    everybody = shifted_noise.group_rdp([1.5, 7.0], 3, 1.0, 2.0)
    assert np.all(everybody >= np.array([1.5, 7.0]) * 9 / 8)
    np.testing.assert_allclose(everybody, [[1.6875, 7.875]], rtol=1e-10)


@pytest.mark.parametrize("noise", [1e-60, 1e-40, 1e-3, 1e6, 1e60])
@pytest.mark.parametrize("rate", [1e-12, 0.5, 1 - 1e-12])
def test_extreme_groups_have_valid_answers(rate, noise):
    orders = [1.0, 1.5, 2.0, 64.0, 4096.0]
    rows = shifted_noise.group_rdp(orders, 2, rate, noise)
    assert not np.any(np.isnan(rows))
    assert np.all(rows > 0)
    if noise < 1e-2:
        # r^α e^{α(α − 1) K²/2σ²} is part of the moment of all-remove.
        exact = np.array([2 * order / noise**2 for order in orders[2:]])
        lost = 2 * np.array(orders[2:]) / (np.array(orders[2:]) - 1) * math.log(rate)
        assert np.all(rows[-1, 2:] >= exact + lost)


def test_a_step_that_may_reveal_everything_makes_no_sample():
    """One of four steps has noise, one reveals the record, and two never ran."""
    steps = [stock.GaussianDpEvent(1.0), stock.NonPrivateDpEvent()]
    event = ext.ScheduledAllocationEvent(steps, [1, 1], 4, 1)
    accountant = ext.RdpAccountant().compose(event)
    assert accountant.get_epsilon(0.249) == math.inf
    assert ext.PLDAccountant().compose(event).get_delta(50.0) >= 0.25
