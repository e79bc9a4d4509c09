"""The library's own tests of its accountant, with ours in its place."""

import unittest
from unittest import mock

import dp_accounting
from dp_accounting import dp_event_builder_test
from dp_accounting import mechanism_calibration_test
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld import pld_privacy_accountant_test
import pytest

import dp_accounting_ext as ext


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
    assert [text for _, text in result.failures + result.errors] == []
    assert result.testsRun >= least
