"""The stock library's distributions, read and written."""

import math

from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest

from dp_accounting_ext import pld

PLD = privacy_loss_distribution.PrivacyLossDistribution


def sparse(losses, interval=0.1, infinity=0.0, pessimistic=True):
    return PLD(pld_pmf.SparsePLDPmf(losses, interval, infinity, pessimistic))


def dense(masses, start=0, interval=0.1):
    return PLD(pld_pmf.DensePLDPmf(interval, start, masses, 0.0, True))


class TestStockDistributions:
    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            (sparse({math.inf: 0.5}), ValueError, "losses.*Found inf"),
            (sparse({math.nan: 0.5}), ValueError, "losses.*Found nan"),
            (sparse({1.5: 0.5}), ValueError, "losses.*Found 1.5"),
            (sparse({10**30: 0.5, 1: 0.5}), TypeError, "losses.*object"),
            (sparse({2**62: 0.5}), ValueError, "losses.*2\\^53"),
            (sparse({"a": 0.5}), TypeError, "losses of"),
            (sparse({0: None}), TypeError, "masses of"),
            (sparse({0: 1j}), TypeError, "masses of.*complex"),
            (sparse({1: 0.9, 2: 0.9}), ValueError, "Found a sum of 1.8"),
            (sparse({0: 1.0}, infinity="x"), TypeError, "infinity_mass.*'x'"),
            (sparse({0: 1.0}, infinity=math.inf), ValueError, "a sum of inf"),
            (sparse({0: 1.0}, 0.0), ValueError, "interval must be positive"),
            (sparse({0: 1.0}, math.nan), ValueError, "interval must be a number"),
            (sparse({1: 0.5, 0: 0.5}, 1e-300), ValueError, "interval must be at least"),
            (dense(np.array([[0.5, 0.5]])), TypeError, "masses.*2 dimensions"),
            (dense([[0.5], [0.2, 0.3]]), TypeError, "masses"),
            (dense(np.array([0.5, 0.5]), 0.5), ValueError, "losses.*Found 0.5"),
            (dense(np.array([0.5, 0.5]), 10**30), TypeError, "losses"),
            (PLD(None), TypeError, "PLDPmf for each direction. Found NoneType"),
            (
                PLD(
                    pld_pmf.SparsePLDPmf({0: 1.0}, 0.1, 0.0, True),
                    pld_pmf.SparsePLDPmf({0: 1.0}, 0.1, 0.0, False),
                ),
                ValueError,
                "from one side",
            ),
            (dense(np.zeros(10_000_001)), ValueError, "at most 10000000 losses"),
        ],
    )
    def test_what_is_refused(self, given, error, message):
        for change in (
            lambda: pld.poisson_subsample(given, 0.3),
            lambda: pld.random_allocation(given, 1, 10),
        ):
            with pytest.raises(error, match=message):
                change()

    @pytest.mark.parametrize("mass", [1e-25, 1e-200, 1e-305, 5e-324])
    def test_no_rare_loss_is_forgotten(self, mass):
        """Its mass under Q, mass · e^{−loss}, is no float."""
        given = sparse({6890: mass, 0: 1 - mass})
        found = pld.poisson_subsample(given, 0.5)
        assert found.get_delta_for_epsilon(600.0) >= 0.5 * mass
