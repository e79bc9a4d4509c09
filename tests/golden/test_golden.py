"""Every golden row: bounds contain the truth, and are as tight as the row asks.

golden.json is written by make_golden.py, which says where each truth comes from. Other
rows are brackets that were wide once, wrong, or an error; and those of issues."""

import json
import math
import pathlib

import dp_accounting
from dp_accounting import dp_event as stock
import golden_events
import newer_events
import nights
import pytest

import dp_accounting_ext as ext

ROWS = json.loads(pathlib.Path(__file__).with_name("golden.json").read_text())


EVENTS = list(dict.fromkeys(json.dumps(row["event"]) for row in ROWS))


def parameter(row):
    """A row with its name. Those of two events of three are asked at night.

    So are divergences of correlated noise, which take seconds.
    """
    (event,) = row["event"]
    is_quick = EVENTS.index(json.dumps(row["event"])) % 3 == 0
    is_quick &= event != "MatrixAllocationEvent"
    marks = [] if is_quick else [pytest.mark.nightly]
    return pytest.param(row, id=f"{row['what']}-{event}-{row['at']:g}", marks=marks)


# Of the module, so that rows of an event, which stand side by side, are asked once.
@pytest.fixture(scope="module", params=map(parameter, ROWS))
def row(request):
    return request.param


def test_bounds_contain_the_truth_and_are_tight(row):
    low, high = golden_events.bracket(row)
    assert low <= row["high"] and row["low"] <= high
    if math.isfinite(high):
        assert high - low <= row["width"] * high + golden_events.RARE
    else:
        assert row["width"] >= 1


def test_truths_are_brackets_of_many_kinds():
    assert all(row["low"] <= row["high"] for row in ROWS)
    assert len(ROWS) >= 850
    assert {row["what"] for row in ROWS} == {"epsilon", "delta", "power", "renyi"}


ADD, REPLACE, SPECIAL = dp_accounting.NeighboringRelation
Gaussian, Laplace = stock.GaussianDpEvent, stock.LaplaceDpEvent
Composed, Runs = stock.ComposedDpEvent, stock.SelfComposedDpEvent
Sampled, Subsampled = stock.PoissonSampledDpEvent, ext.PLDSubsampleEvent
Allocated, Group = ext.RandomAllocationEvent, ext.GroupSubsampledEvent
Schedule = ext.ScheduledAllocationEvent
With = stock.SampledWithReplacementDpEvent
Without = stock.SampledWithoutReplacementDpEvent
MILLION, BILLION = 10**6, 10**9
RARE = Sampled(1e-4, Gaussian(0.08))
RARE_RUNS = Runs(Subsampled(0.005, Runs(Allocated(Gaussian(0.418), 6, 7), 5)), 17)
MATRIX = ext.MatrixAllocationEvent((1, 0.9, 0.8, 0.7), 8.0, 64, 5)
SIX_BANDS = ext.MatrixAllocationEvent((0.78, 0.39, 0.29, 0.25, 0.21, 0.19), 2.91, 9, 2)
FEW_BINS = ext.MatrixAllocationEvent((1, 0.5), 4.8, 11, 6)
TWO_KINDS = Schedule([Gaussian(1.0), Gaussian(1.2)], [1500, 1500], 3000, 3)
RAISED = Runs(Allocated(stock.DiscreteLaplaceDpEvent(0.776, 1), 9, 57), 1000)
LITTLE = Composed([Gaussian(0.7591), Runs(Gaussian(0.4062), 2)])
MANY = Composed([Sampled(0.01, Gaussian(0.7 + i / 50)) for i in range(100)])
UNLIKE = Schedule([Gaussian(0.8), Laplace(1)], [5, 5], 12, 2)


def training(batch, records=60_000, rate=256 / 60_000, noise=1.1):
    """The default path of training with truncated batches."""
    return stock.TruncatedSubsampledGaussianDpEvent(records, rate, batch, noise)


def shifted(chance):
    """Gaussian noise around a shift that is rare."""
    weights = [1 - chance, chance]
    return stock.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], weights)


ONCE_WIDE = [
    # Exactly at a ratio of one there is an atom: of steps with equal chances.
    (Allocated(Laplace(500.0), 1, 1000), 10_000, 1e-4, 0.011135, 0.011136),
    # Without a lower bound, if what cells' losses are above their nodes adds up.
    (Laplace(100.0), 10**8, 1e-6, 5456.6, 5457.4),
    (Allocated(Gaussian(1.0), 1, MILLION), 10_000, 1e-6, 0.53005, 0.53026),
    (Allocated(Gaussian(577.0), 1, 3000), BILLION, 1e-6, 4.785, 4.997),
    # 3 and 23 % wide, if sums of ratios err by as much as their mean is large.
    (Allocated(Gaussian(10.0), 1, 10**7), 1, 1e-6, 4.6522e-5, 4.6528e-5),
    (Allocated(Gaussian(3.0), 1, 10**7), 3000, 1e-6, 0.01915, 0.019177),
    # 17 % wide where cells near zero grow by the ratios that they lost to zero.
    (Allocated(Gaussian(0.15), 1, 50_000), 1, 1e-7, 45.3269, 45.327),
    # 0 to 0.01 if rare ratios widen the cells of the others.
    (Allocated(RARE, 1, 4 * MILLION), 1, 0.01, 0.0, 0.0),
    # 9e-5 wide if the largest loss of a part is no node of the lattice.
    (Composed([Laplace(2.28), Laplace(27.0)]), 1, 1e-4, 0.475233, 0.475234),
    # 0.0003 to 0.25 if what masses of a chain exceed one by becomes a rare loss.
    (Group(2, Allocated(Gaussian(50.0), 1, 652_158)), 1, 1e-12, 2.5651e-4, 2.5656e-4),
    # MassError, and OverflowError.
    (Allocated(Gaussian(3.0), 1, BILLION), 3000, 1e-5, 0.0, 0.0011564),
    (Allocated(Gaussian(3.0), 1, BILLION), BILLION, 1e-5, 0.0, 5.561e7),
    # Sums of few ratios come near zero: these cells must not end there.
    (Allocated(Gaussian(1.0), 1, 2), 1, 1e-240, 32.8121, 32.8122),
    # P's mass underflows where Q has nearly all of its own.
    (Group(27, Runs(Sampled(0.0354, Gaussian(0.444)), 6)), 1, 1.99e-10, 377.64, 377.69),
    # Blocks of two draws alone are far above, 95.2; then the theorem for counts is
    # nearly best; then one step dominates the sum.
    (Allocated(Gaussian(0.41567), 2, 3), 10, 3.648e-6, 94.86, 95.25),
    (Allocated(Gaussian(0.32), 5, 17), 1, 1e-6, 48.15, 48.34),
    (Allocated(Gaussian(1.3), 5, 65_536), 1, 1e-30, 0.4954, 0.501),
    # Of groups, samples of losses tell 1.7545 and 6.864; less by some 2e-3 and 5e-2.
    (Group(2, Allocated(Gaussian(1.0), 1, 100)), 1, 1e-6, 1.7529, 1.7567),
    (Group(2, Allocated(Gaussian(1.0), 1, 1000)), 1, 1e-6, 0.36441, 0.36528),
    # The sum of all outputs: scores count 64 members only, which gave 1.39.
    (Group(100, Allocated(Gaussian(20.0), 1, 100)), 1, 1e-6, 2.254, 2.2558),
    # Of all splits of 2000 members there are too many; of one there are not.
    (Group(2000, Sampled(1e-4, Gaussian(50.0)), 2000), 1, 1e-5, 0.0099915, 0.0099917),
    # The issue's, of 1 of t steps.
    (Allocated(Gaussian(1.0), 1, 10), 1, 1e-6, 2.652402, 2.65241),
    (Allocated(Gaussian(1.0), 1, MILLION), 1, 1e-6, 0.0036743, 0.0036746),
    (Allocated(Gaussian(1.0), 1, 1000), 100, 1e-6, 1.8442, 1.8444),
    # Full batches are no sample: Gaussian noise has its closed form.
    (Sampled(1.0, Gaussian(1.0)), BILLION, 1e-6, 500150315.47, 500150315.48),
    # Of replaced draws, samples of losses tell 11.4635, but for some 5e-3 of it.
    (Allocated(Gaussian(1.0), 10, 100), 1, 1e-6, 11.185, 11.648, REPLACE),
    (training(320), 7050, 1e-6, 1.8699, 1.8706, SPECIAL),
    (training(320), 7050, 1e-6, 3.2025, 3.2033, REPLACE),
    # Of 10,000 records with rate .01, more than 130 are drawn once in 600 steps.
    (training(130, 10_000, 0.01, 1.0), 1000, 1e-6, 2.12, 2.16),
    (Without(60_000, 256, Gaussian(1.1)), 1000, 1e-6, 5.28, 5.34, SPECIAL),
    # By the less of two bounds; pairs alone give 8.116 and 1.768.
    (newer_events.Exponential(1.0), 10, 1e-6, 7.462, 7.77),
    (newer_events.Exponential(0.1), 50, 1e-6, 1.52, 1.6361),
    (newer_events.Exponential(1.0), 1, 1e-6, 0.998, 1.0),
    # A common batch without the record gives 0.584.
    (With(60_000, 64, Gaussian(2.0)), 5000, 1e-5, 0.3566, 0.4524, REPLACE),
    # All masses of positive ratios of a group underflow: what is left is Gaussian.
    (Allocated(Gaussian(0.02), 3, 100), 1, 1e-6, 0.0, 4160.6852),
    (Allocated(Gaussian(0.0219371), 3, 100), 1, 1e-6, 0.0, 3491.3087),
    # Hardly any step moves, and δ is more than the whole in the last one.
    (shifted(10**-11.5), 1, 1e-14, 4.42e-11, 5.14e-11, REPLACE),
    (shifted(1e-20), 1, 1e-24, 0.0, 1.49e-12, REPLACE),
    (shifted(1e-180), 1, 1e-16, 0.0, 1.7e-13, REPLACE),
    # Up to 4.33 if no chain is for a small δ.
    (FEW_BINS, 1, 1e-14, 2.055, 2.3488),
    # Up to 7.36 if the orders of chains are those for larger δ.
    (SIX_BANDS, 1, 1e-60, 5.712, 6.909),
    (Runs(Sampled(1e-28, Laplace(0.1)), 100), 1, 0.05, 0.0, 0.0),
]
WIDE_AT_NIGHT = [
    (Allocated(Gaussian(0.7), 5, 1000), 1, 1e-30, 15.05, 15.243),
    (Schedule([Gaussian(2.0)], [700], 1000, 10), 1, 1e-6, 0.582, 0.59304),
    # A lower pair that lacks masses of Q is on a sample.
    (RARE_RUNS, 1, 7e-6, 250.83, 256.09),
    (Allocated(Gaussian(0.7), 1, 10**7), 10_000, 1e-6, 0.3195, 0.3209),
    (Allocated(Gaussian(0.12), 1, 300_000), 1, 1e-7, 64.6626, 64.6628),
    # 9 % wide if the second sum has columns over six deviations only.
    (Group(2, Allocated(Gaussian(0.6916), 1, 1481)), 5, 1.2e-11, 6.226, 6.562),
    # 41 % wide with a chain that suits a δ of 1e-15.
    (MATRIX, 1, 1e-6, 0.493, 0.5189),
    (Allocated(Gaussian(1.0), 1, 30), 2, 1e-54, 15.9426, 15.9428),
    (TWO_KINDS, 1, 1e-6, 0.25629, 0.25933),
    (Schedule([Gaussian(1.0)], [50], 100, 10), 1, 1e-6, 5.207, 5.2508),
    (UNLIKE, 1, 1e-6, 5.026, 5.35),
    (Group(8, Allocated(Gaussian(1.0), 1, 100)), 1, 1e-6, 6.825, 6.923),
    (Group(9, Allocated(Gaussian(1.0), 1, 100)), 1, 1e-6, 7.658, 7.771),
    # A single record, as two steps of 1000 are rare: 1.37 by the sum. And the sum
    # of all outputs: 41 by a single record.
    (Group(2, Allocated(Gaussian(0.4), 2, 1000)), 1, 1e-6, 9.438, 26.204),
    (Group(2, Allocated(Gaussian(0.3), 3, 5)), 1, 1e-6, 81.71, 115.2),
    (Allocated(Gaussian(1.0), 1, 10_000), 1, 1e-6, 0.045821, 0.045824),
    (Allocated(Gaussian(0.5), 1, 1000), 1, 1e-6, 4.106, 4.1061),
    (Allocated(Gaussian(0.3), 1, 100), 1, 1e-6, 16.176, 16.1761),
    (Allocated(Gaussian(5.0), 1, 1000), 1, 1e-8, 0.027692, 0.027694),
    (Allocated(Gaussian(0.8), 1, 5000), 10, 1e-10, 0.89402, 0.89408),
    (Allocated(Gaussian(1.0), 1, 1000), 1, 1e-12, 0.87376, 0.8738),
    (Allocated(Gaussian(1.0), 10, 1000), 1, 1e-6, 3.1642, 3.1913, REPLACE),
    # Those of the design: plain floats on a lattice, 1.0045 and 0.9102.
    (Allocated(Gaussian(1.0), 1, 100), 1, 1e-6, 1.004, 1.0046, REPLACE),
    (Allocated(Gaussian(1.0), 1, 1000), 10, 1e-6, 0.9096, 0.90998, REPLACE),
    # 20 to 40 % wide, if cells near a threshold are as wide as the law's scale.
    (Allocated(Gaussian(0.314), 1, 3), 1, 1e-6, 26.63, 26.67, REPLACE),
    (training(280), 7050, 1e-6, 1.8996, 2.7375, SPECIAL),
    # Groups of some members of a batch, and of as many as it has.
    (Group(8, training(42, 1000, 0.03, 2.0)), 1, 1e-6, 1.52, 1.545, SPECIAL),
    (Group(42, training(42, 1000, 0.03, 2.0)), 1, 1e-6, 9.13, 9.683, SPECIAL),
    (With(50, 25, Gaussian(5.0)), 1, 1e-5, 1.6622, 1.6623, REPLACE),
    (Subsampled(1e-10, Allocated(Gaussian(1.0), 1, 3)), 1, 1e-16, 4e-9, 5e-9, REPLACE),
    # A hundred mechanisms that differ are as tight as runs of one.
    (MANY, 1, 1e-6, 1.743565, 1.74363),
    # Profiles are raised by 1e-9, and so are the masses of one run, a thousand times.
    (Subsampled(0.3, RAISED), 1, 1e-6, 565.0, 576.28),
    # Refused by the check of means: raised mass at ratios of −158,720.
    (With(100, 1, Allocated(LITTLE, 1, 2)), 1000, 1e-10, 0.0, 29_300, SPECIAL),
]


@pytest.mark.parametrize(
    "row", [*ONCE_WIDE, *nights.at_night(*((r,) for r in WIDE_AT_NIGHT))]
)
def test_a_bracket_is_where_it_was(row):
    event, runs, delta, least, most, *relation = row
    accountant = ext.PLDAccountant(*relation).compose(event, runs)
    lower, upper = accountant.get_epsilon_bounds(delta)
    assert least <= lower <= upper <= most
    assert upper == 0 or accountant.get_delta(upper) <= delta * (1 + 1e-3)
