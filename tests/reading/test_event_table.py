"""Every event of the table: special values, what is refused, and events of others."""

import dataclasses
import math

import asked
import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.reading import event_table

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent


RANDOMIZED_RESPONSE = stock_events.RandomizedResponseDpEvent(0.5, 4)


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


class TestRefusals:
    @pytest.mark.parametrize(
        ("event", "relation", "message"),
        [
            (
                Poisson(0.1, RANDOMIZED_RESPONSE),
                NeighborRel.REPLACE_ONE,
                "cannot run on a sample",
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


def test_every_stock_event_has_a_builder_or_is_refused():
    """A stock event that is new is refused, and never read as something else."""
    reader = event_table.reader(NeighborRel.ADD_OR_REMOVE_ONE)
    composed = Composed, SelfComposed
    kinds = [
        kind
        for kind in vars(stock_events).values()
        if isinstance(kind, type)
        and issubclass(kind, stock_events.DpEvent)
        and kind not in (stock_events.DpEvent, *composed)
    ]
    unread = {kind.__name__ for kind in kinds if kind not in reader.rows}
    for kind in kinds:
        if kind.__name__ in unread:
            event = kind(*[None] * len(attr.fields(kind)))
            assert not ext.PLDAccountant().supports(event)
    assert {"GaussianDpEvent", "LaplaceDpEvent", "NoOpDpEvent"}.isdisjoint(unread)
    assert "UnsupportedDpEvent" in unread
