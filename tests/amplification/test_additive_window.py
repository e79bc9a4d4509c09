"""The window of a sum of ratios: laws made by hand, whose numbers are exact."""

import math

import numpy as np
import pytest

from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Summand = additive_window.Summand
RARE = 2.0**-12


def summand(ratios, masses, count=1, weight=1.0, *, zero=0.0):
    pair = dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), 0.0, zero, Bound.UPPER
    )
    return Summand(pair, count, weight)


# Four of 1 or 3, as likely; two of 2 or 4, the second thrice as likely.
FIRST = summand([1.0, 3.0], [0.5, 0.5], 4)
SECOND = summand([1.0, 2.0], [0.125, 0.375], 2, 2.0)


def sketch_of(*summands, threshold=math.inf, tail_mass=1e-12):
    return additive_window.sketch_of(summands, threshold, tail_mass)


def mean_and_deviation(sketch):
    _, mean, variance = sketch.cumulants(0.0)
    return mean, math.sqrt(variance)


def close(*numbers):
    return pytest.approx(numbers, rel=1e-14)


def test_a_summand_has_a_weight():
    np.testing.assert_array_equal(SECOND.places(), [2.0, 4.0])
    assert SECOND.mean() == 2.0 * (0.125 + 0.75)
    assert Summand(SECOND.pair, 3).places()[1] == 2.0


@pytest.mark.parametrize(("count", "negligible"), [(1, True), (16, True), (17, False)])
def test_zeros_are_negligible_up_to_ten_tails(count, negligible):
    one = summand([1.0], [0.6875], count, zero=0.3125)
    assert additive_window.negligible_zero(one, 0.5) is negligible


def test_a_sketch_has_the_moments_and_ends_of_the_sum():
    sketch = sketch_of(FIRST, SECOND)
    assert mean_and_deviation(sketch) == close(8.0 + 7.0, math.sqrt(4.0 + 1.5))
    assert sketch.ends() == (4.0 + 4.0, 12.0 + 8.0)


def test_a_sketch_ends_at_the_threshold():
    three = summand([1.0, 3.0, 7.0], [0.25, 0.25, 0.5], 5)
    assert sketch_of(three, threshold=3.0).ends() == (5.0, 15.0)
    assert mean_and_deviation(sketch_of(three, threshold=3.0))[0] == 10.0
    assert sketch_of(three, threshold=2.5).ends() == (5.0, 5.0)


def test_a_sketch_has_zeros_that_count():
    zeros = summand([1.0, 3.0], [0.25, 0.25], 2, zero=0.5)
    assert sketch_of(zeros).ends() == (0.0, 6.0)
    assert mean_and_deviation(sketch_of(zeros)) == close(2.0, math.sqrt(3.0))
    assert sketch_of(zeros, tail_mass=0.1).ends() == (2.0, 6.0)
    without = sketch_of(zeros, tail_mass=0.1)
    assert mean_and_deviation(without) == close(4.0, math.sqrt(2))


def skewed(count=64, scale=1.0):
    """A light left tail and a heavy right one, so that both searches move."""
    return summand(
        [0.5 * scale, scale, 4.0 * scale], [0.375, 0.5, 0.125], count, zero=0.0
    )


@pytest.mark.parametrize("scale", [2.0**-40, 1.0, 2.0**40])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("goal", [-2.0, -12.0])
def test_quantiles_are_where_chernoff_says(goal, sign, scale):
    sketch = sketch_of(skewed(scale=scale))
    place, tilt = additive_window.quantile(sketch, goal, sign)
    assert sign * tilt > 0
    value, saddle, _ = sketch.cumulants(tilt)
    assert abs(saddle - place) < 1e-9 * place
    # The search is to 1 % of the tilt, and the exponent is about its square.
    assert value - tilt * place == pytest.approx(goal, rel=0.02)
    mean, deviation = mean_and_deviation(sketch)
    assert 1 < sign * (place - mean) / deviation / math.sqrt(-2 * goal) * 1.5 < 3


@pytest.mark.parametrize("scale", [2.0**-10, 1.0, 2.0**10])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(("middle", "chance"), [(2.0, 1e-12), (16.0, 0.05)])
def test_an_end_that_is_not_rare_is_the_quantile(middle, chance, sign, scale):
    """The first tilt of the search that centres the sum near its end, of 1/16."""
    places = [(middle - 1) * scale, (middle + 1) * scale]
    sketch = sketch_of(summand(places, [0.5, 0.5], 4))
    place, tilt = additive_window.quantile(sketch, math.log(chance), sign)
    assert place == 4 * (middle + sign) * scale

    def remaining(tilt):
        return abs(sketch.cumulants(tilt)[1] - place) / (4.0 * scale)

    assert remaining(tilt) < 0.01
    start = math.sqrt(-2 * math.log(chance)) / (2.0 * scale)
    step = math.exp(1.25)
    assert abs(tilt) == pytest.approx(start * step) or remaining(tilt / step) >= 0.01


def test_a_window_has_its_sums_numbers():
    summands = [skewed(), skewed(32, 2.0)]
    tail_mass = 1e-9
    window = additive_window.window_of(summands, tail_mass)
    sketch = sketch_of(*summands)
    goal = math.log(tail_mass)
    assert window.tail_mass == tail_mass
    assert window.threshold == math.inf
    low = additive_window.quantile(sketch, goal, -1.0)
    high = additive_window.quantile(sketch, goal, 1.0)
    assert (window.low, window.lowering) == low
    assert (window.high, window.raising) == high
    assert window.deviation == mean_and_deviation(sketch)[1]
    assert window.lowering < 0 < window.raising


@pytest.mark.parametrize(("exponent", "pieces"), [(12.5, 1), (128.0, 2), (400.0, 3)])
def test_tilts_are_nine_deviations_apart_at_most(exponent, pieces):
    """sqrt(2 · exponent) deviations to an end, of which .7 are reached."""
    window = additive_window.window_of([skewed(4096)], math.exp(-exponent))
    shares = [0.7 * number / pieces for number in range(1, pieces + 1)]
    expected = [window.lowering * share for share in reversed(shares)]
    expected += [0.0, *(window.raising * share for share in shares)]
    assert window.tilts == pytest.approx(expected, rel=1e-14)
    assert list(window.tilts) == sorted(window.tilts)
    assert all(type(tilt) is float for tilt in window.tilts)


def test_a_window_leaves_out_negligible_zeros_only():
    zeros = summand([0.5, 1.5], [0.5 - 2**-21, 0.5 - 2**-21], 8, zero=2.0**-20)
    assert additive_window.window_of([zeros], 1e-30).low < 2.0
    assert additive_window.window_of([zeros], 1e-6).low == pytest.approx(4.0)


def test_a_window_shows_the_bulk():
    """Large ratios do not count, and a threshold is where they begin."""
    heavy = summand([0.5, 1.5, 100.0], [0.5, 0.5 - RARE, RARE], 4)
    window = additive_window.window_of([heavy], 1e-12)
    assert window.threshold == 1.5
    assert (window.low, window.high) == (2.0, 6.0)
    assert window.deviation == pytest.approx(1.0, rel=1e-3)


def test_large_ratios_are_part_of_a_window_whose_bulk_is_one_number():
    """No lattice shows one number: this was a division by zero."""
    alone = summand([0.875, 64.0], [1 - RARE, RARE], 2)
    assert additive_window.large_ratio_threshold([alone]) == 0.875
    window = additive_window.window_of([alone], 1e-12)
    assert window.threshold == math.inf
    variance = 2 * (64.0 - 0.875) ** 2 * RARE * (1 - RARE)
    assert window.deviation == pytest.approx(math.sqrt(variance), rel=1e-12)
    assert (window.low, window.high) == (1.75, 128.0)


@pytest.mark.parametrize("scale", [2.0**-40, 1.0, 2.0**40])
def test_nearly_one_number_is_one_number(scale):
    for apart, is_one in ((2.0**-50, True), (2.0**-30, False)):
        places = scale * np.array([0.875, 0.875 + apart, 64.0])
        nearly = summand(places, [0.5, 0.5 - RARE, RARE], 2)
        threshold = additive_window.window_of([nearly], 1e-12).threshold
        assert threshold == (math.inf if is_one else places[1])


def test_the_bulk_is_what_is_up_to_the_threshold():
    """Its law is given that nothing is large: one number has no deviation."""
    bulk = additive_window.bulk_deviation
    assert bulk([FIRST, SECOND], math.inf) == math.sqrt(4.0 + 1.5)
    assert bulk([FIRST, SECOND], 3.0) == 2.0
    assert bulk([FIRST, SECOND], 2.0) == 0.0


@pytest.mark.parametrize(
    ("places", "rates", "threshold"),
    [
        # The largest alone is no rarity.
        ([0.5, 1.5, 100.0], [0.5, 0.5, 16], math.inf),
        # Up to four of a rate of 2^-12 are within a thousandth.
        ([0.5, 1.5, 100.0], [0.5, 0.5, 1], 1.5),
        ([0.5, 1.5, 99.0, 100.0], [0.5, 0.5, 1, 2], 1.5),
        ([0.5, 1.5, 99.0, 100.0], [0.5, 0.5, 2, 3], 99.0),
        ([0.5, 1.5, 98.0, 99.0, 100.0], [0.5, 0.5, 4, 2, 2], 98.0),
        # All together are rare: the least remains.
        ([1.0, 1000.0], [1, 2], 1.0),
    ],
)
def test_a_sum_has_a_thousandth_of_a_large_ratio(places, rates, threshold):
    masses = [rate if rate < 1 else rate * RARE for rate in rates]
    assert additive_window.large_ratio_threshold([summand(places, masses)]) == threshold
    halves = [mass / 2 for mass in masses]
    assert (
        additive_window.large_ratio_threshold([summand(places, halves, 2)]) == threshold
    )


def test_large_ratios_of_all_summands_count():
    first = summand([0.5, 1.5, 100.0], [0.5, 0.5, RARE], 2)
    second = summand([0.5, 1.5, 30.0], [0.5, 0.5, 2 * RARE], 2, 3.0)
    # Places 100 and 90, with rates of 2 and 4 in 4096: only the first is rare.
    assert additive_window.large_ratio_threshold([first, second]) == 90.0


@pytest.mark.parametrize(("place", "is_large"), [(12.5, False), (13.5, True)])
def test_large_ratios_leave_the_bulk_by_six_deviations(place, is_large):
    """Sixteen of .5 or 1.5 have deviation 2, and the mean of each is 1."""
    heavy = summand([0.5, 1.5, place], [0.5, 0.5, 2.0**-20], 16)
    threshold = additive_window.large_ratio_threshold([heavy])
    assert threshold == (1.5 if is_large else math.inf)


@pytest.mark.parametrize(("place", "is_large"), [(12.5, False), (13.5, True)])
def test_a_large_ratio_is_measured_from_the_least_mean(place, is_large):
    """Another of deviation .5 · 16^.5 adds to the bulk: six of 8^.5 are 17."""
    least = summand([0.5, 1.5], [0.5, 0.5], 16)
    other = summand([4.5, 5.5, place + 4.5], [0.5, 0.5, 2.0**-20], 16)
    threshold = additive_window.large_ratio_threshold([least, other])
    assert threshold == (5.5 if is_large else math.inf)
