"""Allocation of anything, schedules, and draws from private distributions."""

import itertools
import math

import asked
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.reading import event_table
from dp_accounting_ext.wpm import dp_event as wpm_dp_event

Bound = dominating_pair.Bound
accountant_of = asked.accountant_of
Direction = dominating_pair.Direction
NeighborRel = privacy_accountant.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent


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

    @pytest.mark.parametrize("steps", [7, 12])
    def test_one_event_named_twice_ran_as_often_as_both_say(self, steps):
        twice = ext.ScheduledAllocationEvent(
            [Gaussian(1.0), Laplace(2.0), Gaussian(1.0)], [3, 1, 3], steps
        )
        once = ext.ScheduledAllocationEvent(
            [Gaussian(1.0), Laplace(2.0)], [6, 1], steps
        )
        reader = event_table.reader(NeighborRel.ADD_OR_REMOVE_ONE)
        assert reader.mechanism(twice) == reader.mechanism(once)

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
