"""Cells of normal noise err by no more than they claim."""

import mpmath
import pytest

from dp_accounting_ext.pairs import normal_cells


@pytest.mark.parametrize(("low", "high"), [(-8.0, 9.0), (-30.0, 36.0)])
def test_masses_err_by_what_is_claimed(low, high):
    shifts = 0.0, 0.7
    found = normal_cells.NormalCells.of(shifts, low, high)
    assert found.mass_error < 1e-11
    with mpmath.workdps(320):
        for shift, masses, above in zip(shifts, found.masses, found.above, strict=True):
            places = [mpmath.mpf(end) - shift for end in found.ends]
            for i in [*range(0, masses.size, 151), masses.size - 1]:
                truth = mpmath.ncdf(places[i + 1]) - mpmath.ncdf(places[i])
                assert abs(masses[i] / truth - 1) <= found.mass_error
            assert above >= mpmath.ncdf(-places[-1])
