"""The library's own tests of its accountants, with ours in their place."""

import functools
import importlib
import importlib.util
import pathlib
import sys

import pytest

PATH = pathlib.Path(__file__).parent.parent / "benchmarks" / "upstream_suite.py"


@pytest.fixture(scope="module")
def suite():
    spec = importlib.util.spec_from_file_location("upstream_suite", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("module", "least"),
    [
        # privacy_accountant_test holds the base class of the first two.
        ("dp_accounting.pld.pld_privacy_accountant_test", 68),
        ("dp_accounting.rdp.rdp_privacy_accountant_test", 142),
        ("dp_accounting.mechanism_calibration_test", 20),
        ("dp_accounting.dp_event_builder_test", 5),
    ],
)
def test_none_of_the_librarys_own_tests_is_wrong(suite, module, least):
    load = functools.partial(importlib.import_module, module)
    (outcome,) = suite.outcomes_of({module: load})
    wrong = {
        test: found.text
        for test, found in outcome.failed.items()
        if found.kind == "wrong"
    }
    assert wrong == {}
    assert outcome.run >= least
    assert len(outcome.failed) <= 0.15 * outcome.run
