"""Groups by chains: against closed forms, tight groups, and single records."""

import itertools

import asked
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound


def bounds(mechanism):
    return asked.bounds_of({mechanism: 1}, 1e-4)


def training(rate, sigma, runs):
    """Runs of a Gaussian on Poisson samples, as one mechanism."""
    sample = subsampled.on_poisson_sample(rate, additive_noise.Gaussian(sigma))
    return compositions.compose({sample: runs})


@pytest.mark.parametrize("split", [(2, 0), (0, 3), (1, 1), (5, 2)])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-20])
def test_gaussians_are_exact(split, delta):
    """Records that leave and records that join move the mean alike, at worst."""
    found = bounds(chained.ChainedSplit(additive_noise.Gaussian(4.0), *split))
    mean = sum(split) / 4.0
    truth = gaussian.epsilon(mean, delta, Bound.LOWER)
    assert truth <= found.upper_epsilon(delta) <= truth * (1 + 1e-5)


@pytest.mark.parametrize(
    ("removed", "inserted", "slack"), [(2, 0, 1.02), (1, 1, 2.0), (8, 0, 1.2)]
)
def test_a_poisson_group_is_at_least_the_tight_one(removed, inserted, slack):
    """δ = 1e-6 after 1000 steps: the tight bound is attained (paper 2)."""
    family = groups.GroupedNoise(
        removed + inserted, 1.0, False, groups.Poisson(1e-3)
    ).split(removed, inserted)
    tight = asked.bounds_of({family: 1000}, 1e-4)
    ours = bounds(chained.ChainedSplit(training(1e-3, 1.0, 1000), removed, inserted))
    found = ours.upper_epsilon(1e-6)
    assert tight.lower_epsilon(1e-6) <= found <= slack * tight.upper_epsilon(1e-6)


INNER = {
    "allocation": compositions.compose(
        {allocated.allocate(additive_noise.Gaussian(1.0), 1, 100): 3}
    ),
    "Poisson sampling": training(0.01, 1.0, 100),
    "Laplace": additive_noise.laplace(2.0),
    "coin": discrete_outputs.RandomizedResponse(0.5, 4, replace_one=True),
}


@pytest.mark.parametrize("name", INNER)
def test_laws_of_groups(name):
    """Larger groups lose more; below a group lies each of its members."""
    splits = itertools.product(range(3), range(3))
    found = {
        split: bounds(chained.ChainedSplit(INNER[name], *split))
        for split in splits
        if any(split)
    }
    single = bounds(INNER[name])
    for (removed, inserted), group in found.items():
        upper, lower = group.upper_epsilon(1e-5), group.lower_epsilon(1e-5)
        assert 0 < lower <= upper
        assert upper >= single.lower_epsilon(1e-5)
        for more in ((removed + 1, inserted), (removed, inserted + 1)):
            if more in found:
                assert found[more].upper_epsilon(1e-5) >= lower
                assert found[more].upper_epsilon(1e-5) >= upper * (1 - 1e-9)


def test_large_groups_have_finite_bounds():
    """The tails of 64 records in a row are chosen small enough for δ."""
    group = bounds(chained.ChainedSplit(training(1e-3, 2.0, 1000), 64, 0))
    tight = asked.bounds_of(
        {groups.GroupedNoise(64, 2.0, False, groups.Poisson(1e-3)).split(64, 0): 1000},
        1e-4,
    )
    lower = tight.lower_epsilon(1e-6)
    assert lower <= group.upper_epsilon(1e-6) < 2 * lower + 10


def test_a_tail_that_is_the_mechanisms_own_ends_the_search():
    revealed = dominating_pair.mixture(
        [
            dominating_pair.trivial_pair(Bound.UPPER),
            dominating_pair.identity_pair(Bound.UPPER),
        ],
        [1e-3, 1 - 1e-3],
    )
    inner = known_bounds.KnownPairs(dominating_pair.DirectedPairs.same(revealed))
    pairs = chained.ChainedSplit(inner, 3, 0).pairs(Bound.UPPER, 1e-12)
    assert 1 - 0.999**3 <= pairs.remove.infinity_mass <= 3.001e-3


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("split", [(3, 0), (1, 1), (1, 2)])
def test_each_part_on_its_own_is_no_more_than_the_whole(name, split):
    """And of one part that is run once, it is the same."""
    two = additive_noise.laplace(4.0)
    whole = chained.chain(compositions.compose({INNER[name]: 1, two: 2}), *split)
    parts = {chained.chain(INNER[name], *split): 1, chained.chain(two, *split): 2}
    for delta in (1e-3, 1e-8):
        least = asked.bounds_of(parts, 1e-4).upper_epsilon(delta)
        assert least <= bounds(whole).upper_epsilon(delta) * (1 + 1e-4)


def test_a_replaced_record_of_a_poisson_sample_is_nearly_tight():
    """Theorem 3.7 has both ends of one draw; a chain has two draws."""
    rate, runs = 1e-3, 1000
    both = additive_noise.GaussianMixture(
        ((0.0, 1 - rate), (1.0, rate)), ((-1.0, rate), (0.0, 1 - rate))
    )
    sample = subsampled.on_poisson_sample(rate, additive_noise.Gaussian(1.0))
    tight = asked.bounds_of({both: runs}, 1e-4)
    found = asked.bounds_of({chained.chain(sample, 1, 1): runs}, 1e-4)
    for delta in (1e-5, 1e-20):
        lower = tight.lower_epsilon(delta)
        assert lower <= found.upper_epsilon(delta) <= lower * (1 + 1e-3)


def test_what_needs_no_chain():
    sample = training(0.01, 1.0, 3)
    assert chained.chain(sample, 1, 0) == sample
    assert chained.chain(compositions.NO_OP, 3, 2) == compositions.NO_OP
    nothing = known_bounds.NonPrivate()
    assert chained.chain(nothing, 1, 1) == nothing
    # Either way is the same for noise.
    noise = additive_noise.Gaussian(3.0)
    assert chained.chain(noise, 2, 3) == chained.ChainedSplit(noise, 5, 0)


@pytest.mark.parametrize("delta", [1e-4, 1e-20])
def test_two_in_a_row_of_gaussians_are_exact(delta):
    both = chained.InARow(additive_noise.Gaussian(2.0), additive_noise.Gaussian(3.0))
    truth = gaussian.epsilon(1 / 2 + 1 / 3, delta, Bound.LOWER)
    found = bounds(both)
    assert truth <= found.upper_epsilon(delta) <= truth * (1 + 1e-5)
    assert found.lower_epsilon(delta) == 0.0
    assert both.gaussian_precision() >= (1 / 2 + 1 / 3) ** 2
    laplaces = [additive_noise.laplace(scale) for scale in (2.0, 0.5)]
    assert 2.5 <= chained.InARow(*laplaces).largest_loss() <= 2.5 * (1 + 1e-9)


@pytest.mark.parametrize("members", [1, 4])
def test_the_sum_of_all_steps_bounds_a_group_from_below(members):
    """A member adds one to a step: the sum has that mean, and variance t σ²."""
    epoch = allocated.allocate(additive_noise.Gaussian(1.5), 1, 60)
    group = chained.ChainedSplit(epoch, members, members)
    found = asked.bounds_of({group: 9}, 1e-4)
    mean = 2 * members * 3 / (1.5 * 60**0.5)
    truth = gaussian.epsilon(mean, 1e-6, Bound.LOWER)
    assert truth * (1 - 1e-6) <= found.lower_epsilon(1e-6)
    assert found.lower_epsilon(1e-6) <= found.upper_epsilon(1e-6)
    for epsilon in (0.5, 2.0):
        upper = found.upper_delta(epsilon)
        assert gaussian.delta(mean, epsilon, Bound.LOWER) * (1 - 1e-6) <= upper


@pytest.mark.parametrize(
    ("one", "four"),
    [
        (
            discrete_outputs.DiscreteLaplace(0.2, 3),
            discrete_outputs.DiscreteLaplace(0.2, 12),
        ),
        (
            discrete_outputs.DiscreteGaussian(7.0, 3),
            discrete_outputs.DiscreteGaussian(7.0, 12),
        ),
    ],
)
def test_members_of_an_integer_sum_add_up(one, four):
    """Noise of a concave logarithm: thresholds are the best tests, all the way."""
    group = chained.ChainedSplit(one, 4, 0)
    # Of what lies above one only the least is known to add up.
    wider = chained.ChainedSplit(known_bounds.Between(one, four), 4, 0)
    found, truth = bounds(group), bounds(four)
    assert bounds(wider).lower_epsilon(1e-6) == found.lower_epsilon(1e-6)
    for delta in (0.1, 1e-6):
        lower, upper = found.lower_epsilon(delta), found.upper_epsilon(delta)
        assert lower <= truth.upper_epsilon(delta)
        assert truth.lower_epsilon(delta) <= upper <= lower * (1 + 1e-6)
    assert discrete_outputs.DiscreteLaplace(0.2, 10**6).sum_of(2) is None
    assert discrete_outputs.DiscreteGaussian(7.0, 10**6).sum_of(2) is None


def test_a_thousand_records_are_ten_steps():
    """Gaussian noise in an epoch: beside the sum, nothing tells much of so many."""
    epoch = allocated.allocate(additive_noise.Gaussian(20.0), 1, 1000)
    found = bounds(chained.ChainedSplit(epoch, 1024, 0))
    lower, upper = found.lower_epsilon(1e-6), found.upper_epsilon(1e-6)
    assert lower <= upper <= 1.01 * lower
