"""What a type checker knows of the installed package: read by mypy, never run."""

from typing import Any
from typing import TypeAlias
from typing import assert_type

from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import numpy.typing as npt

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext import wpm
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

Distribution: TypeAlias = privacy_loss_distribution.PrivacyLossDistribution

event = ext.RandomAllocationEvent(dp_event.GaussianDpEvent(1.0), 1, 10)
accountant = ext.PLDAccountant().compose(event, 2)
assert_type(accountant, ext.PLDAccountant)
assert_type(accountant.get_epsilon(1e-6), float)
assert_type(accountant.get_epsilon_bounds(1e-6), tuple[float, float])
assert_type(ext.RdpAccountant().compose(event).get_delta(1.0), float)
Array: TypeAlias = npt.NDArray[np.float64]
assert_type(accountant.get_epsilon([1e-6, 1e-5]), Array)
assert_type(accountant.get_delta_bounds(np.ones(2)), tuple[Array, Array])
assert_type(accountant.get_true_positive_rate_bounds([0.1]), tuple[Array, Array])
assert_type(ext.RdpAccountant().get_epsilon([1e-6]), Array)

assert_type(pld.from_event(event), Distribution)
assert_type(ext.pld.poisson_subsample(pld.from_event(event), 0.1), Distribution)
assert_type(pld.random_allocation(pld.from_event(event), 1, 3), Distribution)

run = training_run.TrainingRun(dataset_size=100, batch_size=10, epochs=2.5, delta=0.1)
assert_type(calibration.calibrate(run, 1.0), comparison.Rows)
assert_type(comparison.compare(run), comparison.Rows)
assert_type(comparison.compare(run)[0], comparison.Row)

assert_type(ext.studies.calibration.calibrate(run, 1.0)[0].to_dict(), dict[str, Any])
assert_type(run.accountant(), ext.PLDAccountant)

mechanism = wpm.from_points(np.zeros((3, 2)), 1.0)
assert_type(mechanism, wpm.WassersteinProjectionMechanism)
