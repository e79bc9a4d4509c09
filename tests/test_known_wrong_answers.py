"""Answers that were wrong once, asked through the public API alone.

Each truth is made here: from exact fractions, from every outcome of a few, or by mpmath
from closed forms. Where only a bound on the truth is at hand it is on the side that the
answer has to be on. Safe sides have no tolerance. What was answered is in the comments.
"""

import dataclasses
import itertools
import math
import warnings

import attr
import dp_accounting
from dp_accounting import dp_event as stock
import mpmath
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.kernel import dominating_pair

Gaussian = dp_accounting.GaussianDpEvent
DiscreteLaplace = stock.DiscreteLaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Allocation = ext.RandomAllocationEvent
Schedule = ext.ScheduledAllocationEvent

DIGITS = 60
ORDERS = [1.1, 2, 2.4, 3, 3.1, 3.7, 5.9, 10.7, 12, 40, 256]


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(DIGITS), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@attr.s(frozen=True, slots=True, auto_attribs=True)
class OutcomesEvent(dp_accounting.DpEvent):
    """A mechanism with a few outputs, of a third party.

    Attributes:
        p: Their probabilities with the record.
        q: Their probabilities without it.
    """

    p: tuple[float, ...]
    q: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Outcomes(mechanisms.OnePairMechanism):
    p: tuple[float, ...]
    q: tuple[float, ...]
    is_sorted: bool = True

    def pair(self, bound, tail_mass):
        p, q = np.array(self.p), np.array(self.q)
        both = (p > 0) & (q > 0)
        ratios, masses = p[both] / q[both], q[both]
        if self.is_sorted:
            order = np.argsort(ratios)
            ratios, masses = ratios[order], masses[order]
        return dominating_pair.DominatingPair(
            ratios,
            masses,
            infinity_mass=float(p[q == 0].sum()),
            zero_mass=float(q[p == 0].sum()),
            bound=bound,
            mass_error=1e-14,
            ratio_error=1e-14,
        )


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PairEvent(dp_accounting.DpEvent):
    """A third party's event whose pair is written out, right or wrong."""

    ratios: tuple[float, ...]
    masses: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class GivenPair(mechanisms.OnePairMechanism):
    ratios: tuple[float, ...]
    masses: tuple[float, ...]

    def pair(self, bound, tail_mass):
        ratios, masses = np.array(self.ratios), np.array(self.masses)
        return dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, bound, 0.0, 0.0)


ext.PLDAccountant.register(OutcomesEvent, lambda e, _: Outcomes(e.p, e.q))
ext.PLDAccountant.register(PairEvent, lambda e, _: GivenPair(e.ratios, e.masses))


def composed(*events):
    accountant = ext.PLDAccountant()
    for event in events:
        accountant.compose(event)
    return accountant


# Truths.


def normal_above(x):
    return mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2


def normal_quantile(rate):
    """Returns c with Q(noise > c) = rate, by Newton's method on the logarithm."""
    goal = mpmath.log(mpmath.mpf(rate))
    start = mpmath.sqrt(-2 * goal)
    return mpmath.findroot(lambda c: mpmath.log(normal_above(c)) - goal, start)


def gaussian_delta(sigma, epsilon):
    """δ of the Gaussian mechanism: https://arxiv.org/abs/1805.06530, Theorem 8."""
    shift, level = 1 / mpmath.mpf(sigma), mpmath.mpf(epsilon)
    spent = mpmath.exp(level) * normal_above(level / shift + shift / 2)
    return normal_above(level / shift - shift / 2) - spent


def one_of_two_delta(sigma, epsilon):
    """Returns δ of a test of 1 of 2 steps: is the first step's output above c?"""
    shift, kappa = 1 / mpmath.mpf(sigma), mpmath.exp(mpmath.mpf(epsilon))
    best = mpmath.mpf(0)
    for place in range(-40, 41):
        c = (mpmath.mpf(epsilon) + mpmath.log(2)) / shift + shift / 2
        c += mpmath.mpf(place) / 40
        with_record = (normal_above(c - shift) + normal_above(c)) / 2
        best = max(best, with_record - kappa * normal_above(c))
    return best


def two_outcomes(parameter):
    """Discrete Laplace noise and a sensitivity of one: all outputs are of two kinds."""
    parameter = mpmath.mpf(parameter)
    likely = 1 / (1 + mpmath.exp(-parameter))
    rare = 1 / (1 + mpmath.exp(parameter))
    return [(likely, rare), (rare, likely)]  # (P, Q), from the largest loss on.


def product(*laws):
    return [
        tuple(mpmath.fprod(each) for each in zip(*outcomes, strict=True))
        for outcomes in itertools.product(*laws)
    ]


def sampled(law, rate):
    return [((1 - rate) * q + rate * p, q) for p, q in law]


def allocated(law, selected, steps):
    """Every outcome of k of t steps, the mean over all sets of k."""
    found = []
    sets = list(itertools.combinations(range(steps), selected))
    for outcomes in itertools.product(law, repeat=steps):
        q = mpmath.fprod(each[1] for each in outcomes)
        p = mpmath.fsum(
            mpmath.fprod(
                each[0 if step in chosen else 1] for step, each in enumerate(outcomes)
            )
            for chosen in sets
        )
        found.append((p / len(sets), q))
    return found


def delta_of(law, epsilon):
    """The larger direction's δ."""
    kappa = mpmath.exp(mpmath.mpf(epsilon))
    remove = mpmath.fsum(max(p - kappa * q, 0) for p, q in law)
    add = mpmath.fsum(max(q - kappa * p, 0) for p, q in law)
    # Probabilities that are floats sum to one but for rounding.
    return min(max(remove, add), mpmath.mpf(1))


def of_floats(p, q):
    return [(mpmath.mpf(x), mpmath.mpf(y)) for x, y in zip(p, q, strict=True)]


def assert_holds(accountant, law, epsilons):
    """Both bounds are on their sides of an exact law, alone and asked together."""
    truths = [delta_of(law, epsilon) for epsilon in epsilons]
    many = accountant.get_delta_bounds(np.array(epsilons))
    for place, (epsilon, truth) in enumerate(zip(epsilons, truths, strict=True)):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= truth <= upper
        assert many[0][place] <= truth <= many[1][place]
        assert accountant.get_delta(epsilon) >= truth


# 1. Rényi divergences by way of pairs. (At order 3.1 and σ = .07: 307.1 for 316.3.)


@pytest.mark.parametrize("sigma", [0.05, 0.07, 0.1, 0.2, 0.3])
def test_renyi_divergences_of_a_schedule_of_one_step(sigma):
    accountant = ext.RdpAccountant(ORDERS)
    accountant.compose(Schedule([Gaussian(sigma)], [1], 1))
    for order, found in zip(accountant.orders, accountant.rdp, strict=True):
        truth = mpmath.mpf(order) / (2 * mpmath.mpf(sigma) ** 2)
        assert found >= truth


@pytest.mark.parametrize("sigma", [0.07, 0.3])
@pytest.mark.parametrize("kind", ["schedule", "diagonal", "stopped"])
def test_renyi_divergences_of_one_of_two_steps(sigma, kind):
    """E Z^α is at least 2^−α times each step's E X^α, and Σ of both."""
    alike, event = 2, Schedule([Gaussian(sigma)], [2], 2)
    if kind == "diagonal":
        alike, event = 1, ext.MatrixAllocationEvent([[1, 0], [0, 0.9]], sigma, 2, 1)
    elif kind == "stopped":
        alike, event = 1, Schedule([Gaussian(sigma)], [1], 2)
    accountant = ext.RdpAccountant(ORDERS).compose(event)
    for order, found in zip(accountant.orders, accountant.rdp, strict=True):
        order = mpmath.mpf(order)
        moment = order * (order - 1) / (2 * mpmath.mpf(sigma) ** 2)
        least = (moment - order * mpmath.log(2) + mpmath.log(alike)) / (order - 1)
        assert found >= least


# 2 and 3. Q's mass was 0 where P's was not. (At ε = 600: 3e-138, at least 3.4e-90.)


@pytest.mark.parametrize(
    ("sigma", "epsilon"),
    [(0.05, 580), (0.05, 600), (0.05, 650), (0.05, 690), (0.038, 662), (0.06, 500)],
)
def test_delta_of_one_of_two_far_out(sigma, epsilon):
    accountant = composed(Allocation(Gaussian(sigma), 1, 2))
    truth = one_of_two_delta(sigma, epsilon)
    assert accountant.get_delta(epsilon) >= truth > 0
    if truth > 1e-300:
        epsilon_upper = accountant.get_epsilon(float(truth))
        assert epsilon_upper >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize(
    ("sigma", "epsilon"),
    [(0.05, 600), (0.05, 699), (1 / 29, 690), (0.034, 665), (0.3, 300), (0.1, 420)],
)
def test_delta_of_a_gaussian_composed_with_next_to_nothing(sigma, epsilon):
    """The Gaussian alone is a function of both."""
    accountant = composed(Gaussian(sigma), dp_accounting.LaplaceDpEvent(1e6))
    truth = gaussian_delta(sigma, epsilon)
    assert accountant.get_delta(epsilon) >= truth > 0
    assert accountant.get_delta(np.array([epsilon]))[0] >= truth


# 4 and 5. A cost among denormals, times e^700; products of two rare masses.


@pytest.mark.parametrize("epsilon", [1.0, 340.0, 349.5, 690.0, 699.7, 705.0])
def test_two_rare_samples(epsilon):
    """1.3e-295 was answered at 699.7, for 7.2e-21."""
    rate, parameter = 1.75e-10, 372.45
    event = Poisson(rate, DiscreteLaplace(parameter, 1))
    once = sampled(two_outcomes(parameter), mpmath.mpf(rate))
    truth = delta_of(product(once, once), epsilon)
    accountant = ext.PLDAccountant().compose(event, 2)
    assert accountant.get_delta(epsilon) >= truth


# 6. Registered laws with masses among the denormals.


@pytest.mark.parametrize("rare", [1e-318, 1e-322, 3e-310, 1e-301, 1e-292])
def test_registered_masses_among_denormals(rare):
    law = (1 - 1e-21, 1e-21), (1 - rare, rare)
    accountant = composed(OutcomesEvent(*law))
    assert_holds(accountant, of_floats(*law), [0.0, 1.0, 600.0, 640.0, 683.473])
    halves = allocated(of_floats(*law), 1, 2)
    accountant = composed(Allocation(OutcomesEvent(*law), 1, 2))
    asked = [0.5, 610.0, 640.0, 665.0, 683.0, 683.473, 684.1]
    assert_holds(accountant, halves, asked)


# 7. Rates among the denormals. (σ = .05, α = 5e-324: 6 % of the truth was answered.)


@pytest.mark.parametrize("sigma", [0.03, 0.05, 0.07, 0.1, 0.3])
@pytest.mark.parametrize("rate", [1e-290, 1e-307, 1e-309, 1e-320, 5e-324])
def test_true_positive_rates_at_the_rarest_false_ones(sigma, rate):
    truth = normal_above(normal_quantile(rate) - 1 / mpmath.mpf(sigma))
    for accountant in (
        composed(Gaussian(sigma)),
        composed(Schedule([Gaussian(sigma)], [1], 1)),
    ):
        lower, upper = accountant.get_true_positive_rate_bounds(rate)
        assert lower <= truth <= upper
    more = composed(Gaussian(sigma), dp_accounting.LaplaceDpEvent(1e6))
    assert more.get_true_positive_rates(rate) >= truth


# 8. Registered pairs are input.


@pytest.mark.parametrize(
    ("ratios", "masses", "message"),
    [
        # An ε of 2e-13 was answered, for 19.459.
        ((7e8, 1e-9), (1e-9, 0.3), "ratios must be increasing. Found 1e-09 after 7"),
        ((0.5, 2.0, 1.0), (0.4, 0.2, 0.4), "ratios must be increasing. Found 1.0 aft"),
        ((0.5, math.nan), (0.5, 0.5), "ratios must be positive and finite. Found nan"),
        ((-0.5, 2.0), (0.5, 0.5), "ratios must be positive and finite. Found -0.5"),
        ((0.5, math.inf), (0.5, 0.5), "ratios must be positive and finite. Found inf"),
        ((0.5, 2.0), (0.5, math.nan), "masses must be finite and at least 0. Found na"),
        ((0.5, 2.0), (0.5, -0.1), "masses must be finite and at least 0. Found -0.1"),
        ((0.5, 2.0), (0.5,), r"must have one shape, \(n,\). Found \(2,\) and \(1,\)"),
    ],
)
def test_registered_pairs_are_checked(ratios, masses, message):
    accountant = composed(PairEvent(ratios, masses))
    with pytest.raises(ValueError, match=message):
        accountant.get_epsilon(1e-6)


# Divergences that fit no float. (Of a sample of a sample of a Gaussian's: 0, and so ε.)


@pytest.mark.parametrize("noise", [Gaussian(1.0), dp_accounting.LaplaceDpEvent(1.0)])
@pytest.mark.parametrize("depth", [2, 4])
def test_renyi_divergences_of_samples_of_samples(noise, depth):
    event = noise
    for _ in range(depth):
        event = Poisson(1e-100, event)
    accountant = ext.RdpAccountant([1.5, 2, 8, 64]).compose(event)
    assert (accountant.rdp > 0).all()
    # The total variation of either is at least .38.
    assert accountant.get_delta(0.0) >= mpmath.mpf(0.38) * mpmath.mpf(1e-100) ** depth
    assert accountant.get_epsilon(0.0) > 0


# 9. Numbers, whatever the noise. (NaN was answered at every order.)


@pytest.mark.parametrize("sigma", [0.01, 0.03, 0.05])
def test_matrix_mechanisms_of_little_noise(sigma):
    event = ext.MatrixAllocationEvent([1, 0.5], sigma, 2, 1)
    accountant = ext.RdpAccountant(ORDERS).compose(event)
    precision = 1 / mpmath.mpf(sigma) ** 2
    for order, found in zip(accountant.orders, accountant.rdp, strict=True):
        order = mpmath.mpf(order)
        # Bins' squared norms are 1.25 and 1; E Z^α is at least 2^−α times either's.
        moment = order * (order - 1) * mpmath.mpf("1.25") * precision / 2
        assert found >= (moment - order * mpmath.log(2)) / max(order - 1, 1e-30)


# 10. An answer, not a traceback.


def test_two_of_three_of_large_losses():
    """A ZeroDivisionError was raised."""
    accountant = composed(Allocation(DiscreteLaplace(80, 1), 2, 3))
    law = allocated(two_outcomes(80), 2, 3)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert delta_of(law, upper) <= 1e-6
    assert lower == 0 or delta_of(law, lower) >= 1e-6
    assert_holds(accountant, law, [0.5, 70.0, 100.0, 158.0])


def test_runs_of_which_hardly_anything_is_finite():
    """An IndexError was raised: (9/17)^999 is less than the masses that are kept."""
    law = (0.4375, 0.0, 0.5625), (0.25, 0.5, 0.25)
    accountant = ext.PLDAccountant().compose(OutcomesEvent(*law), 999)
    lower, upper = accountant.get_delta_bounds(0.5)
    assert 1 - 1e-6 < lower <= 1 - mpmath.mpf(2) ** -999 <= upper


# 11. Bounds that cross are no answer.


def test_a_crossing_far_below_any_delta_is_not_hidden():
    """All of δ below 1e-12 were moved together, whatever they were."""

    @attr.s(frozen=True, slots=True, auto_attribs=True)
    class RareWrongEvent(dp_accounting.DpEvent):
        pass

    @dataclasses.dataclass(frozen=True)
    class RareWrong(mechanisms.OnePairMechanism):
        def pair(self, bound, tail_mass):
            upper = bound is dominating_pair.Bound.UPPER
            gain = 1e-30 if upper else 1e-28
            return dominating_pair.DominatingPair(
                np.array([1.0, 1e10]),
                np.array([1 - gain / 1e10, gain / 1e10]),
                0.0,
                0.0,
                bound,
            )

    ext.PLDAccountant.register(RareWrongEvent, lambda _, __: RareWrong())
    with pytest.raises(ArithmeticError, match="is above the upper one"):
        composed(RareWrongEvent()).get_delta_bounds(3.0)
