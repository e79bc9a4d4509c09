"""Profiles and trade-off curves: certified, told apart, and drawn."""

import math

from matplotlib import figure
import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(1.5, 6, 2, 3, 1e-8)
KNOWN, POISSON = training_run.NO_AMPLIFICATION, training_run.POISSON_SAMPLING


def by_name(found):
    return {(each.sampling, each.group_size): each for each in found}


@pytest.fixture(scope="module")
def profiles():
    return by_name(curves.profiles(RUN, group_sizes=(1, 3), num_points=7))


@pytest.fixture(scope="module")
def trade_offs():
    run = training_run.TrainingRun(2.0, 20, 1, 3)
    found = curves.trade_offs(run, group_sizes=(1, 2), least_rate=1e-4, num_points=9)
    return by_name(found)


def quantile(rate):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)


def test_there_is_a_curve_of_each_scheme_and_size(profiles, trade_offs):
    for found, sizes in ((profiles, (1, 3)), (trade_offs, (1, 2))):
        expected = {(name, size) for name in training_run.SCHEMES for size in sizes}
        assert set(found) == expected


def test_bands_are_in_order_and_monotone(profiles, trade_offs):
    for found, sign in ((profiles, -1), (trade_offs, 1)):
        for curve in found.values():
            lower, upper = np.array(curve.lower), np.array(curve.upper)
            assert (np.diff(curve.x) > 0).all()
            assert (lower >= 0).all() and (lower <= upper).all() and (upper <= 1).all()
            assert (sign * np.diff(lower) >= 0).all()
            assert (sign * np.diff(upper) >= 0).all()


def test_profiles_begin_at_one_epsilon_and_end_below_the_smallest_delta(profiles):
    assert len({curve.x[0] for curve in profiles.values()}) == 1
    for curve in profiles.values():
        assert (np.array(curve.upper[:-1]) >= RUN.delta).all()
        assert curve.upper[-1] <= 1.01 * RUN.delta
        # Where curves fall there are points, so that they have no kinks.
        steps = np.diff(np.log(curve.upper))
        assert steps.min() > 0.55 * math.log(RUN.delta)


@pytest.mark.parametrize("size", [1, 3])
def test_profiles_of_known_batches_are_gaussian(profiles, size):
    """k E steps of noise σ seen by K records: one of σ / (K √(k E))."""
    curve = profiles[KNOWN, size]
    with mpmath.workdps(40):
        mean = size * mpmath.sqrt(2 * 3) / mpmath.mpf(RUN.noise_multiplier)
    for at, low, high in zip(curve.x, curve.lower, curve.upper, strict=True):
        assert low <= oracles.gaussian_delta(mean, at) <= high <= low * (1 + 1e-8)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("scheme", "far"), [(KNOWN, 1), (training_run.SHUFFLED, 2)])
def test_trade_offs_of_known_batches_are_gaussian(trade_offs, scheme, far, size):
    """Three known steps: Φ(Φ⁻¹(α) + √3/2); twice that for two, or a replaced one."""
    curve = trade_offs[scheme, size]
    assert (curve.x[0], curve.x[-1]) == (pytest.approx(1e-4), 1)
    with mpmath.workdps(30):
        mean = far * size * mpmath.sqrt(3) / 2
        for rate, low, high in zip(
            curve.x[:-1], curve.lower[:-1], curve.upper[:-1], strict=True
        ):
            truth = mpmath.ncdf(quantile(rate) + mean)
            assert low <= truth <= high <= low * (1 + 1e-9)


def test_both_directions_of_one_sampled_step():
    """Who asks whether the record was there, and who asks whether it was not."""
    once = training_run.TrainingRun(1.0, 2, sampling=POISSON, epochs=0.5)
    (curve,) = curves.trade_offs(once, least_rate=1e-3, num_points=7)
    with mpmath.workdps(30):
        for rate, high in zip(curve.x[:-1], curve.upper[:-1], strict=True):
            # The step is a half of noise moved by one.
            remove = rate / 2 + mpmath.ncdf(quantile(rate) + 1) / 2
            add = mpmath.findroot(
                lambda x, rate=rate: mpmath.ncdf(x) / 2 + mpmath.ncdf(x - 1) / 2 - rate,
                quantile(rate),
            )
            truth = max(remove, mpmath.ncdf(add))
            assert truth <= high <= truth * (1 + 1e-6)


def test_groups_have_less_privacy(profiles):
    ends = [profiles[scheme, 1].x for scheme in training_run.SCHEMES]
    common = np.geomspace(ends[0][0], max(each[-1] for each in ends), 4).tolist()
    found = by_name(curves.profiles(RUN, group_sizes=(1, 3), epsilons=common))
    for scheme in training_run.SCHEMES:
        last = profiles[scheme, 1].x[-1]
        pairs = zip(
            common, found[scheme, 3].lower, found[scheme, 1].upper, strict=False
        )
        seen = [low > high for at, low, high in pairs if at <= last]
        assert len(seen) >= 3 and all(seen)


def test_bounds_are_the_accountants():
    run = training_run.TrainingRun(1.0, 10, delta=1e-12, sampling=POISSON)
    (curve,) = curves.profiles(run, epsilons=(2.0, 0.0, 1))
    assert curve.x == (0.0, 1.0, 2.0)
    for at, *bounds in zip(curve.x, curve.lower, curve.upper, strict=True):
        assert tuple(bounds) == run.accountant().get_delta_bounds(at)


def test_less_than_the_smallest_delta_everywhere():
    for curve in curves.profiles(training_run.TrainingRun(1e9, 10, 1, 1, 0.5)):
        assert len(curve.x) == 1 and curve.upper[0] < 0.5


def test_a_dictionary_has_columns_of_one_length(profiles, trade_offs):
    found = profiles[KNOWN, 3].to_dict()
    lengths = {len(found[name]) for name in ("epsilon", "delta_lower", "delta_upper")}
    assert lengths == {len(profiles[KNOWN, 3].x)}
    assert {"sampling", "adjacency", "group_size", "seconds"} < set(found)
    found = trade_offs[KNOWN, 1].to_dict()
    assert {"false_positive_rate", "true_positive_rate_upper"} < set(found)


def test_pictures_tell_curves_apart(profiles, trade_offs):
    """Colours and dashes are of schemes, marks of sizes of groups."""
    for found, count in ((profiles, 8), (trade_offs, 9)):
        axes = figure.Figure().add_subplot()
        assert curves.plot(list(found.values()), axes, title="a " * 90) is axes
        assert "\n" in axes.get_title(loc="left")
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert len(lines) == count and axes.get_xscale() == axes.get_yscale() == "log"
        for curve in found.values():
            line = lines[curve.label]
            alone = lines[found[curve.sampling, 1].label]
            assert line.get_color() == alone.get_color()
            assert line.get_linestyle() == alone.get_linestyle()
            assert (line.get_marker() == alone.get_marker()) == (curve.group_size == 1)
            assert list(line.get_ydata()) == [y for y in curve.upper if y > 0]
        looks = {(line.get_color(), line.get_marker()) for line in lines.values()}
        assert len(looks) == count


def test_a_curve_draws_itself_on_axes_of_its_own(profiles):
    from matplotlib import pyplot

    axes = profiles[KNOWN, 1].plot(color="red", label="mine")
    assert axes.get_lines()[0].get_color() == "red"
    assert axes.get_ylabel() == "δ"
    pyplot.close(axes.figure)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": ()}, "epsilons must be finite and not negative"),
        ({"epsilons": (-1.0, 2.0)}, "epsilons must be finite and not negative"),
        ({"epsilons": (math.inf,)}, "epsilons must be finite and not negative"),
        ({"epsilons": (math.nan,)}, "epsilons must be a number"),
        ({"num_points": 2}, "num_points must be at least 3"),
        ({"num_points": 10**9}, "at most 10000"),
        ({"group_sizes": (0,)}, "group_size must be at least 1"),
        ({"least_rate": 0.0}, r"least_rate must be in \[1e-200, 1\). Found 0.0"),
        ({"least_rate": 1.0}, "least_rate must be in"),
    ],
)
def test_bad_arguments(options, message):
    question = curves.trade_offs if "least_rate" in options else curves.profiles
    with pytest.raises(ValueError, match=message):
        question(RUN, **options)
