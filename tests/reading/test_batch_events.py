"""Samples that are one, and what is less of two bounds on a tree of events."""

import asked
import dp_accounting
import mpmath
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.reading import batch_events

NeighborRel = dp_accounting.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent


def test_what_is_merged_lies_on_either_side():
    rates = (0.1, 0.3, 0.7)
    event = Gaussian(1.3)
    for rate in rates:
        event = Poisson(rate, Composed([event]))
    more, less = batch_events.merged(event)
    with mpmath.workdps(40):
        exact = mpmath.fprod(map(mpmath.mpf, rates))
        assert less.sampling_probability < exact < more.sampling_probability
    noises = Composed([Gaussian(0.3), SelfComposed(Gaussian(1.1), 7)])
    more, less = batch_events.merged(Poisson(0.5, noises))
    with mpmath.workdps(40):
        square = mpmath.mpf(0.3) ** -2 + 7 * mpmath.mpf(1.1) ** -2
        assert more.event.noise_multiplier < 1 / mpmath.sqrt(square)
        assert less.event.noise_multiplier > 1 / mpmath.sqrt(square)


@pytest.mark.parametrize(
    "event",
    [
        Poisson(0.1, Gaussian(1.0)),
        Poisson(0.1, Composed([Gaussian(1.0), Laplace(1.0)])),
        Poisson(0.1, Composed([])),
        Poisson(0.1, Poisson(0.0, Gaussian(1.0))),
        Poisson(0.1, SelfComposed(Poisson(0.2, Gaussian(1.0)), 2)),
    ],
)
def test_what_is_one_or_none_is_not_merged(event):
    assert batch_events.merged(event) is None


@pytest.mark.parametrize(
    ("epsilon", "runs", "most"), [(1.0, 10, 7.77), (0.1, 50, 1.6361), (1.0, 1, 1.0)]
)
def test_exponential_mechanisms_by_the_less_of_two_bounds(epsilon, runs, most):
    """Pairs alone: 8.116 and 1.768."""
    bounds = asked.bounds_of({selections.ExponentialMechanism(epsilon): runs}, 1e-4)
    assert bounds.lower_epsilon(1e-6) <= bounds.upper_epsilon(1e-6) <= most


def test_many_draws_of_one_record_are_told():
    """Their moments alone made ε 7009: E Z² is above e^2000."""
    event = dp_accounting.SampledWithReplacementDpEvent(60_000, 64, Gaussian(2.0))
    renyi = ext.RdpAccountant(neighboring_relation=NeighborRel.REPLACE_ONE)
    exact = ext.PLDAccountant(NeighborRel.REPLACE_ONE).compose(event, 5000)
    found = renyi.compose(event, 5000).get_epsilon(1e-5)
    assert exact.get_epsilon_bounds(1e-5)[0] <= found <= 3.3
