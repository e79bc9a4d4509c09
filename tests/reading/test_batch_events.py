"""Events on a sample of the records: Poisson samples, and batches of fixed size."""

import itertools
import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.mechanisms import groups

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
WithoutReplacement = dp_accounting.SampledWithoutReplacementDpEvent
WithReplacement = dp_accounting.SampledWithReplacementDpEvent


def single_gaussian_truth(p, q, epsilon):
    return max(oracles.shift_mixture_deltas(p, q, epsilon).values())


TRUTHS = [
    # event, relation, shifts of P, shifts of Q: one run.
    (
        Poisson(0.25, Gaussian(1.0)),
        NeighborRel.REPLACE_SPECIAL,
        [(0.0, 0.75), (1.0, 0.25)],
        [(0.0, 1.0)],
    ),
    (
        Poisson(0.25, Gaussian(1.0)),
        NeighborRel.REPLACE_ONE,
        [(0.0, 0.75), (1.0, 0.25)],
        [(0.0, 0.75), (-1.0, 0.25)],
    ),
    (
        ext.PLDSubsampleEvent(0.5, Composed([Gaussian(2.0), Gaussian(2.0)])),
        NeighborRel.ADD_OR_REMOVE_ONE,
        [(0.0, 0.5), (math.sqrt(0.5), 0.5)],
        [(0.0, 1.0)],
    ),
    (
        # A sample of a sample.
        Poisson(0.5, Poisson(0.5, Gaussian(1.0))),
        NeighborRel.ADD_OR_REMOVE_ONE,
        [(0.0, 0.75), (1.0, 0.25)],
        [(0.0, 1.0)],
    ),
]


@pytest.mark.parametrize(("event", "relation", "p", "q"), TRUTHS)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.1, 3.0])
def test_one_run_against_the_truth(event, relation, p, q, epsilon):
    lower, upper = accountant_of(event, 1, relation).get_delta_bounds(epsilon)
    truth = single_gaussian_truth(p, q, epsilon)
    assert lower <= truth <= upper
    assert upper <= lower * (1 + 1e-4)


def test_sampling_laplace_against_its_closed_form():
    rate, scale = 0.3, 0.7
    for epsilon in (0.0, 0.2, 0.6):
        lower, upper = accountant_of(Poisson(rate, Laplace(scale))).get_delta_bounds(
            epsilon
        )
        # H(P_λ‖Q) at κ is λ H(P‖Q) at 1 + (κ − 1)/λ, the other direction's smaller.
        with mpmath.workdps(40):
            odds = mpmath.expm1(mpmath.mpf(epsilon)) / mpmath.mpf(rate)
            truth = rate * oracles.laplace_delta(scale, mpmath.log1p(odds))
        assert lower <= truth <= upper
        assert upper <= lower * (1 + 1e-4)


@pytest.mark.parametrize("rate", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("scale", [0.5, 1.0, 7.0])
def test_rare_samples_of_laplace_noise_at_their_largest_loss(rate, scale):
    """At ε above ln(1 + λ(e^{1/b} − 1)) δ is 0, and below it is not."""
    with mpmath.workdps(60):
        odds = mpmath.expm1(1 / mpmath.mpf(scale))
        truth = mpmath.log1p(mpmath.mpf(rate) * odds)
    for count in (1, 3):
        accountant = accountant_of(Poisson(rate, Laplace(scale)), count)
        upper = accountant.get_epsilon(0.0)
        assert count * truth <= upper <= count * truth * (1 + 1e-9)
        assert accountant.get_delta(float(count * truth * (1 - 1e-9))) > 0


class TestAnythingOnBatches:
    """What is known of one record of a batch replaced, on batches of fixed size."""

    RESPONSE = stock_events.RandomizedResponseDpEvent(0.5, 2)

    @pytest.mark.parametrize("drawn", [WithoutReplacement, WithReplacement])
    @pytest.mark.parametrize("draws", [1, 4])
    def test_a_bit_query_of_a_batch(self, drawn, draws):
        """With w the chance that the record is drawn: Bern(1/4 + w/2), Bern(1/4)."""
        event, size = drawn(20, draws, self.RESPONSE), mpmath.mpf(20)
        again = 1 - (1 - 1 / size) ** draws
        w = draws / size if drawn is WithoutReplacement else again
        p, q = [w / 2 + 0.25, 0.75 - w / 2], [mpmath.mpf(0.25), mpmath.mpf(0.75)]
        for epsilon in (0.0, 0.05, 0.3):
            truth = max(oracles.discrete_deltas(p, q, epsilon).values())
            for relation in (NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_ONE):
                upper = accountant_of(event, 1, relation).get_delta(epsilon)
                assert truth <= upper * (1 + 1e-12) and upper <= truth * 1.001 + 1e-11
            lower, _ = accountant_of(event).get_delta_bounds(epsilon)
            assert lower <= truth

    def test_a_composition_of_responses_on_one_batch(self):
        """Theorem 11 of Zhu et al., of two runs: all outcomes, on a sample."""
        two = Composed([self.RESPONSE, self.RESPONSE])
        once = [0.75, 0.25]
        ends = [
            [mpmath.mpf(a * b) for a, b in itertools.product(law, repeat=2)]
            for law in (once, once[::-1])
        ]
        mixed = [0.8 * b + 0.2 * a for a, b in zip(*ends, strict=True)]
        accountant = accountant_of(WithoutReplacement(10, 2, two))
        for epsilon in (0.0, 0.2, 0.7):
            truth = max(oracles.discrete_deltas(mixed, ends[1], epsilon).values())
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert lower <= truth <= upper <= truth * 1.002

    def test_composed_gaussians_are_one(self):
        two = Composed([Gaussian(2.0), Gaussian(2.0)])
        for drawn in (WithoutReplacement, WithReplacement):
            one = drawn(50, 1, Gaussian(math.sqrt(2.0)))
            for relation in (NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_ONE):
                found = accountant_of(drawn(50, 1, two), 3, relation).get_epsilon(1e-5)
                known = accountant_of(one, 3, relation).get_epsilon(1e-5)
                assert found == pytest.approx(known, rel=1e-4)

    def test_refusals(self):
        inner = ext.GroupSubsampledEvent(2, Gaussian(1.0))
        with pytest.raises(
            privacy_accountant.UnsupportedEventError, match="cannot run on a sample"
        ):
            accountant_of(WithoutReplacement(20, 2, inner))
        nothing = WithoutReplacement(20, 2, Composed([]))
        assert accountant_of(nothing).get_epsilon(0.0) == 0.0
        told = WithoutReplacement(20, 2, Composed([Gaussian(0.0), Gaussian(1.0)]))
        assert accountant_of(told).get_delta(40.0) == pytest.approx(0.1)


class TestFixedBatches:
    def test_without_replacement_all_leave(self):
        """Hypergeometric weights, brute force over all batches."""
        size, batch, group, sigma = 7, 3, 2, 1.5
        counts = [
            sum(member < group for member in chosen)
            for chosen in itertools.combinations(range(size), batch)
        ]
        p = [
            (mpmath.mpf(2 * i) / sigma, mpmath.mpf(counts.count(i)) / len(counts))
            for i in range(max(counts) + 1)
        ]
        accountant = accountant_of(
            ext.GroupSubsampledEvent(
                group, WithoutReplacement(size, batch, Gaussian(sigma))
            )
        )
        for epsilon in (0.0, 0.4, 1.2):
            truths = oracles.shift_mixture_deltas(p, [(0.0, 1.0)], epsilon)
            lower, upper = accountant.get_delta_bounds(epsilon)
            truth = max(truths.values())
            assert lower <= truth <= upper
            assert lower >= truth * (1 - 1e-9)

    @pytest.mark.parametrize(("size", "batch"), [(2, 2), (9, 8), (9, 9), (7, 5)])
    @pytest.mark.parametrize("group", [1, 2, 3])
    def test_a_batch_that_none_can_fill_up(self, size, batch, group):
        """Members at 1 among others at −1, by enumeration of all batches.

        Where those who stay are too few for a batch it is smaller, and the sums of both
        datasets are no two norms apart.
        """
        if group > size:
            return
        sigma = 1.3
        stay = min(batch, size - group)
        chosen = list(itertools.combinations(range(size), batch))
        sums = [
            sum(1 if member < group else -1 for member in each) + stay
            for each in chosen
        ]
        p = [(s / mpmath.mpf(sigma), mpmath.mpf(1) / len(chosen)) for s in sums]
        event = WithoutReplacement(size, batch, Gaussian(sigma))
        single = groups.GroupedNoise(
            group, sigma, False, groups.FixedSize(size, batch, False)
        ).split(group, 0)
        bounds = privacy_bounds.PrivacyBounds({single: 1}, 1e-4)
        for epsilon in (0.0, 1.0, 2.5):
            truth = max(oracles.shift_mixture_deltas(p, [(0, 1)], epsilon).values())
            (upper,) = bounds.upper_deltas(np.array([epsilon]))
            (lower,) = bounds.lower_deltas(np.array([epsilon]), np.array([upper]))
            assert lower <= truth <= upper <= lower * (1 + 1e-6)
            whole = accountant_of(ext.GroupSubsampledEvent(group, event))
            assert truth <= whole.get_delta(epsilon)
        if batch == size and group == 1:
            assert accountant_of(event).get_delta(1.0) == pytest.approx(
                oracles.gaussian_delta(1 / sigma, 1.0), rel=1e-9
            )

    def test_with_replacement_all_leave(self):
        size, batch, sigma = 4, 3, 1.0
        counts = [
            sum(draw == 0 for draw in draws)
            for draws in itertools.product(range(size), repeat=batch)
        ]
        p = [
            (mpmath.mpf(2 * i) / sigma, mpmath.mpf(counts.count(i)) / len(counts))
            for i in range(batch + 1)
        ]
        accountant = accountant_of(WithReplacement(size, batch, Gaussian(sigma)))
        for epsilon in (0.0, 0.4, 1.2):
            truths = oracles.shift_mixture_deltas(p, [(0.0, 1.0)], epsilon)
            lower, upper = accountant.get_delta_bounds(epsilon)
            truth = max(truths.values())
            assert lower <= truth <= upper <= truth * (1 + 1e-6)

    @pytest.mark.parametrize("noise", [Gaussian(1.1), Laplace(0.9)])
    def test_one_record_leaving_a_subset_is_poisson(self, noise):
        subset = accountant_of(WithoutReplacement(1000, 10, noise), 50)
        # In the batch another record is missing: twice the sensitivity.
        halved = type(noise)(noise.noise_multiplier / 2)
        poisson = accountant_of(Poisson(0.01, halved), 50)
        assert subset.get_epsilon(1e-6) == pytest.approx(
            poisson.get_epsilon(1e-6), rel=1e-9
        )

    def test_a_record_replaced_without_replacement(self):
        """κ ≥ 1: H((1 − r) N(0) + r N(1) ‖ N(0)); reflected for κ < 1."""
        rate, sigma = 0.1, 0.8
        event = WithoutReplacement(50, 5, Gaussian(sigma))
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        p, q = [(0.0, 1 - rate), (2 / sigma, rate)], [(0.0, 1.0)]
        for epsilon in (0.0, 0.3, 1.5):
            truth = oracles.shift_mixture_deltas(p, q, epsilon)["remove"]
            lower, upper = accountant.get_delta_bounds(epsilon)
            # Both datasets are there: a record at one end, all others at the other.
            assert lower <= truth <= upper <= lower * (1 + 1e-6)
            kappa = mpmath.exp(-mpmath.mpf(epsilon))
            reflection = 1 - kappa + kappa * truth
            assert reflection <= accountant.get_delta(-epsilon)
        # The stock's Rényi accountant of the same event, converted: far looser.
        many = accountant_of(event, 20, NeighborRel.REPLACE_ONE).get_epsilon(1e-6)
        assert many > accountant_of(event, 10, NeighborRel.REPLACE_ONE).get_epsilon(
            1e-6
        )

    @pytest.mark.parametrize("noise", [Gaussian(1.1), Laplace(0.9)])
    def test_a_batch_of_all_records_is_no_sample(self, noise):
        """One record replaced moves the sum by twice its norm, batch or not."""
        batch = accountant_of(
            WithoutReplacement(9, 9, noise), 5, NeighborRel.REPLACE_ONE
        )
        halved = type(noise)(noise.noise_multiplier / 2)
        assert batch.get_epsilon(1e-6) == pytest.approx(
            accountant_of(halved, 5).get_epsilon(1e-6), rel=1e-5
        )

    def test_a_record_replaced_with_replacement(self):
        """At most Theorem L.5's shifts both ways, at least one-sided ones."""
        size, batch, sigma = 30, 3, 1.0
        p = oracles.binomial_shifts(batch, 1, (2, sigma), draws_from=size)
        q = [(-shift, weight) for shift, weight in p]
        event = WithReplacement(size, batch, Gaussian(sigma))
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        for epsilon in (0.0, 0.5):
            truth = max(oracles.shift_mixture_deltas(p, q, epsilon).values())
            upper = accountant.get_delta(epsilon)
            attained = oracles.shift_mixture_deltas(p, [(0.0, 1.0)], epsilon)
            assert attained["remove"] <= upper <= truth * (1 + 1e-6)
        lower, upper = accountant.get_epsilon_bounds(1e-6)
        assert 0 < lower < upper < lower + 0.2

    def test_many_draws_with_replacement_have_a_pair(self):
        """Shifts up to 600 are cut where their weights no longer matter."""
        event = WithReplacement(60_000, 600, Gaussian(2.0))
        lower, upper = accountant_of(event, 100).get_epsilon_bounds(1e-6)
        near = accountant_of(Poisson(0.01, Gaussian(1.0)), 100).get_epsilon(1e-6)
        assert near < lower <= upper <= lower * (1 + 1e-4)
        assert upper < near * 1.3


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_what_is_not_private_on_a_sample_has_that_chance(rate):
    """δ is the chance to be in the sample: no lower bound may be above it."""
    for event in (
        dp_accounting.GaussianDpEvent(0.0),
        dp_accounting.NonPrivateDpEvent(),
    ):
        sampled = dp_accounting.PoissonSampledDpEvent(rate, event)
        accountant = ext.PLDAccountant().compose(sampled)
        # Added: H(Q‖P) = 1 − κ (1 − λ); removed: λ.
        lower, upper = accountant.get_delta_bounds(3.0)
        assert lower <= rate <= upper
        lower, _ = accountant.get_epsilon_bounds(rate * 1.1)
        assert lower <= -math.log1p(-rate)


def batch_of_integers(size, batch, parameter, epsilon):
    """Two discrete Laplace queries of a batch: a record at 1 among others at −1."""
    outputs = range(-60, 61)

    def law(mean):
        each = [math.exp(-parameter * abs(x - mean)) for x in outputs]
        total = math.fsum(each)
        return [a * b / total**2 for a, b in itertools.product(each, repeat=2)]

    inside, outside = law(2 - batch), law(-batch)
    rate = batch / size
    p = [rate * a + (1 - rate) * b for a, b in zip(inside, outside, strict=True)]
    return max(oracles.discrete_deltas(p, outside, epsilon).values())


@pytest.mark.parametrize(
    "relation", [NeighborRel.ADD_OR_REMOVE_ONE, NeighborRel.REPLACE_ONE]
)
def test_a_batch_that_runs_a_tree(relation):
    """Its lower bound is attained, and for one run the upper one is as well."""
    queries = Composed([stock_events.DiscreteLaplaceDpEvent(0.7, 1)] * 2)
    accountant = accountant_of(WithoutReplacement(9, 3, queries), 1, relation)
    for epsilon in (0.0, 0.4, 1.1):
        lower, upper = accountant.get_delta_bounds(epsilon)
        truth = batch_of_integers(9, 3, 0.7, epsilon)
        assert lower <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= upper <= lower * (1 + 1e-3)


@pytest.mark.parametrize("kind", [WithReplacement, WithoutReplacement])
def test_a_record_replaced_by_nothing_in_a_batch(kind):
    """No more than by any record; no less than where nobody else contributes."""
    special, one = NeighborRel.REPLACE_SPECIAL, NeighborRel.REPLACE_ONE
    event = kind(50, 1, Gaussian(1.0))
    lower, upper = accountant_of(event, 20, special).get_epsilon_bounds(1e-6)
    alone = accountant_of(Poisson(1 / 50, Gaussian(1.0)), 20).get_epsilon(1e-6)
    assert lower == pytest.approx(alone, rel=1e-4) and lower <= alone
    replaced = accountant_of(event, 20, one).get_epsilon(1e-6)
    assert lower < upper == pytest.approx(replaced, rel=1e-9)
    tree = kind(50, 1, Composed([Gaussian(2.0), Laplace(3.0)]))
    lower, upper = accountant_of(tree, 20, special).get_epsilon_bounds(1e-6)
    assert lower < upper < math.inf
    # Of draws that may hit twice nothing is known from below.
    assert (lower > 0) == (kind is WithoutReplacement)
