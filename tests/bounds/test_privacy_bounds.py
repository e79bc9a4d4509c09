"""Certified answers of a composition: truths of what has one, and laws of the rest."""

import itertools
import math

import asked
from dp_accounting import dp_event as stock
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
accountant_of = asked.accountant_of
Gaussian = additive_noise.Gaussian
Response = discrete_outputs.RandomizedResponse
LAPLACE = additive_noise.laplace(2.0)
SAMPLE = subsampled.on_poisson_sample(0.1, Gaussian(1.0))

DRAW = ((0.5, 0.25), (0.25, 0.25), (0.25, 0.5))
COARSE_DRAW = ((0.5, 0.25), (0.5, 0.75))
# None of them needs another's pairs: each is one kind of route to an answer.
COMPOSITIONS = [
    {Gaussian(2.0): 1},
    {Gaussian(3.0): 5, Gaussian(5.0): 2},
    {SAMPLE: 1},
    {SAMPLE: 40},
    {LAPLACE: 3, Response(0.5, 3, True): 1},
    {subsampled.poisson_sampled(0.1, LAPLACE): 10, Gaussian(4.0): 1},
    {allocated.RandomAllocation(Gaussian(1.0), 1, 20): 2},
    {discrete_outputs.PrivateDraw(DRAW, (DRAW, COARSE_DRAW)): 8},
]
DELTAS = (0.0, 1e-200, 1e-12, 1e-6, 0.01, 0.5)
EPSILONS = (-50.0, -1.0, 0.0, 0.3, 2.0, 30.0)


def brackets(bounds):
    """Returns both bounds on ε at each δ, and on δ at each ε."""
    epsilons = [(bounds.lower_epsilon(d), bounds.upper_epsilon(d)) for d in DELTAS]
    uppers = [bounds.upper_delta(e) for e in EPSILONS]
    lowers = [bounds.lower_delta(e, u) for e, u in zip(EPSILONS, uppers, strict=True)]
    return epsilons, list(zip(lowers, uppers, strict=True))


@pytest.mark.parametrize("counts", COMPOSITIONS, ids=range(len(COMPOSITIONS)))
def test_bounds_are_ordered_and_fall(counts):
    epsilons, deltas = brackets(asked.bounds_of(counts))
    assert all(0 <= low <= high for low, high in epsilons)
    assert all(0 <= low <= high <= 1 for low, high in deltas)
    for (_, before), (after, _) in itertools.pairwise(epsilons):
        assert after <= before
    for (_, before), (after, _) in itertools.pairwise(deltas):
        assert after <= before


@pytest.mark.parametrize("counts", COMPOSITIONS, ids=range(len(COMPOSITIONS)))
def test_epsilon_at_delta_has_that_delta(counts):
    bounds = asked.bounds_of(counts)
    for delta in (1e-12, 1e-6, 0.01):
        epsilon = bounds.upper_epsilon(delta)
        # Near the largest loss of all, rounding is about as much.
        assert bounds.upper_delta(epsilon) <= delta * 1.01 + 1e-12
        assert bounds.lower_delta(epsilon, 1.0) <= delta


@pytest.mark.parametrize("counts", COMPOSITIONS[3:7], ids=range(4))
def test_wider_intervals_only_widen(counts):
    fine, coarse = asked.bounds_of(counts, 1e-4), asked.bounds_of(counts, 0.05)
    for delta in (1e-9, 0.01):
        assert fine.lower_epsilon(delta) <= coarse.upper_epsilon(delta)
        assert coarse.lower_epsilon(delta) <= fine.upper_epsilon(delta)
        assert fine.upper_epsilon(delta) <= coarse.upper_epsilon(delta) * 1.001


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.floats(0.3, 50.0).map(Gaussian),
        st.integers(1, 50),
        min_size=1,
        max_size=3,
    ),
    st.floats(0.0, 8.0),
)
def test_gaussians_are_one(counts, epsilon):
    with mpmath.workdps(40):
        precision = sum(
            n / mpmath.mpf(part.noise_multiplier) ** 2 for part, n in counts.items()
        )
        mean = mpmath.sqrt(precision)
    truth = oracles.gaussian_delta(mean, epsilon)
    bounds = asked.bounds_of(counts)
    upper = bounds.upper_delta(epsilon)
    assert bounds.lower_delta(epsilon, upper) <= truth <= upper
    if 1e-280 < truth < 1:
        delta = float(truth)
        high, low = bounds.upper_epsilon(delta), bounds.lower_epsilon(delta)
        assert oracles.gaussian_delta(mean, high) <= delta
        assert low == 0 or oracles.gaussian_delta(mean, low) >= delta


@pytest.mark.parametrize("count", [1, 2, 4])
def test_responses_by_enumeration(count):
    noise, buckets = 0.5, 3
    with mpmath.workdps(40):
        other = mpmath.mpf(noise) / buckets
        truth = 1 - mpmath.mpf(noise) + other
        laws = [truth, other, other], [other, truth, other]
        p, q = (
            [mpmath.fprod(way) for way in itertools.product(law, repeat=count)]
            for law in laws
        )
    bounds = asked.bounds_of({Response(noise, buckets, True): count})
    for epsilon in (-1.0, 0.0, 0.7, 1.9):
        exact = oracles.discrete_deltas(p, q, epsilon)["remove"]
        upper = bounds.upper_delta(epsilon)
        lower = bounds.lower_delta(epsilon, upper)
        assert lower <= exact <= upper <= exact * 1.01 + 1e-12
    with mpmath.workdps(40):
        assert bounds.upper_epsilon(0.0) >= count * mpmath.log(truth / other)
        assert bounds.upper_epsilon(0.0) <= count * mpmath.log(truth / other) * (
            1 + mpmath.mpf(1e-9)
        )


def test_above_the_largest_loss_nothing_is_left():
    bounds = asked.bounds_of({LAPLACE: 4})
    largest = bounds.upper_epsilon(0.0)
    assert 2.0 <= largest <= 2.0 * (1 + 1e-9)
    for epsilon in (largest, 3.0, 1e300):
        assert bounds.upper_delta(epsilon) == bounds.lower_delta(epsilon, 1.0) == 0.0
    assert bounds.lower_delta(2.0 * (1 - 1e-3), 1.0) > 0
    # Of a Gaussian every loss is possible.
    assert (
        asked.bounds_of({LAPLACE: 4, Gaussian(9.0): 1}).upper_epsilon(0.0) == math.inf
    )


def test_nothing_at_all():
    bounds = asked.bounds_of({})
    assert bounds.upper_epsilon(0.0) == bounds.upper_epsilon(1e-6) == 0.0
    assert bounds.upper_delta(0.0) == 0.0
    assert bounds.lower_delta(-1.0, 1.0) <= -math.expm1(-1.0) <= bounds.upper_delta(-1)


def test_what_is_known_above_only_has_no_lower_bound():
    bounds = asked.bounds_of({known_bounds.UpperOnly(Gaussian(1.0)): 2})
    same = asked.bounds_of({Gaussian(1.0): 2})
    assert bounds.lower_epsilon(1e-6) == 0.0
    assert bounds.lower_delta(0.5, 1.0) == 0.0
    assert bounds.upper_epsilon(1e-6) >= same.lower_epsilon(1e-6)
    assert bounds.upper_epsilon(1e-6) == pytest.approx(same.upper_epsilon(1e-6), 1e-3)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.sampled_from([COMPOSITIONS[i] for i in (0, 1, 2, 4, 7)]),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(DELTAS),
    st.sampled_from(EPSILONS),
)
def test_the_worst_of_several_is_the_largest(counts, delta, epsilon):
    each = [asked.bounds_of(given_counts) for given_counts in counts]
    worst = asked.Asked(privacy_bounds.WorstOf([one.bounds for one in each]))
    high = max(one.upper_epsilon(delta) for one in each)
    assert worst.upper_epsilon(delta) == high
    low, same = worst.epsilon_bounds(delta)
    assert same == high
    # A lower bound of any scenario is one of the largest.
    assert low in [0.0, high, *(one.lower_epsilon(delta) for one in each)]
    high = max(one.upper_delta(epsilon) for one in each)
    assert worst.upper_delta(epsilon) == high
    low, same = worst.delta_bounds(epsilon)
    assert same == high
    assert 0 <= low <= high
    lowers = [one.lower_delta(epsilon, one.upper_delta(epsilon)) for one in each]
    assert low <= max(lowers)
    assert (low > 0) == (max(lowers) > 0)


ENOUGH = [
    groups.GroupedNoise(6, 0.8, False, groups.Poisson(0.05)),
    groups.GroupedNoise(5, 1.5, True, groups.Poisson(0.2)),
    groups.GroupedNoise(4, 20.0, False, groups.Poisson(0.3)),
]


@pytest.mark.parametrize("group", ENOUGH, ids=range(len(ENOUGH)))
@pytest.mark.parametrize("count", [1, 30])
def test_what_is_ruled_out_is_below_what_is_enough(group, count):
    """Easy bounds are bounds in either direction, and do where they are enough."""
    deltas, epsilons = np.array([1e-12, 1e-6, 0.01]), np.array([0.01, 0.5, 3.0])
    for removed in (1, group.group_size):
        counts = {group.split(removed, group.group_size - removed): count}
        bounds = privacy_bounds.PrivacyBounds(counts, 1e-4)
        tight, lower = bounds.upper_epsilons(deltas), bounds.lower_epsilons(deltas)
        tight_delta = bounds.upper_deltas(epsilons)
        lower_delta = bounds.lower_deltas(epsilons, tight_delta)
        for factor in (0.5, 0.999, 1.001, 1.1, 3.0):
            enough = factor * tight
            found = bounds.upper_epsilons(deltas, enough)
            assert (found >= lower).all()
            assert ((found <= enough) if factor > 1 else (found == tight)).all()
            enough = factor * tight_delta
            found = bounds.upper_deltas(epsilons, enough)
            assert (found >= lower_delta).all()
            assert ((found <= enough) if factor > 1 else (found == tight_delta)).all()


def test_what_is_ruled_out_is_not_composed_tightly(monkeypatch):
    """Of scenarios that are nearly alike the worst alone is."""
    group = groups.GroupedNoise(40, 20.0, False, groups.Poisson(0.01))
    each = [
        privacy_bounds.PrivacyBounds({group.split(removed, 40 - removed): 300}, 1e-4)
        for removed in range(40, 19, -1)
    ]
    tight = []
    worst = privacy_bounds.PrivacyBounds._worst

    def counted(self, *args):
        tight.append(self)
        return worst(self, *args)

    monkeypatch.setattr(privacy_bounds.PrivacyBounds, "_worst", counted)
    privacy_bounds.WorstOf(each).upper_epsilons(np.array([1e-6]))
    assert len(tight) <= 3


def test_a_second_composition_is_made_where_the_first_rules_nothing_out(monkeypatch):
    """A chain of members, of which each pair takes as long as all else."""
    batches = groups.FixedSize(1000, 20, with_replacement=False)
    group = groups.GroupedNoise(6, 5.0, False, batches)
    counts = {group.split(3, 3): 20}
    bounds = privacy_bounds.PrivacyBounds(counts, 1e-4)
    alternatives = bounds._alternatives(Bound.UPPER)
    first, chain = (asked.bounds_of(each).upper_epsilon(1e-6) for each in alternatives)
    assert chain < first
    made = []
    loss = privacy_bounds.PrivacyBounds._loss

    def spied(self, bound, direction, level, alternative=0, rough=False):
        made.append(alternative)
        return loss(self, bound, direction, level, alternative, rough)

    monkeypatch.setattr(privacy_bounds.PrivacyBounds, "_loss", spied)
    for enough, numbers in ((1.01 * first, {0}), ((first + chain) / 2, {0, 1})):
        made.clear()
        found = bounds.upper_epsilons(np.array([1e-6]), np.array([enough]))
        assert found[0] <= enough
        assert set(made) == numbers


class TestExtremes:
    @pytest.mark.parametrize(
        ("event", "count", "delta", "most"),
        [
            # Where e^ε fits no float, or hardly, the bound without amplification holds.
            (
                stock.PoissonSampledDpEvent(0.01, stock.GaussianDpEvent(0.03)),
                1,
                1e-6,
                713.1,
            ),
            (
                ext.GroupSubsampledEvent(
                    64, stock.PoissonSampledDpEvent(0.5, stock.GaussianDpEvent(1.0))
                ),
                1,
                1e-6,
                2352,
            ),
            (
                ext.GroupSubsampledEvent(
                    8, stock.PoissonSampledDpEvent(0.1, stock.GaussianDpEvent(0.3))
                ),
                1,
                1e-30,
                690,
            ),
            # Shifts far apart, of which the far ones are rare.
            pytest.param(
                *(
                    ext.GroupSubsampledEvent(
                        8,
                        stock.PoissonSampledDpEvent(0.01, stock.GaussianDpEvent(0.15)),
                    ),
                    2,
                    1e-6,
                    325.1,
                ),
                marks=pytest.mark.slow,
            ),
            (
                ext.RandomAllocationEvent(stock.GaussianDpEvent(0.033), 1, 100),
                1,
                1e-6,
                597.65,
            ),
            (
                ext.RandomAllocationEvent(stock.GaussianDpEvent(0.036), 1, 10**6),
                1,
                1e-6,
                503.12,
            ),
        ],
    )
    def test_losses_at_the_end_of_floats(self, event, count, delta, most):
        accountant = accountant_of(event, count)
        lower, upper = accountant.get_epsilon_bounds(delta)
        assert 0 < lower <= upper <= most
        assert accountant.get_delta(upper) <= delta * (1 + 1e-3)

    def test_a_far_tail_spoils_no_small_delta(self):
        """Losses in the tail's own lump must not decide what lies below them."""
        event = ext.ScheduledAllocationEvent(
            [stock.GaussianDpEvent(17.7), stock.LaplaceDpEvent(25.0)], [4, 1], 12
        )
        accountant = accountant_of(event, 10)
        epsilon = accountant.get_epsilon(1e-12)
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert 0.9e-12 < lower <= upper < 1.01e-12

    def test_rare_jumps_beside_tiny_losses(self):
        mixture = stock.MixtureOfGaussiansDpEvent(1.24, [0.0, 1.0], [0.5, 0.5])
        accountant = accountant_of(stock.PoissonSampledDpEvent(2e-6, mixture), 1000)
        lower, upper = accountant.get_delta_bounds(0.0)
        assert 0 < lower <= upper < 20 * lower


@pytest.mark.slow
@pytest.mark.parametrize("count", [10**5, 10**6, 10**7, 10**8])
def test_very_many_runs(count):
    """Of ever rarer samples, near the Gaussian limit: μ = λ √n √(e^{1/σ²} − 1)."""
    scale, sigma = 0.01, 2.0
    event = stock.PoissonSampledDpEvent(
        scale / math.sqrt(count), stock.GaussianDpEvent(sigma)
    )
    lower, upper = accountant_of(event, count).get_epsilon_bounds(1e-6)
    # Bounds on rounding grow with the number of runs, in lower bounds above all.
    assert lower <= upper <= lower * (1 + 3e-5 + count * 7e-11)
    limit = scale * math.sqrt(math.expm1(sigma**-2))
    assert upper == pytest.approx(gaussian.epsilon(limit, 1e-6, Bound.UPPER), rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "sigma", "count", "width"),
    [(1e-6, 0.3, 10**6, 1e-4), (1e-6, 0.3, 10**7, 1e-3), (1e-3, 1.0, 10**6, 1e-4)],
)
def test_very_many_runs_with_rare_large_losses(rate, sigma, count, width):
    event = stock.PoissonSampledDpEvent(rate, stock.GaussianDpEvent(sigma))
    lower, upper = accountant_of(event, count).get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + width)
    # A record in one epoch of 1 / λ steps each is about as private.
    epochs = round(count * rate)
    allocation = ext.RandomAllocationEvent(
        stock.GaussianDpEvent(sigma), 1, round(1 / rate)
    )
    allocated = accountant_of(allocation, epochs).get_epsilon(1e-6)
    assert upper == pytest.approx(allocated, rel=0.1)


def test_a_lower_bound_that_is_left_with_nothing():
    """Losses of 270, two of them: no sum of these is certain enough to be kept."""
    certain = stock.DiscreteLaplaceDpEvent(30.0, 9)
    event = ext.ScheduledAllocationEvent(
        [stock.GaussianDpEvent(1.0), ext.RandomAllocationEvent(certain, 2, 5)],
        [1, 2],
        4,
    )
    lower, upper = accountant_of(event).get_epsilon_bounds(1e-3)
    assert 0 <= lower <= upper <= 540.1


@pytest.mark.parametrize("runs", [10**8, 10**9])
def test_a_bound_on_very_many_runs_is_one(runs):
    """σ = √T: together, the Gaussian mechanism with noise multiplier one."""
    event = stock.MixtureOfGaussiansDpEvent(math.sqrt(runs), [1.0], [1.0])
    accountant = ext.PLDAccountant().compose(event, runs)
    lower, upper = accountant.get_delta_bounds(2.0)
    with mpmath.workdps(40):
        mean = mpmath.sqrt(runs) / mpmath.mpf(math.sqrt(runs))
        assert lower <= oracles.gaussian_delta(mean, 2.0) <= upper


@pytest.mark.parametrize("epsilon", [705.0, 710.0, 1e4, 1e155, 1e300, 1.7e308])
@pytest.mark.parametrize(
    "event",
    [
        stock.GaussianDpEvent(1.0),
        ext.RandomAllocationEvent(stock.GaussianDpEvent(1.0), 1, 10),
        stock.SelfComposedDpEvent(
            ext.RandomAllocationEvent(stock.GaussianDpEvent(1.0), 1, 10), 3
        ),
        stock.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0),
        ext.PLDSubsampleEvent(
            0.1, stock.SelfComposedDpEvent(stock.LaplaceDpEvent(1.0), 3)
        ),
    ],
    ids=["gaussian", "allocation", "allocations", "truncated", "sampled"],
)
def test_delta_at_an_epsilon_beyond_floats(event, epsilon):
    """It is hardly anything, and a number."""
    lower, upper = ext.PLDAccountant().compose(event).get_delta_bounds(epsilon)
    assert type(lower) is type(upper) is float
    assert 0 <= lower <= upper < 1e-12


def test_a_record_that_is_rarely_sampled_costs_no_more_than_that_chance():
    """Hardly any noise: δ is the chance of any of 100 draws, or nothing is left."""
    sample = subsampled.on_poisson_sample(0.01, Gaussian(0.02))
    bounds = asked.bounds_of({sample: 100})
    ever = 1 - 0.99**100
    assert bounds.upper_epsilon(ever * (1 + 1e-7)) == 0.0
    assert bounds.upper_epsilon(ever * 0.99) > 0
    assert ever * (1 - 1e-3) <= bounds.upper_delta(0.0) <= ever * (1 + 1e-7)


def test_no_bracket_holds_everything():
    """A coin, deep inside of samples: δ(0) is a product, or no more than that."""
    inner = discrete_outputs.RandomizedResponse(0.5, 2, replace_one=True)
    delta = 0.5
    for _ in range(6):
        inner = subsampled.poisson_sampled(0.01, inner)
        delta *= 0.01
        for count in (1, 5):
            upper = asked.bounds_of({inner: count}).upper_delta(0.0)
            assert delta <= upper <= count * delta * (1 + 1e-6)


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_a_large_atom_beside_little_noise(delta):
    """Nearly all of δ is of the largest of a few losses, with a Gaussian beside it."""
    counts = {discrete_outputs.DiscreteLaplace(0.941, 7): 1, Gaussian(25.8): 1}
    bounds = asked.bounds_of(counts)
    lower, upper = bounds.lower_epsilon(delta), bounds.upper_epsilon(delta)
    with mpmath.workdps(30):
        at_lower, at_upper = (
            mpmath.fsum(
                oracle_of_laplace(0.941, output)
                * gaussian_delta(
                    1 / mpmath.mpf(25.8), at - 0.941 * (abs(output - 7) - abs(output))
                )
                for output in range(-60, 70)
            )
            for at in (lower, upper)
        )
        assert at_lower >= delta >= at_upper
    assert upper - lower < 1e-6 * upper


def oracle_of_laplace(parameter, output):
    return mpmath.tanh(parameter / 2) * mpmath.exp(-parameter * abs(output))


def gaussian_delta(mean, epsilon):
    spent = mpmath.exp(epsilon) * mpmath.ncdf(-mean / 2 - epsilon / mean)
    return mpmath.ncdf(mean / 2 - epsilon / mean) - spent


QUICK = [
    {SAMPLE: 40},
    {SAMPLE: 1, LAPLACE: 2},
    {LAPLACE: 3, Response(0.5, 3, True): 1},
    {subsampled.poisson_sampled(0.1, LAPLACE): 10, Gaussian(4.0): 1},
    {discrete_outputs.DiscreteLaplace(0.3, 3): 2},
    {subsampled.on_poisson_sample(1e-4, Gaussian(0.7)): 5000},
    {subsampled.on_poisson_sample(1e-3, Gaussian(7.0)): 150},
]


@pytest.mark.parametrize("counts", QUICK, ids=range(len(QUICK)))
def test_one_number_is_answered_as_many_are(counts):
    """To the last digit: read at once, by arrays, and at a first question."""
    deltas = np.geomspace(0.3, 1e-30, 9)
    epsilons = np.append(np.linspace(0.0, 6.0, 9), [0.013, 40.0])
    bounds = privacy_bounds.PrivacyBounds(counts, 1e-4)
    at_deltas = bounds.upper_epsilons(deltas)
    at_epsilons = bounds.upper_deltas(epsilons)
    at_once = 0
    for asked_for, found, quick, many in (
        (deltas, at_deltas, "_upper_epsilon", "upper_epsilons"),
        (epsilons, at_epsilons, "_upper_delta", "upper_deltas"),
    ):
        for place, value in enumerate(asked_for.tolist()):
            answer = float(found[place])
            if place % 4 == 0:
                first = privacy_bounds.PrivacyBounds(counts, 1e-4)
                assert getattr(first, many)(np.array([value])).tolist() == [answer]
            again = getattr(bounds, quick)(value)
            assert again is None or again == answer
            at_once += again is not None
    assert at_once >= 8


def coins_delta(probability, runs, epsilon):
    """δ of coins that tell a bit with this probability, in exact binomials."""
    with mpmath.workdps(700):
        p, kappa = mpmath.mpf(probability), mpmath.exp(mpmath.mpf(epsilon))
        return mpmath.fsum(
            mpmath.binomial(runs, wrong)
            * max(
                p ** (runs - wrong) * (1 - p) ** wrong
                - kappa * (1 - p) ** (runs - wrong) * p**wrong,
                0,
            )
            for wrong in range(runs + 1)
        )


@pytest.mark.parametrize(("loss", "runs"), [(25.0, 30), (240.0, 3), (690.0, 40)])
def test_a_few_losses_that_fit_no_float_as_a_ratio(loss, runs):
    """Sums of 700 nats and more are neither cut off nor taken for 700."""
    with mpmath.workdps(700):
        probability = 1 / (1 + mpmath.exp(-mpmath.mpf(loss)))
    answer = asked.bounds_of({discrete_outputs.DiscreteLaplace(loss, 1): runs})
    for epsilon in (runs * loss - share for share in (30.0, 1.0, 1e-3)):
        upper = answer.upper_delta(epsilon)
        lower = answer.lower_delta(epsilon, upper)
        assert lower <= coins_delta(probability, runs, epsilon) <= upper
        assert upper - lower <= 1e-8
    lower, upper = answer.lower_epsilon(1e-3), answer.upper_epsilon(1e-3)
    assert coins_delta(probability, runs, lower) >= 1e-3
    assert coins_delta(probability, runs, upper) <= 1e-3
    assert upper - lower <= 1e-6 * upper


SELECTED = {subsampled.on_poisson_sample(0.01, Gaussian(1.0)): 1000}


@pytest.mark.parametrize(
    ("counts", "is_ruled_out"),
    [(SELECTED, True), ({subsampled.on_poisson_sample(0.5, Gaussian(5.0)): 50}, False)],
)
def test_a_direction_that_another_rules_out_is_not_looked_at(counts, is_ruled_out):
    """Nor is its answer larger; the second time it is no other."""
    bounds = asked.bounds_of(counts)
    first = bounds.upper_epsilon(1e-5)
    made = {key[1] for key in bounds.bounds._losses if key[0] is Bound.UPPER}
    assert (Direction.ADD in made) is not is_ruled_out
    loss = bounds.bounds._loss(Bound.UPPER, Direction.ADD, 1)
    assert first >= float(loss.epsilons(np.array([1e-5]))[0])
    assert bounds.upper_epsilon(1e-5) == first


@pytest.mark.parametrize("runs", [700, 1500])
def test_coins_are_told_no_less_beside_another_mechanism(runs):
    """Whichever is composed first; alone they are exact binomials."""
    coins = discrete_outputs.RandomizedResponse(0.6, 2, replace_one=True)
    other = subsampled.on_poisson_sample(0.01, Gaussian(1.0))
    answers = [
        asked.bounds_of(dict(counts))
        for counts in (
            [(coins, runs), (other, 100)],
            [(other, 100), (coins, runs)],
        )
    ]
    for epsilon in (0.33 * runs, 0.38 * runs):
        least = coins_delta(0.7, runs, epsilon)
        uppers = [answer.upper_delta(epsilon) for answer in answers]
        assert least <= min(uppers)
        assert uppers[0] == pytest.approx(uppers[1], rel=1e-5)
        for answer, upper in zip(answers, uppers, strict=True):
            assert answer.lower_delta(epsilon, upper) <= min(uppers)


def test_bounds_that_cross_are_no_answer():
    """By a little rounding they may; by more one of them is wrong."""
    upper = np.array([0.0, 1e-300, 2.0])
    lower = np.array([1e-13, 1e-20, 2.0 + 1e-6])
    assert privacy_bounds.in_order(lower, upper).tolist() == upper.tolist()
    with pytest.raises(ArithmeticError, match="2.1, is above the upper one, 2.0:"):
        privacy_bounds.in_order(np.array([0.0, 0.0, 2.1]), upper)
