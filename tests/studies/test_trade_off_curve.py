"""What membership tests find of each scheme: certified, and told apart."""

import mpmath
import pytest

from dp_accounting_ext.studies import trade_off_curve
from dp_accounting_ext.studies import training_run

SETTING = training_run.TrainingRun(2.0, 20, 1, 3, 1e-6)


@pytest.fixture(scope="module")
def found():
    curves = trade_off_curve.trade_offs(
        SETTING, group_sizes=(1, 2), least_rate=1e-4, num_points=9
    )
    return {(each.scheme, each.group_size): each for each in curves}


def test_no_amplification_is_a_gaussian(found):
    """Three known steps: Φ(Φ⁻¹(α) + √3/2), and twice that for two records."""
    for size in (1, 2):
        curve = found[training_run.NO_AMPLIFICATION, size]
        assert curve.false_positive_rates[0] == pytest.approx(1e-4)
        assert curve.false_positive_rates[-1] == 1
        with mpmath.workdps(30):
            mean = size * mpmath.sqrt(3) / 2
            for rate, low, high in zip(
                curve.false_positive_rates[:-1],
                curve.lower[:-1],
                curve.upper[:-1],
                strict=True,
            ):
                quantile = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)
                truth = mpmath.ncdf(quantile + mean)
                assert low <= truth <= high <= low * (1 + 1e-9)


def test_both_directions_of_one_sampled_step():
    """Who asks whether the record was there, and who asks whether it was not."""
    once = training_run.TrainingRun(1.0, 2, 1, 1, 1e-6)
    (_, curve, _) = trade_off_curve.trade_offs(once, least_rate=1e-3, num_points=7)
    assert curve.scheme == training_run.POISSON_SAMPLING
    with mpmath.workdps(30):
        for rate, high in zip(curve.false_positive_rates, curve.upper, strict=True):
            if rate == 1:
                continue
            quantile = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)
            # One step of the two is a half of noise moved by one.
            remove = rate / 2 + mpmath.ncdf(quantile + 1) / 2
            add = mpmath.findroot(
                lambda x, rate=rate: mpmath.ncdf(x) / 2 + mpmath.ncdf(x - 1) / 2 - rate,
                quantile,
            )
            assert max(remove, mpmath.ncdf(add)) <= high


def test_curves_rise_and_bands_are_in_order(found):
    for curve in found.values():
        for values in (curve.lower, curve.upper):
            assert list(values) == sorted(values)
        pairs = zip(curve.lower, curve.upper, strict=True)
        assert all(0 <= low <= high <= 1 for low, high in pairs)
        alone = found[curve.scheme, 1]
        assert all(a <= b for a, b in zip(alone.lower, curve.upper, strict=True))
    assert found[training_run.RANDOM_ALLOCATION, 2].note == "chained"


def test_the_picture_has_a_line_of_guessing_and_logarithmic_axes(found):
    picture = trade_off_curve.picture(list(found.values()), title="title")
    (panel,) = picture.panels
    assert panel.log_x and panel.log_y
    assert len(panel.curves) == 7
    assert len({curve.look for curve in panel.curves}) == 7
    guessing = panel.curves[-1]
    assert guessing.label == "guessing" and guessing.x == guessing.upper
    for curve in panel.curves[:-1]:
        assert all(x <= y for x, y in zip(curve.x, curve.upper, strict=True))
    assert "no tight bound is known" in picture.note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"least_rate": 0.0}, r"least_rate must be in \[1e-200, 1\). Found 0.0"),
        ({"least_rate": 1.0}, "least_rate must be in"),
        ({"num_points": 1}, "num_points must be at least 2 and at most 10000. Found 1"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        trade_off_curve.trade_offs(SETTING, **options)
