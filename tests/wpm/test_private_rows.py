"""Distributions as users give them."""

import numpy as np
import pytest

from dp_accounting_ext import wpm

COST = np.ones((2, 3))
BAD_CALLS = [
    (([[1, -1.0]], 1.0), ValueError, "cost must be non-negative.*Found -1.0 in row 0"),
    (([[1, np.nan]], 1.0), ValueError, "cost must be non-negative.*Found nan in row 0"),
    (([[1, np.inf]], 1.0), ValueError, "cost must be .* finite. Found inf"),
    (([1.0, 2.0], 1.0), ValueError, r"cost must be a matrix.*Found shape \(2,\)"),
    ((np.ones((0, 3)), 1.0), ValueError, r"cost must be a matrix.*shape \(0, 3\)"),
    (([["a"]], 1.0), TypeError, "cost must be an array of real numbers"),
    (([[1], [1, 2]], 1.0), TypeError, "cost must be .* unequal lengths"),
    ((COST, 0.0), ValueError, "epsilon must be positive and finite. Found 0.0"),
    ((COST, -1.0), ValueError, "epsilon must be positive and finite. Found -1.0"),
    ((COST, np.inf), ValueError, "epsilon must be positive and finite. Found inf"),
    ((COST, np.nan), ValueError, "epsilon must be a number. Found nan"),
    ((COST, 161.0), ValueError, "epsilon must be at most 160. Found 161.0"),
    ((COST, "1"), TypeError, "epsilon must be a real number. Found '1'"),
    ((COST, 1.0, "best"), ValueError, "base_measure must be .*Found 'best'"),
    ((COST, 1.0, [1, 1]), ValueError, r"each of the 3 outputs. Found shape \(2,\)"),
    ((COST, 1.0, [1, 1, -1]), ValueError, "non-negative and finite. Found -1.0 at"),
    ((COST, 1.0, [1, 1, np.nan]), ValueError, "and finite. Found nan at index 2"),
    ((COST, 1.0, [1, 1, 1]), ValueError, "have a sum in .* Found 3; scale it"),
    ((COST, 1.0, [0.1] * 3), ValueError, "have a sum in .* Found 0.3; scale it"),
    ((COST, 1.0, "uniform", 0.0), ValueError, "regularization must be positive"),
    ((COST, 1.0, "uniform", "x"), TypeError, "regularization must be a real number"),
]


SECRET = 0.123456789


@pytest.mark.parametrize(
    ("masses", "error", "message"),
    [
        ([SECRET, 1.0], ValueError, "mu must sum to 1 within 1e-06"),
        ([1 + SECRET, -SECRET], ValueError, "mu must be non-negative and finite"),
        ([np.nan, SECRET], ValueError, "mu must be non-negative and finite"),
        ([SECRET], ValueError, r"of the 2 inputs.*Found shape \(1,\)"),
        ([[[SECRET, 1]]], ValueError, r"Found shape \(1, 1, 2\)"),
        (["a", "b"], TypeError, "mu must be an array of real numbers"),
    ],
)
def test_bad_distributions_and_no_number_of_theirs(masses, error, message):
    mechanism = wpm.WassersteinProjectionMechanism(COST, 1.0)
    for call in (mechanism.project, mechanism.sample):
        with pytest.raises(error, match=message) as caught:
            call(masses)
        assert "1234" not in str(caught.value)


def test_sums_within_the_tolerance_are_normalised():
    mechanism = wpm.WassersteinProjectionMechanism(COST, 1.0)
    mechanism.project([0.5, 0.5 + 9e-7])
    with pytest.raises(ValueError, match="mu must sum to 1"):
        mechanism.project([0.5, 0.5 + 2e-6])
