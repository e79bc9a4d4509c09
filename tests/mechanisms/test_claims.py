"""One law over all mechanisms: what one claims is no less than its lower pair shows.

Claims are taken at their word, whatever the parameters; so these are hostile ones.
"""

import dataclasses
import math

from hypothesis import HealthCheck
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import lawful
import mechanism_laws
import numpy as np
import pytest

from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.runs import cyclic
from dp_accounting_ext.correlated.runs import fresh_windows
from dp_accounting_ext.correlated.runs import matrix_allocation
from dp_accounting_ext.correlated.runs import min_sep_sampling
from dp_accounting_ext.correlated.runs import selected_steps
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import chained
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.mechanisms import sampling
from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.mechanisms import truncated

EPSILONS = (-3.0, -1e-9, 0.0, 1e-12, 1e-3, 0.5, 3.0, 40.0, 690.0)


BAND = strategies.Strategy((1.0, 0.5))


def logs(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def weights_of(shifts):
    """Returns shifts with the weights of a Poisson sample, some of them tiny."""
    total = math.fsum(weight for _, weight in shifts)
    known = {shift: weight / total for shift, weight in shifts}
    return tuple(sorted(known.items()))


scales, rates = logs(0.03, 1e4), logs(1e-13, 1.0).map(lambda rate: min(rate, 1.0))
shifts = st.lists(
    st.tuples(st.sampled_from([0.0, 1e-6, 0.3, 1.0, 7.0]), logs(1e-9, 1.0)),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
).map(weights_of)
opposite = shifts.map(lambda law: tuple((-s, w) for s, w in law))
gaussians = scales.map(additive_noise.Gaussian)
LAPLACE = additive_noise.laplace(1.0)
laws_of_outcomes = rates.map(lambda rate: ((rate / 2, 0.25), (1 - rate / 2, 0.75)))
SINGLE = st.one_of(
    gaussians,
    scales.map(additive_noise.laplace),
    st.builds(additive_noise.GaussianMixture, shifts, opposite),
    st.builds(additive_noise.LaplaceMixture, shifts, opposite),
    st.builds(discrete_outputs.DiscreteLaplace, logs(1e-6, 300.0), st.integers(1, 9)),
    st.builds(discrete_outputs.DiscreteGaussian, logs(0.2, 50.0), st.integers(1, 5)),
    st.builds(
        discrete_outputs.RandomizedResponse,
        logs(1e-280, 0.999),
        st.integers(2, 1000),
        st.booleans(),
    ),
    st.builds(
        discrete_outputs.PrivacyParameters, logs(1e-9, 2000.0), st.just(0.0) | rates
    ),
    laws_of_outcomes.map(lambda law: discrete_outputs.PrivateDraw(law, law)),
    logs(1e-6, 600.0).map(selections.ExponentialMechanism),
    logs(1e-6, 600.0).map(selections.PermuteAndFlip),
    st.tuples(rates, rates).map(
        lambda both: known_bounds.NonPrivate(*((r, 1 - r) for r in both))
    ),
    st.tuples(logs(1e-6, 10.0), st.just(0.0) | rates).map(
        lambda given: renyi_bounded.RenyiBounded.of(
            given[0] * np.array(renyi_bounded.ORDERS), given[1]
        )
    ),
    st.builds(
        lambda size, noise, drawn, kept, split: groups.GroupedOnBatches(
            size, batch_mechanisms.Noise(noise), truncated.Truncated(drawn, 0.3, kept)
        ).split(size, split * size),
        st.integers(1, 3),
        scales,
        st.integers(6, 9),
        st.integers(1, 5),
        st.integers(0, 1),
    ),
    st.builds(
        lambda noise, rate, drawn, kept: truncated.Truncated(
            drawn, rate, kept
        ).one_absent(batch_mechanisms.Noise(noise)),
        scales,
        rates,
        st.integers(1, 50),
        st.integers(1, 9),
    ),
    st.builds(subsampled.zeroed_sample, scales, rates),
    st.builds(
        lambda noise, bins, epochs: matrix_allocation.MatrixAllocation(
            BAND, noise, bins, epochs
        ),
        logs(0.5, 20.0),
        st.integers(2, 4),
        st.integers(1, 2),
    ),
    st.builds(
        lambda noise, rate, apart, steps, warm: min_sep_sampling.Run(
            BAND, noise, rate, apart, steps, warm
        ),
        logs(0.5, 20.0),
        rates,
        st.integers(2, 4),
        st.integers(2, 9),
        st.booleans(),
    ),
    st.builds(
        lambda noise, rate, length, steps: cyclic.Run(BAND, noise, rate, length, steps),
        logs(0.5, 20.0),
        rates,
        st.integers(1, 3),
        st.integers(2, 9),
    ),
    st.builds(
        lambda noise, selected, epochs: selected_steps.Run(
            BAND, noise, selected, 4, epochs
        ),
        logs(0.5, 20.0),
        st.integers(1, 3),
        st.integers(1, 2),
    ),
    st.builds(
        lambda noise, window: fresh_windows.Window(BAND, noise, window, 1),
        logs(0.5, 20.0),
        st.integers(2, 4),
    ),
)
small = st.integers(1, 3)
members = st.integers(1, 4).flatmap(
    lambda size: st.tuples(st.integers(0, size), st.just(size))
)
noises = st.builds(batch_mechanisms.Noise, scales, st.booleans())
schemes = st.one_of(
    st.just(sampling.UNSAMPLED),
    rates.map(sampling.Poisson),
    st.builds(sampling.FixedSize, st.integers(8, 20), st.integers(1, 4), st.booleans()),
)


def split_of(mechanism, split):
    removed, size = split
    return dataclasses.replace(mechanism, group_size=size).split(
        removed, size - removed
    )


def attained(base, hits):
    """Returns what a record attains that is in some batches: it has a lower pair."""
    return batches.on_batches(base, [batches.Coupled(hits)], is_attained=True)


def around(inner):
    """Returns mechanisms that are made of others."""
    numbers = st.integers(1, 5)
    hits = st.tuples(rates, st.integers(1, 2)).map(
        lambda law: ((0.0, 1 - law[0]), (float(law[1]), law[0]))
    )
    bases = (
        noises
        | rates.map(batch_mechanisms.Answer)
        | inner.map(batch_mechanisms.NeighboringBatches)
    )
    return st.one_of(
        st.builds(subsampled.poisson_sampled, rates, inner),
        st.builds(subsampled.on_poisson_sample, rates, inner),
        st.builds(subsampled.substituted_sample, inner, rates),
        st.builds(
            lambda part, k, rest: allocated.allocate(part, k, k + rest),
            gaussians | inner,
            st.just(1),
            st.integers(0, 40),
        ),
        st.builds(allocated.allocate, gaussians, st.just(2), st.integers(2, 9)),
        st.builds(
            lambda one, other, steps: allocated.allocate_to_schedule(
                {one: 1, other: 2}, steps
            ),
            gaussians,
            inner,
            st.integers(3, 9),
        ),
        st.builds(chained.chain, inner, small, st.integers(0, 2)),
        st.builds(chained.InARow, inner, inner),
        inner.map(known_bounds.UpperOnly),
        st.builds(known_bounds.Between, inner, inner).map(
            lambda each: known_bounds.Between(each.below, each.below)
        ),
        st.builds(
            lambda one, other, count: compositions.compose({one: count, other: 1}),
            inner,
            inner,
            numbers,
        ),
        inner.map(chained.Symmetrized),
        st.builds(attained, bases, hits),
        st.builds(batches.replaced_members, noises, hits),
        st.builds(
            split_of,
            st.builds(groups.GroupedOnBatches, st.just(1), noises, schemes),
            members,
        ),
        st.builds(
            split_of, st.builds(groups.GroupedByChain, st.just(1), inner), members
        ),
        st.builds(selections.BestOf, inner, logs(1.0, 100.0), st.floats(0.0, 3.0)),
    )


@settings(
    max_examples=lawful.EXAMPLES or 15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(SINGLE)
def test_claims_of_single_mechanisms(mechanism):
    mechanism_laws.assert_claims(mechanism, EPSILONS)


@settings(
    max_examples=lawful.EXAMPLES or 6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@example(allocated.allocate(additive_noise.Gaussian(1.0), 1, 9))
@example(chained.chain(additive_noise.Gaussian(1.0), 1, 2))
@example(
    attained(batch_mechanisms.NeighboringBatches(LAPLACE), ((0.0, 0.75), (1.0, 0.25)))
)
@given(around(SINGLE))
def test_claims_of_mechanisms_made_of_others(mechanism):
    mechanism_laws.assert_claims(mechanism, EPSILONS)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(around(around(gaussians | scales.map(additive_noise.laplace))))
def test_claims_of_mechanisms_made_of_these(mechanism):
    mechanism_laws.assert_claims(mechanism, EPSILONS)


@dataclasses.dataclass(frozen=True)
class Boastful(interface.OnePairMechanism):
    """Laplace noise that claims what is not so."""

    claimed: interface.Claims

    def pair(self, bound, accuracy):
        return LAPLACE.pair(bound, accuracy)

    def claims(self):
        return self.claimed


@pytest.mark.parametrize(
    "claimed",
    [
        interface.Claims(0.999),
        interface.Claims(0.5, 0.1),
        interface.Claims(gaussian_precision=0.5),
    ],
)
def test_the_law_finds_what_is_not_so(claimed):
    mechanism_laws.assert_claims(Boastful(interface.Claims()))
    with pytest.raises(AssertionError):
        mechanism_laws.assert_claims(Boastful(claimed))
