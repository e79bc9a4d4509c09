"""Profiles of two batches at a distance: never below the truth in 60 digits."""

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.pairs import trade_off_curves


@pytest.mark.parametrize("distance", [1e-3, 0.3, 2.0, 9.0])
@pytest.mark.parametrize("threshold", [1e-9, 0.3, 0.999, 1.0, 1.7, 60.0, 1e9])
def test_noise(distance, threshold):
    d, t = mpmath.mpf(distance), mpmath.mpf(threshold)
    with mpmath.workdps(60):
        z = mpmath.log(t) / d
        gaussian = mpmath.ncdf(d / 2 - z) - t * mpmath.ncdf(-d / 2 - z)
        log = mpmath.log(t)
        laplace = max(1 - mpmath.exp((log - d) / 2), 0) if log >= -d else 1 - t
    for curves, truth in (
        (trade_off_curves.GaussianCurves(), gaussian),
        (trade_off_curves.LaplaceCurves(), laplace),
    ):
        found = curves.profile(np.array([distance]), np.array([threshold]))[0]
        assert truth <= found <= truth * (1 + 1e-9) + mpmath.mpf("1e-250")
