"""A result serves where a measure is asked for."""

import numpy as np

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import measure_result


def test_it_is_an_array_with_a_gap():
    measure = np.full(4, 0.25)
    found = measure_result.MeasureResult(measure, 2.0, 1.5, 3, False)
    assert found.gap == 0.5
    np.testing.assert_array_equal(np.asarray(found), measure)
    mechanism = wpm.WassersteinProjectionMechanism(np.eye(4), 1.0, found)
    np.testing.assert_array_equal(mechanism.base_measure, measure)
