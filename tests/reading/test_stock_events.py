"""What each event becomes, what is refused and how, and events of one's own."""

import dataclasses
import itertools
import math

import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.wpm import dp_event as wpm_dp_event

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent
RANDOMIZED_RESPONSE = stock_events.RandomizedResponseDpEvent(0.5, 4)


def accountant_of(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count)


def single_gaussian_truth(p, q, epsilon):
    return max(oracles.shift_mixture_deltas(p, q, epsilon).values())


TRUTHS = [
    # event, relation, shifts of P, shifts of Q: one run.
    (Gaussian(2.0), NeighborRel.ADD_OR_REMOVE_ONE, [(0.5, 1.0)], [(0.0, 1.0)]),
    (Gaussian(2.0), NeighborRel.REPLACE_ONE, [(0.5, 1.0)], [(-0.5, 1.0)]),
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
    (
        stock_events.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 4.0], [0.5, 0.25, 0.25]),
        NeighborRel.ADD_OR_REMOVE_ONE,
        [(0.0, 0.5), (0.5, 0.25), (2.0, 0.25)],
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


@pytest.mark.parametrize("count", [1, 7])
def test_truncated_sampling_is_the_librarys(count):
    event = stock_events.TruncatedSubsampledGaussianDpEvent(40, 0.2, 9, 2.0)
    for relation in NeighborRel:
        stock = dp_accounting.pld.PLDAccountant(relation).compose(event, count)
        ours = accountant_of(event, count, relation)
        expected = stock.get_epsilon(1e-6)
        assert ours.get_epsilon(1e-6) == pytest.approx(expected, rel=1e-6)
        assert ours.get_epsilon_bounds(1e-6)[0] == 0.0


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


@pytest.mark.parametrize("noise", [1e-9, 0.3, 1 - 1e-9])
@pytest.mark.parametrize("buckets", [2, 5, 10**9])
@pytest.mark.parametrize(
    "relation", [NeighborRel.REPLACE_ONE, NeighborRel.REPLACE_SPECIAL]
)
def test_randomized_response_at_its_largest_loss(noise, buckets, relation):
    accountant = accountant_of(
        stock_events.RandomizedResponseDpEvent(noise, buckets), 1, relation
    )
    with mpmath.workdps(60):
        p = mpmath.mpf(noise)
        truth, other = 1 - p + p / buckets, p / buckets
        if relation is NeighborRel.REPLACE_ONE:
            loss = mpmath.log(truth / other)
        else:
            loss = max(mpmath.log(truth * buckets), -mpmath.log(p))
    assert loss <= accountant.get_epsilon(0.0) <= loss * (1 + 1e-9)


def test_randomized_response_composes_to_the_binomial():
    """Under REPLACE_ONE with two buckets: a sum of ± the loss."""
    event = stock_events.RandomizedResponseDpEvent(0.5, 2)
    count, loss = 12, math.log(3)
    with mpmath.workdps(40):
        p = [mpmath.binomial(count, i) * mpmath.mpf(3) ** i for i in range(count + 1)]
        p = [value / mpmath.mpf(4) ** count for value in p]
        q = p[::-1]
    accountant = accountant_of(event, count, NeighborRel.REPLACE_ONE)
    for epsilon in (0.0, 2 * loss, 7.0, 12.9):
        truth = oracles.discrete_deltas(p, q, epsilon)["remove"]
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= truth <= upper
        assert upper <= lower * (1 + 1e-2)
    assert accountant.get_delta(count * loss * (1 + 1e-9)) == 0.0


class TestAllocationOfAnything:
    def test_laplace_against_enumeration(self):
        """Two steps: the mean of two ratios, on a fine grid of each.

        Means of cells are below in the convex order, cells split to their ends above.
        """
        event = ext.RandomAllocationEvent(Laplace(1.0), 1, 2)
        ends = np.linspace(-1, 1, 2001)
        # Integrals of both densities between the two atoms.
        q = -np.diff(np.exp(-(ends + 1) / 2)) / 2
        p = np.diff(np.exp((ends - 1) / 2)) / 2
        edges = np.exp(ends)
        raised = (p - q * edges[:-1]) / np.diff(edges)
        split = np.append(q - raised, 0.0) + np.append(0.0, raised)
        laws = [(p / q, q), (edges, split)]
        accountant = accountant_of(event)
        for epsilon in (0.1, 0.4, 0.8):
            found = []
            for places, masses in laws:
                places = np.concatenate([[math.exp(-1)], places, [math.e]])
                masses = np.concatenate([[0.5], masses, [math.exp(-1) / 2]])
                mean = (places[:, None] + places[None, :]) / 2
                joint = masses[:, None] * masses[None, :]
                remove = (joint * np.maximum(mean - math.exp(epsilon), 0)).sum()
                add = (joint * np.maximum(1 - math.exp(epsilon) * mean, 0)).sum()
                found.append(max(remove, add))
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert found[0] <= upper <= found[0] * (1 + 1e-4)
            assert found[1] * (1 - 1e-4) <= lower <= found[1]
            assert found[1] <= found[0] * (1 + 1e-5)
        assert accountant.get_epsilon(0.0) == pytest.approx(1.0, rel=1e-9)

    @pytest.mark.parametrize(
        ("inner", "steps"),
        [
            (Laplace(0.03), 25),
            (stock_events.DiscreteLaplaceDpEvent(30.0, 1), 25),
            (
                Composed([stock_events.DiscreteLaplaceDpEvent(30.0, 1), Laplace(0.03)]),
                9,
            ),
            (Poisson(4.6e-5, Laplace(0.0229)), 3333),
            (
                Composed(
                    [
                        stock_events.DiscreteLaplaceDpEvent(12.9, 1),
                        Poisson(0.054, Laplace(0.418)),
                    ]
                ),
                500_000,
            ),
        ],
    )
    def test_bulks_beside_which_jumps_are_huge(self, inner, steps):
        """Nearly all outcomes tell nothing, and some tell all: no lattice has both."""
        event = ext.RandomAllocationEvent(inner, 1, steps)
        lower, upper = accountant_of(event).get_epsilon_bounds(1e-6)
        plain = accountant_of(inner).get_epsilon(1e-6)
        assert 0 < lower <= upper <= plain * (1 + 1e-6)
        assert upper - lower <= 0.05 * upper

    def test_a_composition_in_each_step_is_one_gaussian(self):
        inner = Composed([Gaussian(2.0)] * 4)
        both = [
            accountant_of(ext.RandomAllocationEvent(e, 1, 50), 3).get_epsilon(1e-6)
            for e in (inner, Gaussian(1.0))
        ]
        assert both[0] == pytest.approx(both[1], rel=1e-5)

    def test_allocation_of_a_sample(self):
        """Sampling each step's records lies between fewer steps and more."""
        event = ext.RandomAllocationEvent(Poisson(0.5, Gaussian(1.0)), 1, 20)
        lower, upper = accountant_of(event).get_epsilon_bounds(1e-6)
        assert lower <= upper <= lower * (1 + 1e-3)
        plain = accountant_of(ext.RandomAllocationEvent(Gaussian(1.0), 1, 20))
        assert upper < plain.get_epsilon(1e-6)

    @pytest.mark.parametrize("selected", [1, 3])
    def test_a_sample_of_an_allocation(self, selected):
        """By the profile of the allocation: δ_λ(ε) = λ δ(ln(1 + (e^ε − 1)/λ))."""
        inner = ext.RandomAllocationEvent(Gaussian(1.0), selected, 30)
        rate, epsilon = 0.2, 0.25
        upper = accountant_of(ext.PLDSubsampleEvent(rate, inner)).get_delta(epsilon)
        at = math.log1p(math.expm1(epsilon) / rate)
        assert upper == pytest.approx(
            rate * accountant_of(inner).get_delta(at), rel=1e-4
        )

    def test_nesting_both_ways_has_ordered_bounds(self):
        tree = ext.PLDSubsampleEvent(
            0.1,
            Composed(
                [
                    ext.RandomAllocationEvent(Poisson(0.5, Gaussian(1.0)), 2, 9),
                    Laplace(3.0),
                ]
            ),
        )
        lower, upper = accountant_of(tree, 20).get_epsilon_bounds(1e-6)
        assert 0 < lower <= upper < math.inf


class TestScheduledAllocation:
    def test_equal_steps_that_all_ran_are_random_allocation(self):
        scheduled = ext.ScheduledAllocationEvent([Gaussian(1.0)], [100], 100)
        plain = ext.RandomAllocationEvent(Gaussian(1.0), 1, 100)
        expected = accountant_of(plain).get_epsilon(1e-6)
        assert accountant_of(scheduled).get_epsilon(1e-6) == pytest.approx(
            expected, rel=1e-9
        )

    def test_split_into_equal_parts(self):
        parts = ext.ScheduledAllocationEvent(
            [Gaussian(1.0), Gaussian(1.0 + 1e-12)], [30, 70], 100
        )
        plain = ext.RandomAllocationEvent(Gaussian(1.0), 1, 100)
        bounds = accountant_of(parts).get_epsilon_bounds(1e-6)
        truth = accountant_of(plain).get_epsilon_bounds(1e-6)
        assert bounds[0] <= truth[1] and truth[0] <= bounds[1]
        assert bounds[1] <= bounds[0] * (1 + 1e-3)

    def test_a_stopped_epoch_costs_less_and_one_step_is_a_sample(self):
        epsilons = [
            accountant_of(
                ext.ScheduledAllocationEvent([Gaussian(1.0)], [ran], 100)
            ).get_epsilon(1e-6)
            for ran in (1, 10, 50, 100)
        ]
        assert epsilons == sorted(epsilons)
        sample = accountant_of(Poisson(0.01, Gaussian(1.0))).get_epsilon(1e-6)
        assert epsilons[0] == pytest.approx(sample, rel=1e-6)

    @pytest.mark.parametrize("direction", ["remove", "add"])
    def test_uneven_steps_against_monte_carlo(self, direction):
        sigmas, steps = [1.0, 1.0, 0.7, 2.0], 6
        event = ext.ScheduledAllocationEvent(
            [Gaussian(1.0), Gaussian(0.7), Gaussian(2.0)], [2, 1, 1], steps
        )
        generator = np.random.default_rng(5)
        samples, epsilon = 400_000, 0.6
        noise = generator.normal(size=(samples, 4)) * sigmas
        with_record = noise.copy()
        drawn = generator.integers(0, steps, samples)
        for step in range(4):
            with_record[drawn == step, step] += 1.0

        def losses(outputs):
            s = np.array(sigmas)
            ratios = np.exp(outputs / s**2 - 1 / (2 * s**2))
            return np.log((ratios.sum(axis=1) + steps - 4) / steps)

        loss = losses(with_record) if direction == "remove" else -losses(noise)
        values = np.maximum(-np.expm1(epsilon - loss), 0.0)
        error = 5 * values.std() / math.sqrt(samples)
        reader = event_table.reader(NeighborRel.ADD_OR_REMOVE_ONE)
        mechanism = reader.mechanism(event)
        lower, upper = (
            interface.pairs_of(mechanism, bound, 1e-12)
            .of(Direction(direction))
            .delta(epsilon, Direction(direction))
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        assert lower - error <= values.mean() <= upper + error
        assert lower <= upper <= lower * (1 + 1e-3)

    def test_special_steps(self):
        steps = [dp_accounting.NoOpDpEvent(), Gaussian(1.0)]
        skipped = ext.ScheduledAllocationEvent(steps, [40, 10], 50)
        stopped = ext.ScheduledAllocationEvent([Gaussian(1.0)], [10], 50)
        assert accountant_of(skipped).get_epsilon(1e-6) == accountant_of(
            stopped
        ).get_epsilon(1e-6)
        open_step = ext.ScheduledAllocationEvent([Gaussian(0.0)], [1], 50)
        assert accountant_of(open_step).get_epsilon(1e-6) == math.inf
        nothing = ext.ScheduledAllocationEvent([dp_accounting.NoOpDpEvent()], [1], 50)
        assert accountant_of(nothing).get_epsilon(1e-6) == 0.0

    @pytest.mark.parametrize(
        ("events", "counts", "steps", "message"),
        [
            ([Gaussian(1.0)], [2, 3], 9, "events and counts.*Found 1 and 2"),
            ([], [], 9, "events and counts.*Found 0 and 0"),
            ([Gaussian(1.0)], [10], 9, "at most num_steps. Found 10 of 9"),
            ([Gaussian(1.0)], [0], 9, "counts must be at least 1. Found 0"),
            ([Gaussian(1.0)], [1], 0, "num_steps must be at least 1. Found 0"),
        ],
    )
    def test_bad_fields(self, events, counts, steps, message):
        event = ext.ScheduledAllocationEvent(events, counts, steps)
        with pytest.raises(ValueError, match=message):
            accountant_of(event)

    def test_it_round_trips(self):
        event = ext.ScheduledAllocationEvent([Gaussian(1.0)], [3], 9)
        assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event


class TestSpecialValues:
    @pytest.mark.parametrize(
        "event",
        [
            Poisson(0.0, Composed([Gaussian(0.0), Laplace(1.0)])),
            ext.PLDSubsampleEvent(0.0, dp_accounting.NonPrivateDpEvent()),
            stock_events.TruncatedSubsampledGaussianDpEvent(9, 0.0, 3, 0.0),
            stock_events.MixtureOfGaussiansDpEvent(0.0, [0.0], [1.0]),
            Composed([]),
            SelfComposed(dp_accounting.NoOpDpEvent(), 4),
        ],
    )
    def test_no_ops(self, event):
        accountant = accountant_of(event)
        assert accountant.get_epsilon_bounds(0.0) == (0.0, 0.0)
        assert accountant.get_delta_bounds(0.0) == (0.0, 0.0)

    @pytest.mark.parametrize(
        "event",
        [
            ext.RandomAllocationEvent(Laplace(0.0), 2, 5),
            stock_events.MixtureOfGaussiansDpEvent(0.0, [0.5, 1.0], [0.5, 0.5]),
            stock_events.TruncatedSubsampledGaussianDpEvent(9, 1.0, 9, 0.0),
            Composed([Gaussian(1.0), Laplace(0.0)]),
        ],
    )
    def test_no_privacy(self, event):
        accountant = accountant_of(event)
        assert accountant.get_epsilon(0.5) == math.inf
        assert accountant.get_delta(5.0) == 1.0
        assert accountant.get_delta(math.inf) == 1.0

    def test_a_rate_of_one_changes_nothing(self):
        tree = Composed([Gaussian(2.0), Laplace(3.0)])
        assert accountant_of(ext.PLDSubsampleEvent(1.0, tree)).get_epsilon(
            1e-6
        ) == accountant_of(tree).get_epsilon(1e-6)

    @pytest.mark.parametrize("noise", [0.03, 1e-3, 1e-10])
    def test_hardly_any_noise(self, noise):
        """Ratios that no float holds: finite bounds by other means, or infinity."""
        for event in (Laplace(noise), Gaussian(noise), Poisson(0.1, Laplace(noise))):
            lower, upper = accountant_of(event, 2).get_epsilon_bounds(1e-6)
            assert 0 <= lower <= upper < math.inf
        assert accountant_of(Laplace(1e-3)).get_epsilon(1e-6) <= 1000 * (1 + 1e-9)


class TestExtremes:
    @pytest.mark.parametrize(
        ("event", "count", "delta", "most"),
        [
            # Where e^ε fits no float, or hardly, the bound without amplification holds.
            (Poisson(0.01, Gaussian(0.03)), 1, 1e-6, 713.1),
            (ext.GroupSubsampledEvent(64, Poisson(0.5, Gaussian(1.0))), 1, 1e-6, 2352),
            (ext.GroupSubsampledEvent(8, Poisson(0.1, Gaussian(0.3))), 1, 1e-30, 690),
            # Shifts far apart, of which the far ones are rare.
            (ext.GroupSubsampledEvent(16, Poisson(0.01, Gaussian(0.3))), 2, 1e-6, 110),
            (ext.RandomAllocationEvent(Gaussian(0.033), 1, 100), 1, 1e-6, 597.65),
            (ext.RandomAllocationEvent(Gaussian(0.036), 1, 10**6), 1, 1e-6, 503.12),
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
            [Gaussian(17.7), Laplace(25.0)], [4, 1], 12
        )
        accountant = accountant_of(event, 10)
        epsilon = accountant.get_epsilon(1e-12)
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert 0.9e-12 < lower <= upper < 1.01e-12

    def test_rare_jumps_beside_tiny_losses(self):
        mixture = stock_events.MixtureOfGaussiansDpEvent(1.24, [0.0, 1.0], [0.5, 0.5])
        accountant = accountant_of(Poisson(2e-6, mixture), 1000)
        lower, upper = accountant.get_delta_bounds(0.0)
        assert 0 < lower <= upper < 20 * lower


class TestRefusals:
    @pytest.mark.parametrize(
        ("event", "relation", "message"),
        [
            (
                Poisson(0.1, Composed([Gaussian(1.0)])),
                NeighborRel.REPLACE_ONE,
                "REPLACE_SPECIAL.*no theorem",
            ),
            (
                ext.PLDSubsampleEvent(0.1, Laplace(1.0)),
                NeighborRel.REPLACE_ONE,
                "PLDSubsampleEvent.*Laplace.*no theorem",
            ),
            (
                Poisson(0.1, RANDOMIZED_RESPONSE),
                NeighborRel.REPLACE_SPECIAL,
                "cannot run on a sample",
            ),
            (
                ext.RandomAllocationEvent(RANDOMIZED_RESPONSE, 1, 5),
                NeighborRel.REPLACE_SPECIAL,
                "cannot run on a sample",
            ),
            (
                ext.ScheduledAllocationEvent([Gaussian(1.0)], [1], 5),
                NeighborRel.REPLACE_ONE,
                "REPLACE_SPECIAL.*Found",
            ),
        ],
    )
    def test_what_no_theorem_covers(self, event, relation, message):
        accountant = ext.PLDAccountant(relation)
        assert not accountant.supports(event)
        with pytest.raises(privacy_accountant.UnsupportedEventError, match=message):
            accountant.compose(Composed([event]))

    @pytest.mark.parametrize(
        ("event", "message"),
        [
            (Poisson(1.5, Gaussian(1.0)), r"sampling_probability.*\[0, 1\]. Found 1.5"),
            (ext.PLDSubsampleEvent(math.nan, Gaussian(1.0)), "Found nan"),
            (stock_events.DiscreteLaplaceDpEvent(0.5, 0), "sensitivity.*Found 0"),
            (stock_events.DiscreteLaplaceDpEvent(0.5, 10**7), "at most 1000000"),
            (stock_events.DiscreteLaplaceDpEvent(-1, 1), "noise_parameter.*Found -1"),
            (
                stock_events.MixtureOfGaussiansDpEvent(1.0, [1.0], [0.5, 0.5]),
                "same length.*Found 1 and 2",
            ),
            (
                stock_events.MixtureOfGaussiansDpEvent(1.0, [1.0], [0.5]),
                "sampling_probs must sum to 1. Found 0.5",
            ),
            (
                stock_events.MixtureOfGaussiansDpEvent(1.0, [-1.0], [1.0]),
                "sensitivities.*Found -1",
            ),
            (
                stock_events.TruncatedSubsampledGaussianDpEvent(-1, 0.5, 3, 1.0),
                "dataset_size must be at least 0. Found -1",
            ),
            (Laplace(-2.0), "noise_multiplier.*Found -2"),
        ],
    )
    def test_bad_fields(self, event, message):
        accountant = ext.PLDAccountant()
        assert accountant.supports(event)
        with pytest.raises(ValueError, match=message):
            accountant.compose(event)
        with pytest.raises(ValueError, match=message):
            accountant.compose(Poisson(0.1, Composed([Gaussian(1.0), event])))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class StaircaseEvent(dp_accounting.DpEvent):
    """A third party's event: an (ε, 0)-private mechanism."""

    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class TwiceEvent(dp_accounting.DpEvent):
    """A third party's event with another inside, run twice on one sample."""

    event: dp_accounting.DpEvent


@dataclasses.dataclass(frozen=True)
class CoinFlip(interface.Mechanism):
    """A third party's mechanism: a coin that tells with probability 1/4."""

    def pairs(self, bound, tail_mass):
        pair = dominating_pair.DominatingPair(
            np.ones(1), np.array([0.75]), 0.25, 0.25, bound
        )
        return dominating_pair.DirectedPairs.same(pair)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(event_table, "_TABLE", dict(event_table._TABLE))


class TestRegister:
    def test_events_of_ones_own(self, registry):
        assert not ext.PLDAccountant().supports(StaircaseEvent(1.0))
        ext.PLDAccountant.register(
            StaircaseEvent,
            lambda event, reader: discrete_outputs.PrivacyParameters(event.epsilon),
        )
        accountant = accountant_of(StaircaseEvent(0.5), 20)
        assert accountant.get_epsilon(1e-6) < 10.0
        assert accountant.get_epsilon(0.0) == pytest.approx(10.0)
        sampled = accountant_of(ext.RandomAllocationEvent(StaircaseEvent(0.5), 1, 9))
        # Nine ratios of e^±½, the mean of which is binomial but for its scale.
        with mpmath.workdps(40):
            growth = mpmath.exp(0.5)
            up = 1 / (1 + growth)
            p, q = [], []
            for ups in range(10):
                q.append(math.comb(9, ups) * up**ups * (1 - up) ** (9 - ups))
                p.append(q[-1] * (ups * growth + (9 - ups) / growth) / 9)
        for epsilon in (0.1, 0.42):
            truth = max(oracles.discrete_deltas(p, q, epsilon).values())
            assert truth <= sampled.get_delta(epsilon) <= truth * (1 + 1e-2)

    def test_inner_events_are_read_by_the_reader(self, registry):
        ext.PLDAccountant.register(
            TwiceEvent,
            lambda event, reader: compositions.compose(
                {reader.mechanism(event.event): 2}
            ),
        )
        twice = accountant_of(TwiceEvent(Gaussian(2.0))).get_epsilon(1e-6)
        assert twice == accountant_of(Gaussian(2.0), 2).get_epsilon(1e-6)
        unsupported = TwiceEvent(stock_events.UnsupportedDpEvent())
        assert not ext.PLDAccountant().supports(unsupported)

    def test_mechanisms_of_ones_own(self, registry):
        ext.PLDAccountant.register(StaircaseEvent, lambda event, reader: CoinFlip())
        accountant = accountant_of(StaircaseEvent(0.0), 2)
        lower, upper = accountant.get_delta_bounds(3.0)
        assert lower <= 1 - 0.75**2 <= upper
        assert upper <= lower * (1 + 1e-9)

    def test_subclasses_are_their_parents_unless_registered(self, registry):
        class QuietGaussian(Gaussian):
            pass

        assert accountant_of(QuietGaussian(1.0)).get_epsilon(1e-6) == accountant_of(
            Gaussian(1.0)
        ).get_epsilon(1e-6)

    @pytest.mark.parametrize(
        ("event_type", "construction", "message"),
        [
            (int, lambda e, r: None, "event_type must be a subclass of DpEvent"),
            (Gaussian(1.0), lambda e, r: None, "event_type"),
            (StaircaseEvent, 5, "construction must be callable. Found 5"),
        ],
    )
    def test_bad_registrations(self, registry, event_type, construction, message):
        with pytest.raises(TypeError, match=message):
            ext.PLDAccountant.register(event_type, construction)

    def test_upstreams_random_allocation_where_it_exists(self, registry):
        @attr.s(frozen=True, slots=True, auto_attribs=True)
        class RandomAllocationDpEvent(dp_accounting.DpEvent):
            event: dp_accounting.DpEvent
            num_selected: int
            num_steps: int

        class FutureModule:
            pass

        FutureModule.RandomAllocationDpEvent = RandomAllocationDpEvent
        event_table.register_stock_events(FutureModule)
        fields = Gaussian(1.0), 2, 11
        upstream = accountant_of(RandomAllocationDpEvent(*fields))
        ours = accountant_of(ext.RandomAllocationEvent(*fields))
        assert upstream.get_epsilon(1e-6) == ours.get_epsilon(1e-6)
        assert not ext.PLDAccountant(NeighborRel.REPLACE_ONE).supports(
            RandomAllocationDpEvent(*fields)
        )


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(5)), st.integers(1, 4))
def test_order_and_grouping_do_not_matter(order, count):
    leaves = [
        Gaussian(3.0),
        Poisson(0.1, Gaussian(1.0)),
        Laplace(4.0),
        ext.RandomAllocationEvent(Gaussian(1.0), 1, 10),
        Poisson(0.1, Gaussian(1.0)),
    ]
    by_one = ext.PLDAccountant()
    for _, index in itertools.product(range(count), order):
        by_one.compose(leaves[index])
    at_once = accountant_of(Composed(leaves), count)
    assert by_one.get_epsilon(1e-6) == pytest.approx(
        at_once.get_epsilon(1e-6), rel=1e-9
    )


def test_ten_thousand_composes_one_at_a_time():
    accountant = ext.PLDAccountant()
    for _ in range(10_000):
        accountant.compose(Poisson(0.001, Gaussian(1.0)))
    expected = accountant_of(Poisson(0.001, Gaussian(1.0)), 10_000)
    assert accountant.get_epsilon(1e-6) == expected.get_epsilon(1e-6)


@pytest.mark.parametrize("count", [10**5, 10**6, 10**7, 10**8])
def test_very_many_runs(count):
    """Of ever rarer samples, near the Gaussian limit: μ = λ √n √(e^{1/σ²} − 1)."""
    scale, sigma = 0.01, 2.0
    event = Poisson(scale / math.sqrt(count), Gaussian(sigma))
    lower, upper = accountant_of(event, count).get_epsilon_bounds(1e-6)
    # Bounds on rounding grow with the number of runs, in lower bounds above all.
    assert lower <= upper <= lower * (1 + 3e-5 + count * 7e-11)
    limit = scale * math.sqrt(math.expm1(sigma**-2))
    assert upper == pytest.approx(gaussian.epsilon(limit, 1e-6, Bound.UPPER), rel=1e-2)


@pytest.mark.parametrize(
    ("rate", "sigma", "count", "width"),
    [(1e-6, 0.3, 10**6, 1e-4), (1e-6, 0.3, 10**7, 1e-3), (1e-3, 1.0, 10**6, 1e-4)],
)
def test_very_many_runs_with_rare_large_losses(rate, sigma, count, width):
    event = Poisson(rate, Gaussian(sigma))
    lower, upper = accountant_of(event, count).get_epsilon_bounds(1e-6)
    assert lower <= upper <= lower * (1 + width)
    # A record in one epoch of 1 / λ steps each is about as private.
    epochs = round(count * rate)
    allocation = ext.RandomAllocationEvent(Gaussian(sigma), 1, round(1 / rate))
    allocated = accountant_of(allocation, epochs).get_epsilon(1e-6)
    assert upper == pytest.approx(allocated, rel=0.1)


def test_a_lower_bound_that_is_left_with_nothing():
    """Losses of 270, two of them: no sum of these is certain enough to be kept."""
    certain = stock_events.DiscreteLaplaceDpEvent(30.0, 9)
    event = ext.ScheduledAllocationEvent(
        [Gaussian(1.0), ext.RandomAllocationEvent(certain, 2, 5)], [1, 2], 4
    )
    lower, upper = accountant_of(event).get_epsilon_bounds(1e-3)
    assert 0 <= lower <= upper <= 540.1


class TestPrivateSampling:
    @pytest.mark.parametrize(
        ("mass", "epsilon", "expected"), [(1.0, 1.0, 74.9), (0.2, 4.0, 287.0)]
    )
    def test_a_hundred_draws_of_the_design_page(self, mass, epsilon, expected):
        event = wpm_dp_event.PrivateSamplingEvent(epsilon, mass)
        accountant = accountant_of(event, 100, NeighborRel.REPLACE_ONE)
        assert accountant.get_epsilon(1e-6) == pytest.approx(expected, abs=0.1)
        assert accountant.get_epsilon(0.0) == pytest.approx(100 * epsilon)

    def test_it_holds_every_law_between_the_bounds(self):
        """Uniform m on four outputs: all vertices of the polytope, in pairs."""
        epsilon = 1.2
        low, high = math.exp(-epsilon / 2) / 4, math.exp(epsilon / 2) / 4
        vertices = set()
        for place in range(4):
            for chosen in itertools.product((low, high), repeat=3):
                rest = 1 - sum(chosen)
                if low <= rest <= high:
                    law = [*chosen]
                    law.insert(place, rest)
                    vertices.add(tuple(law))
        assert len(vertices) >= 4
        event = wpm_dp_event.PrivateSamplingEvent(epsilon, 1.0)
        accountant = accountant_of(event, 1, NeighborRel.REPLACE_ONE)
        for order in (0.0, 0.4, 1.0):
            truth = max(
                oracles.discrete_deltas(p, q, order)["remove"]
                for p, q in itertools.product(vertices, repeat=2)
            )
            assert accountant.get_delta(order) >= truth

    def test_refusals(self):
        event = wpm_dp_event.PrivateSamplingEvent(1.0, 1.0)
        error = privacy_accountant.UnsupportedEventError
        with pytest.raises(error, match="REPLACE_ONE.*Found"):
            accountant_of(event)
        with pytest.raises(error, match="cannot run on a sample"):
            accountant_of(
                ext.RandomAllocationEvent(event, 1, 3), 1, NeighborRel.REPLACE_SPECIAL
            )
        bad = wpm_dp_event.PrivateSamplingEvent(-1.0, 1.0)
        with pytest.raises(ValueError, match="epsilon"):
            accountant_of(bad, 1, NeighborRel.REPLACE_ONE)
