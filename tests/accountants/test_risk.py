"""Risks hold the truth between them where it is known, and agree with one another."""

from fractions import Fraction
import math
import pathlib

import dp_accounting
import mpmath
import nights
import numpy as np
import oracles
import pytest
from scipy import stats

import dp_accounting_ext as ext
from dp_accounting_ext import risk

Relation = dp_accounting.NeighboringRelation
NOISES = [0.05, 0.3, 1.0, 2.0, 50.0, 1e6]
PRIORS = [1e-300, 1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 2**-40]
RATES = [1e-300, 1e-12, 1e-3, 0.2, 0.5, 0.99, 1.0]
# Randomized response over two buckets flips an answer with half of this chance.
PARAMETERS = [1e-6, 0.1, 0.5, 0.9, 1.0]


def cdf(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def quantile(rate):
    """Φ⁻¹, by bisection: no inverse of the library's is asked."""
    low, high = mpmath.mpf(-60), mpmath.mpf(60)
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle) < rate else (low, middle)
    return low


def gaussian(noise):
    return ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(noise))


def contains(bounds, truth, width):
    lower, upper = bounds
    assert 0 <= lower <= truth <= upper <= 1
    assert upper - lower <= width


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


def assert_risks(accountant, advantage, success, power):
    """What is said holds success at a prior, and a test's power at a rate."""
    contains(risk.advantage(accountant), advantage, 1e-11)
    powers = {rate: power(rate) for rate in RATES}
    for prior in map(mpmath.mpf, PRIORS):
        found = risk.membership_success(accountant, float(prior))
        contains(found, success(prior), 1e-11)
        for rate, known in powers.items():
            share = prior * known / (prior * known + (1 - prior) * rate)
            found = risk.positive_predictive_value(accountant, rate, float(prior))
            contains(found, share, 1e-9)
            contains(risk.attack_success(accountant, rate), known, 1e-9)


@pytest.mark.parametrize("noise", NOISES)
def test_gaussian_noise(noise):
    mean = 1 / mpmath.mpf(noise)

    def success(prior):
        odds = mpmath.log((1 - prior) / prior)
        right = prior * cdf(mean / 2 - odds / mean)
        return right + (1 - prior) * cdf(mean / 2 + odds / mean)

    def power(rate):
        return 1 if rate == 1 else cdf(quantile(rate) + mean)

    assert_risks(gaussian(noise), 2 * cdf(mean / 2) - 1, success, power)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_flipped_bit(parameter):
    flip = mpmath.mpf(parameter) / 2

    def power(rate):
        """The trade-off curve: two straight lines."""
        if rate <= flip:
            return rate * (1 - flip) / flip
        return 1 - flip + (rate - flip) * flip / (1 - flip)

    event = dp_accounting.RandomizedResponseDpEvent(parameter, 2)
    accountant = ext.PLDAccountant(Relation.REPLACE_ONE).compose(event)
    assert_risks(accountant, 1 - 2 * flip, lambda p: max(p, 1 - p, 1 - flip), power)


EVENTS = {
    "Poisson": dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(0.8)),
        100,
    ),
    "allocation": ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(0.6), 1, 6),
    "Laplace": dp_accounting.LaplaceDpEvent(1.5),
    "group": ext.GroupSubsampledEvent(
        3, dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    ),
}


@pytest.mark.parametrize("name", ["Laplace", "group", *nights.at_night(*EVENTS)])
def test_no_risk_is_better_than_the_curve_allows(name):
    """Every test on the curve is an attack, which each bound must cover."""
    accountant = ext.PLDAccountant().compose(EVENTS[name])
    rates = np.concatenate([np.logspace(-8, -1, 15), np.linspace(0.1, 1, 19)])
    least, most = accountant.get_true_positive_rate_bounds(rates)
    assert (risk.advantage(accountant)[1] >= least - rates).all()
    assert risk.advantage(accountant)[0] <= (most - rates).max() + 0.05
    for prior in (1e-6, 0.2, 0.5, 0.8):
        right = prior * least + (1 - prior) * (1 - rates)
        lower, upper = risk.membership_success(accountant, prior)
        assert upper >= right.max()
        assert lower <= upper
        assert Fraction(upper) >= max(Fraction(prior), 1 - Fraction(prior))
        named = prior * least / (prior * least + (1 - prior) * rates)
        for rate, share in zip(rates[::6], named[::6], strict=True):
            found = risk.positive_predictive_value(accountant, float(rate), prior)
            assert found[1] >= share * (1 - 1e-15)


def test_the_page_shows_these_words():
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    text = risk.in_words(ext.PLDAccountant().compose(step, 1000))
    page = pathlib.Path(__file__).parent.parent.parent / "docs" / "risk.md"
    assert f"```text\n{text}\n```" in page.read_text(encoding="utf-8")


def holds(bounds, truth):
    """Floats are compared as the numbers that they are, without any tolerance."""
    lower, upper = bounds
    return mpmath.mpf(lower) <= truth <= mpmath.mpf(upper)


@pytest.mark.parametrize("size", [60, *nights.at_night(3000)])
def test_bounds_of_a_published_mu_hold_to_the_last_digit(size):
    for mu in [0.32051820206581044, *np.geomspace(1e-3, 8, size).tolist()]:
        assert holds(risk.advantage(risk.published(mu=mu)), 2 * cdf(mu / 2) - 1), mu
    rng = np.random.default_rng(1)
    for mu in rng.uniform(0, 4, size).tolist():
        prior, rate = rng.uniform(size=2).tolist()
        odds = mpmath.log((1 - mpmath.mpf(prior)) / prior) / mu
        right = prior * cdf(mu / 2 - odds) + (1 - prior) * cdf(mu / 2 + odds)
        success = max(right, prior, 1 - mpmath.mpf(prior))
        power = cdf(quantile(rate) + mu)
        share = prior * power / (prior * power + (1 - mpmath.mpf(prior)) * rate)
        known = risk.published(mu=mu)
        assert holds(risk.membership_success(known, prior), success)
        assert holds(risk.attack_success(known, rate), power)
        assert holds(risk.positive_predictive_value(known, rate, prior), share)


def test_bounds_of_a_published_epsilon_hold_to_the_last_digit():
    rng = np.random.default_rng(2)
    for epsilon in np.geomspace(1e-6, 300, 100).tolist():
        prior, rate = rng.uniform(size=2).tolist()
        delta = 10 ** rng.uniform(-12, 0) if rng.uniform() < 0.5 else 0.0
        kept, factor = 1 - mpmath.mpf(delta), mpmath.exp(epsilon)
        known = risk.published(epsilon=epsilon, delta=delta)
        largest = delta + kept * mpmath.tanh(mpmath.mpf(epsilon) / 2)
        assert holds(risk.advantage(known), largest)
        # With the probability δ all is revealed; else a bit is flipped.
        right = delta + kept * max(factor / (1 + factor), prior, 1 - mpmath.mpf(prior))
        assert holds(risk.membership_success(known, prior), right)
        ends = factor * rate + delta, 1 - (1 - mpmath.mpf(rate) - delta) / factor, 1
        power = min(map(mpmath.mpf, ends))
        share = prior * power / (prior * power + (1 - mpmath.mpf(prior)) * rate)
        assert holds(risk.attack_success(known, rate), power)
        assert holds(risk.positive_predictive_value(known, rate, prior), share)


def test_mu_is_that_of_the_relation_it_was_published_for():
    for relation in Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE:
        known = risk.published(mu=1.0, neighboring_relation=relation)
        assert known.neighboring_relation is relation
        assert holds(risk.advantage(known), 2 * cdf(mpmath.mpf(0.5)) - 1)
    assert risk.advantage(risk.published(mu=0.0)) == (0, 0)


@pytest.mark.parametrize("mu", [0.01, 0.7, 3.0])
def test_of_a_published_rho_there_is_worse_than_gaussian_noise(mu):
    """Which has ρ = μ² / 2."""
    for rate in (1e-9, 1e-3, 0.2):
        known = cdf(quantile(mpmath.mpf(rate)) + mpmath.mpf(mu))
        assert risk.attack_success(risk.published(rho=mu**2 / 2), rate)[1] > known


def needed(expected, reached, rates):
    """The least κ of each rate, by bisection."""
    low, high = np.zeros(rates.size), np.ones(rates.size)
    for _ in range(50):
        middle = (low + high) / 2
        enough = expected(rates) <= reached(np.minimum(rates + middle, 1.0)) + middle
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high.max()


def test_a_regret_holds_the_truth():
    def curve(mu):
        return lambda rate: stats.norm.cdf(stats.norm.ppf(rate) + mu)

    def response(rate):
        return np.minimum(math.e * rate, 1 - (1 - rate) / math.e)

    asked = ext.PLDAccountant(Relation.REPLACE_ONE).compose(
        dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    )
    for accountant, reached, mu in (
        (risk.published(mu=1.0), curve(1.0), 1.0),
        (risk.published(mu=1.0), curve(1.0), 1.5),
        (risk.published(mu=0.1), curve(0.1), 3.0),
        (asked, response, 2.5),
        (asked, response, 1.23),
    ):
        places = [*np.geomspace(1e-9, 0.5, 300), *np.linspace(0.01, 0.99, 300)]
        most = needed(curve(mu), reached, np.array(places))
        low, high = risk.gaussian_regret(accountant, mu)
        assert most - 1e-9 <= high <= most + 2e-3
        assert low - 1e-4 <= most and low >= most - 2e-3
    assert risk.gaussian_regret(risk.published(mu=1.0), 1.0)[0] == 0
    low, high = risk.gaussian_regret(risk.published(mu=1.0), math.inf)
    most = needed(np.ones_like, curve(1.0), np.zeros(1))
    assert low <= most <= high <= low + 2e-3


def _epsilons_of(order, divergence, delta):
    """The smaller of two conversions: by all of the moment, and by its excess."""
    slope = order - 1
    spread = mpmath.log1p(-1 / order)
    of_moment = divergence + spread - mpmath.log(delta * order) / slope
    excess = mpmath.expm1(slope * divergence) / (order * delta)
    log_z = mpmath.log1p(excess) / slope
    ratio = mpmath.expm1(order * log_z) / mpmath.expm1(slope * log_z)
    return min(of_moment, mpmath.log(ratio) + spread)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (1.0, 1e-5),
        *nights.at_night((499.0, 1e-6), (0.01, 1e-3), (20.0, 1e-10)),
    ],
)
def test_the_largest_parameters_are_between_what_is_enough_and_what_is_not(
    epsilon, delta
):
    """By the closed δ of Gaussian noise, and by conversions of divergences."""
    with mpmath.workdps(50):
        enough, short = risk.largest_mu(epsilon, delta)
        assert oracles.gaussian_delta(enough, epsilon) <= delta
        assert delta < oracles.gaussian_delta(short, epsilon)
        assert short < enough * 1.0001
        enough, short = risk.largest_rho(epsilon, delta)
        assert delta < oracles.gaussian_delta(mpmath.sqrt(2 * short), epsilon)
        orders = 1 + mpmath.mpf(epsilon) / enough / 2 * np.geomspace(0.2, 5, 161)
        nearly = delta * mpmath.exp(1e-3)
        found = min(_epsilons_of(a, a * enough, nearly) for a in orders)
        assert found <= epsilon
        assert short < enough * (2 if epsilon < 0.1 else 1.25)
    tiny = risk.largest_rho(epsilon, 1e-300)
    assert tiny[0] == 0 < tiny[1] < short
