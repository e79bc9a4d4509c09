"""Public answers of `PLDAccountant`, of `pld` and of `explain`, on single events."""

import math

import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from lawful import law
import mpmath
import nights
import numpy as np
import pytest
import tree_strategies

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.reading import event_table

Gaussian = dp_accounting.GaussianDpEvent
Relation = dp_accounting.NeighboringRelation


def allocation(sigma=1.0, selected=1, steps=1000):
    return ext.RandomAllocationEvent(Gaussian(sigma), selected, steps)


def composed(event, count=1, **options):
    return ext.PLDAccountant(**options).compose(event, count)


class TestSpecialValues:
    @pytest.mark.parametrize(
        ("event", "chance"),
        [
            (allocation(0.0), 1.0),
            (ext.RandomAllocationEvent(dp_accounting.NonPrivateDpEvent(), 1, 5), 1.0),
            (ext.ScheduledAllocationEvent([Gaussian(0.0)], [2], 4), 0.5),
            (ext.ScheduledAllocationEvent([Gaussian(0.0)], [1], 3), 1 / 3),
            (dp_accounting.PoissonSampledDpEvent(0.3, Gaussian(0.0)), 0.3),
        ],
    )
    def test_no_noise_is_no_privacy(self, event, chance):
        """All is revealed with the chance that the record takes part."""
        accountant = composed(event)
        assert accountant.get_epsilon_bounds(1e-6) == (math.inf, math.inf)
        low, high = accountant.get_delta_bounds(3.0)
        assert low <= chance <= high <= chance * (1 + 1e-9)
        assert low >= chance * (1 - 1e-9)

    def test_ends_of_delta_and_epsilon(self):
        accountant = composed(allocation(1.0, 1, 20))
        assert accountant.get_epsilon(0.0) == math.inf
        assert accountant.get_delta(math.inf) == 0.0
        assert accountant.get_delta_bounds(math.inf) == (0.0, 0.0)
        assert 0.3 < accountant.get_delta(-0.5) < 1


class TestManyQuestions:
    """Arrays in, arrays out; in their shape."""

    def test_shapes_are_kept(self):
        accountant = composed(dp_accounting.LaplaceDpEvent(3.0), 2)
        deltas = np.geomspace(1e-9, 0.1, 6).reshape(2, 3)
        epsilons = accountant.get_epsilon(deltas)
        assert epsilons.shape == (2, 3)
        assert accountant.get_epsilon(deltas[0].tolist()).shape == (3,)
        lower, upper = accountant.get_delta_bounds(epsilons)
        assert lower.shape == upper.shape == (2, 3)
        assert (lower <= deltas * (1 + 1e-9)).all()
        assert accountant.get_delta(np.zeros((0, 4))).shape == (0, 4)
        assert type(accountant.get_epsilon(np.float32(1e-3))) is float
        assert type(accountant.get_delta(np.array(1.0))) is float


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.6])
@pytest.mark.parametrize("runs", [2, 3])
def test_next_to_the_largest_loss_of_a_sample(rate: float, runs: int) -> None:
    # All runs have their largest loss, or the sum is below this ε: one product.
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.LaplaceDpEvent(0.5))
    accountant = ext.PLDAccountant().compose(event, runs)
    with mpmath.workdps(40):
        most = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(2))
        chance = rate / mpmath.mpf(2) + (1 - mpmath.mpf(rate)) * mpmath.exp(-2) / 2
        epsilon = float(runs * most) - 5e-6
        truth = chance**runs * -mpmath.expm1(epsilon - runs * most)
        lower, upper = accountant.get_delta_bounds(epsilon)
        # Sums of others come as near with a chance of some 1e-11.
        assert truth <= upper < 1.05 * truth
        # Merged cells have smaller losses by some 1e-6, of these 5e-6.
        assert 0.3 * truth < lower


@pytest.mark.parametrize(
    ("event", "count", "rho"),
    [
        (dp_accounting.GaussianDpEvent(2.0), 7, 7 / 8),
        (dp_accounting.LaplaceDpEvent(2.0), 1, 1 / 8),
        (ext.risk.ConcentratedParameterEvent(0.7), 2, 1.4),
        (dp_accounting.NonPrivateDpEvent(), 1, math.inf),
        (dp_accounting.NoOpDpEvent(), 1, 0.0),
    ],
)
def test_the_parameter_of_concentrated_privacy(event, count, rho):
    """Gaussian noise has 1 / (2 σ²), and a loss of at most l has l² / 2."""
    accountant = ext.PLDAccountant().compose(event, count)
    lower, upper = accountant.get_zcdp_parameter_bounds()
    assert rho <= upper <= rho * (1 + 1e-9) if rho else upper == 0
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        orders = np.linspace(1.01, 60, 400)
        exact = max(laplace_divergence(order, 2.0) / order for order in orders)
        assert 0.97 * exact < lower <= exact
    elif math.isfinite(rho):
        assert 0.99 * rho <= lower <= upper
    group = ext.GroupSubsampledEvent(2, dp_accounting.GaussianDpEvent(2.0))
    found = ext.PLDAccountant().compose(group).get_zcdp_parameter_bounds()
    assert 0.49 < found[0] <= 0.5 <= found[1] < 0.5 + 1e-9


@pytest.mark.parametrize(
    ("rho", "rate", "count"), [(0.5, 0.01, 1000), (2.0, 0.1, 10), (0.5, 0.01, 1)]
)
def test_samples_of_what_is_known_by_divergences_have_the_smaller_bound(
    rho, rate, count
):
    """Divergences of many runs add up, and the pair of one run is tighter."""
    sample = dp_accounting.PoissonSampledDpEvent(
        rate, ext.risk.ConcentratedParameterEvent(rho)
    )
    lower, upper = ext.PLDAccountant().compose(sample, count).get_epsilon_bounds(1e-6)
    by_divergences = ext.RdpAccountant().compose(sample, count).get_epsilon(1e-6)
    assert 0 < lower <= upper <= 1.005 * by_divergences
    # One that is as private is the Gaussian mechanism.
    gaussian = dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho))
    gaussian = dp_accounting.PoissonSampledDpEvent(rate, gaussian)
    found = ext.PLDAccountant().compose(gaussian, count).get_epsilon_bounds(1e-6)
    assert found[0] <= upper


EVENTS = [
    *nights.at_night(ext.RandomAllocationEvent(Gaussian(1.0), 3, 20)),
    ext.PLDSubsampleEvent(0.3, dp_accounting.LaplaceDpEvent(1.0)),
    ext.MatrixAllocationEvent((1.0, 0.5), 2.0, 10, 2),
    dp_accounting.ComposedDpEvent(
        [
            dp_accounting.PoissonSampledDpEvent(0.1, Gaussian(1.0)),
            ext.ScheduledAllocationEvent([Gaussian(1.0), Gaussian(2.0)], [3, 4], 9),
        ]
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_larger_direction_is_the_answer(event):
    accountant = ext.PLDAccountant().compose(event, 2)
    for ask, at in (
        (accountant.get_epsilon_bounds, [1e-9, 1e-5, 0.1]),
        (accountant.get_delta_bounds, [-0.5, 0.1, 2.0]),
    ):
        both = np.maximum(ask(at, direction="remove"), ask(at, direction="add"))
        np.testing.assert_allclose(both, ask(at), rtol=1e-9)


def test_a_replaced_record_has_two_equal_directions():
    event = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, Gaussian(1.0))
    accountant = ext.PLDAccountant(Relation.REPLACE_ONE).compose(event, 5)
    every = [
        accountant.get_epsilon_bounds(1e-6, direction=direction)
        for direction in (None, "remove", "add")
    ]
    np.testing.assert_allclose(every[1:], [every[0]] * 2, rtol=1e-9)


def test_it_composes_with_stock_distributions():
    ours = pld.from_event(ext.RandomAllocationEvent(Gaussian(1.0), 1, 100))
    stock = privacy_loss_distribution.from_gaussian_mechanism(5.0)
    accountant = ext.PLDAccountant()
    accountant.compose(ext.RandomAllocationEvent(Gaussian(1.0), 1, 100))
    accountant.compose(Gaussian(5.0))
    together = ours.compose(stock).get_epsilon_for_delta(1e-6)
    assert together == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


def test_ends_of_the_arguments():
    given = pld.from_event(Gaussian(2.0))
    nothing = pld.poisson_subsample(given, 0.0)
    assert 0 <= nothing.get_delta_for_epsilon(0.0) < 1e-15
    same = pld.random_allocation(pld.poisson_subsample(given, 1.0), 1, 1)
    assert same.get_delta_for_epsilon(1.0) == pytest.approx(
        given.get_delta_for_epsilon(1.0), rel=1e-9
    )
    none = pld.from_event(dp_accounting.NonPrivateDpEvent())
    assert none.get_delta_for_epsilon(5.0) == 1.0
    no_op = pld.from_event(dp_accounting.NoOpDpEvent())
    assert 0 <= no_op.get_delta_for_epsilon(0.0) < 1e-15


def laplace_divergence(order, scale=1.0):
    """The Rényi divergence of Laplace noise, to thirty digits."""
    with mpmath.workdps(30):
        order, last = mpmath.mpf(order), mpmath.mpf(order) - 1
        terms = order * mpmath.exp(last / scale) + last * mpmath.exp(-order / scale)
        return mpmath.log(terms / (2 * order - 1)) / last


@pytest.mark.parametrize(
    ("event", "relation", "truth"),
    [
        (Gaussian(2.0), Relation.ADD_OR_REMOVE_ONE, lambda order: order / 8),
        (Gaussian(2.0), Relation.REPLACE_ONE, lambda order: order / 2),
        (
            ext.GroupSubsampledEvent(3, Gaussian(2.0)),
            Relation.ADD_OR_REMOVE_ONE,
            lambda order: 9 * order / 8,
        ),
        (
            dp_accounting.LaplaceDpEvent(1.0),
            Relation.ADD_OR_REMOVE_ONE,
            laplace_divergence,
        ),
    ],
)
def test_renyi_divergences_are_between_their_bounds(event, relation, truth):
    orders = [1.25, 2.0, 8.0]
    lower, upper = pld.renyi_divergence_bounds(
        event, orders, neighboring_relation=relation
    )
    for least, order, most in zip(lower, orders, upper, strict=True):
        assert 0.99 * most <= least <= truth(order) <= most, order


DELTA = 1e-6
STEP = dp_accounting.GaussianDpEvent(1.0)
LAPLACE = dp_accounting.LaplaceDpEvent(1.0)
ALLOCATED = ext.RandomAllocationEvent(LAPLACE, 1, 20)


def explained(*events, relation=Relation.ADD_OR_REMOVE_ONE):
    accountant = ext.PLDAccountant(relation)
    for event in events:
        accountant.compose(event)
    return accountant, accountant.explain(DELTA)


def test_each_event_has_the_bounds_that_it_has_alone():
    accountant, found = explained(stock.SelfComposedDpEvent(STEP, 3), ALLOCATED)
    assert (found.lower, found.upper) == accountant.get_epsilon_bounds(DELTA)
    first, second = found.parts
    assert (first.runs, second.runs) == (3, 1)
    for part, event in zip(found.parts, (STEP, ALLOCATED), strict=True):
        alone = ext.PLDAccountant().compose(event, part.runs)
        assert (part.lower, part.upper) == alone.get_epsilon_bounds(DELTA)
        assert part.event == str(event)
    assert found.loosest is None
    assert "All bounds are tight." in repr(found)


def test_the_loose_one_is_named():
    """A replaced record is chained from above, and a single one from below."""
    tight = dp_accounting.GaussianDpEvent(2.0)
    _, found = explained(tight, ALLOCATED, relation=Relation.REPLACE_ONE)
    loose = found.loosest
    assert loose is found.parts[1]
    assert loose.width == pytest.approx(1 - loose.lower / loose.upper)
    assert "chain of 2" in loose.from_above
    assert "single record" in loose.from_below
    assert "The loosest is (2)" in repr(found)
    assert all(len(line) <= 80 for line in repr(found).splitlines())


def test_a_group_is_explained_by_its_worst_split():
    family = ext.GroupSubsampledEvent(3, ALLOCATED)
    accountant, found = explained(STEP, family)
    assert (found.lower, found.upper) == accountant.get_epsilon_bounds(DELTA)
    # What is composed beside a group is seen by the group, too.
    assert found.parts[0].upper > ext.PLDAccountant().compose(STEP).get_epsilon(DELTA)
    assert "chain of 3" in found.parts[1].from_above


def test_nothing_and_everything():
    assert explained()[1].parts == []
    _, found = explained(dp_accounting.NonPrivateDpEvent())
    assert found.parts[0].lower == found.parts[0].upper == math.inf
    assert found.loosest is None


@law
@given(
    st.one_of(
        tree_strategies.cases(tree_strategies.SMALL),
        st.tuples(
            tree_strategies.group_trees(tree_strategies.SMALL),
            st.just(Relation.ADD_OR_REMOVE_ONE),
        ),
    )
)
def test_words_say_that_nothing_is_known_where_nothing_is(case):
    """A lower pair is trivial wherever the words say so, and no upper bound is."""
    event, relation = case
    mechanism = event_table.reader(relation).mechanism(event)
    for scenario in groups.scenarios({mechanism: 1}):
        for part in compositions.unpacked(scenario):
            pairs = interface.pairs_of(part, Bound.LOWER, accuracy.Accuracy(1e-12))
            is_trivial = not any(
                pair.infinity_mass or pair.ratios.size > 1 or pair.zero_mass
                for pair in (pairs.remove, pairs.add)
            )
            said = part.basis(Bound.LOWER)
            if said == interface.NOTHING:
                assert is_trivial
            assert part.basis(Bound.UPPER) != interface.NOTHING
