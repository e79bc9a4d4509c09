"""The library's own tests of its accountant, with ours in its place."""

import re
import unittest
from unittest import mock

import dp_accounting
from dp_accounting import dp_event_builder_test
from dp_accounting import mechanism_calibration_test
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld import pld_privacy_accountant_test
import pytest

import dp_accounting_ext as ext


def is_tighter(text):
    """Tells whether a sample of what has no privacy costs its chance, and not all.

    The library's test asks for δ = 1 where the record is in the sample with
    probability 0.1.
    """
    name = "test_additive_noise_mechanisms_with_zero_noise_multiplier"
    found = re.search(r"AssertionError: (0\.10000000\d+) != 1\n", text)
    return name in text and found is not None and float(found[1]) >= 0.1


@pytest.mark.parametrize(
    ("module", "least"),
    [
        # privacy_accountant_test holds the base class of the first.
        (pld_privacy_accountant_test, 68),
        (mechanism_calibration_test, 20),
        (dp_event_builder_test, 5),
    ],
)
def test_the_librarys_own_tests_pass(module, least):
    result = unittest.TestResult()
    with (
        mock.patch.object(pld_privacy_accountant, "PLDAccountant", ext.PLDAccountant),
        mock.patch.object(dp_accounting.pld, "PLDAccountant", ext.PLDAccountant),
    ):
        unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    assert [text for _, text in result.errors] == []
    assert [text for _, text in result.failures if not is_tighter(text)] == []
    assert result.testsRun >= least
