"""Bounds of groups with many splits, trade-off curves, and how numbers are printed."""

import decimal
import math
import tracemalloc

import asked
import dp_accounting
from hypothesis import given
from hypothesis import strategies as st
import nights
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.bounds import trade_off_bounds
from dp_accounting_ext.kernel import memory
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.mechanisms import sampling

accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent


def splits(size):
    noise, scheme = batch_mechanisms.Noise(3.0, is_laplace=False), sampling.Poisson(0.1)
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    group = groups.on_batches(noise, scheme, size, relation)
    return groups.scenarios({group: 1})


def test_laws_of_many_splits_fit_into_memory(monkeypatch):
    """A group of 483 took 1.6 GB, most of it for splits that are not the worst."""
    deltas, most, found = np.array([1e-6]), [], []
    tracemalloc.start()
    try:
        for limit in (1 << 20, 1 << 30):
            monkeypatch.setattr(privacy_bounds, "_PROFILES", memory.Memory(limit))
            of_each = [privacy_bounds.PrivacyBounds(each, 1e-4) for each in splits(30)]
            worst = privacy_bounds.WorstPrivacyBounds(of_each)
            tracemalloc.reset_peak()
            found.append([worst.upper_epsilons(deltas)[0] for _ in range(2)])
            most.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert len({*found[0], *found[1]}) == 1  # What was forgotten is made again.
    assert most[0] < most[1] / 2


def test_curves_of_many_splits_fit_into_memory(monkeypatch):
    rates, found = np.array([1e-3, 0.1]), []
    for limit in (2 << 20, 1 << 30):
        kept = memory.Memory(limit)
        monkeypatch.setattr(trade_off_bounds, "_CURVES", kept)
        of_each = [trade_off_bounds.TradeOffBounds(x, 1e-3, 1e-4) for x in splits(6)]
        worst = trade_off_bounds.WorstTradeOffBounds(of_each)
        found += [worst.rates(rates) for _ in range(2)]
        assert (0 < kept.nbytes <= 2 << 20) == (limit == 2 << 20)
    for other in found[1:]:
        assert np.array_equal(other, found[0])


def test_a_scenario_with_a_lower_bound_is_found_among_many_without_one():
    """A group of 18 had the lower bound 0, as eight of its splits had larger ε."""
    known = additive_noise.Gaussian(3.0)
    unknown = [
        known_bounds.between(None, additive_noise.Gaussian(1 + number / 100))
        for number in range(9)
    ]
    worst = privacy_bounds.WorstPrivacyBounds(
        [privacy_bounds.PrivacyBounds({each: 1}, 1e-4) for each in [*unknown, known]]
    )
    alone = privacy_bounds.PrivacyBounds({known: 1}, 1e-4)
    deltas, epsilons = np.array([1e-6, 1e-3]), np.array([0.1, 1.0])
    lower, _ = worst.epsilon_bounds(deltas)
    assert np.array_equal(lower, alone.lower_epsilons(deltas))
    lower, _ = worst.delta_bounds(epsilons)
    assert np.array_equal(lower, alone.lower_deltas(epsilons))


@pytest.mark.parametrize(
    "inner",
    [
        dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(0.02), 2),
        dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(0.1), 90),
        *nights.at_night(
            dp_accounting.SelfComposedDpEvent(Poisson(0.2, Gaussian(1.5)), 88_300)
        ),
    ],
)
def test_a_sample_reveals_no_more_than_what_is_sampled(inner):
    """Also where its ratios are too large for a float: 20,563 was said, for 1,105.7."""
    sample = ext.PLDAccountant().compose(ext.PLDSubsampleEvent(0.1, inner))
    whole = ext.PLDAccountant().compose(inner)
    for delta in (1e-9, 1e-6, 1e-3):
        assert sample.get_epsilon(delta) <= whole.get_epsilon(delta) * (1 + 1e-6)
    epsilons = np.array([0.0, 400.0, 800.0, 1103.0, 2000.0])
    found, known = sample.get_delta(epsilons), whole.get_delta(epsilons)
    assert (found <= known * (1 + 1e-4) + 1e-300).all()


def test_ends():
    empty = ext.PLDAccountant()
    assert empty.get_true_positive_rates(0.3) == pytest.approx(0.3, rel=1e-12)
    assert empty.get_gdp_parameter_bounds() == (0.0, 0.0)
    everything = accountant_of(dp_accounting.NonPrivateDpEvent())
    assert everything.get_true_positive_rate_bounds(0.0) == (1.0, 1.0)
    assert everything.get_gdp_parameter_estimate() == math.inf
    # With probability 1e-3 the loss is infinite: too often for 1e-12, not for 0.01.
    sampled = accountant_of(Poisson(1e-3, dp_accounting.NonPrivateDpEvent()))
    assert sampled.get_gdp_parameter_bounds() == (math.inf, math.inf)
    assert sampled.get_gdp_parameter_estimate(np.array([0.01, 0.2, 0.9])) < 0.1
    low, high = sampled.get_true_positive_rate_bounds(0.0)
    assert low <= 1e-3 <= high <= 1e-3 * (1 + 1e-9)


def test_groups_under_k_of_t_steps_count_the_sum_of_all_outputs():
    """The lower rate was that of a single record, 0.0116."""
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(16.3), 8, 222)
    accountant = accountant_of(ext.GroupSubsampledEvent(17, event), 3)
    low, high = accountant.get_true_positive_rate_bounds(0.01)
    assert 0.99 * high <= low <= high


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS)
def test_seven_digits_are_rounded_outwards(value):
    low, high = decimals.rounded_down(value), decimals.rounded_up(value)
    assert decimal.Decimal(low) <= decimal.Decimal(value) <= decimal.Decimal(high)
    for printed in (low, high):
        assert len(decimal.Decimal(printed).as_tuple().digits) <= 7
    assert decimals.rounded_up(math.inf) == decimals.rounded_down(math.inf) == "inf"
    gap = decimal.Decimal(high) - decimal.Decimal(low)
    assert gap <= abs(decimal.Decimal(value)) * decimal.Decimal("1.0001e-6")
