"""Earlier bounds on random allocation are what their authors' software says."""

from dp_accounting.rdp import rdp_privacy_accountant
from papers import earlier_allocation
import pytest

REMOVE, ADD = "remove", "add"

# What the authors' own software says: the package random-allocation 1.0.5 by M.
# Shenfeld (its functions allocation_delta_decomposition, …_recursive, …_direct,
# …_RDP_DCO and …_lower_bound, the last that of Chua et al.'s public code, on a grid of
# thresholds of 0.01), with steps of 1e-4 and, for the direct method, orders 2 to 60.
THEIRS = (
    # Method, direction, σ, k, t, ε, δ, relative agreement.
    ("decomposition", REMOVE, 1.0, 1, 50, 0.3, 0.0276274, 5e-5),
    ("decomposition", ADD, 1.0, 1, 50, 0.3, 0.0188354, 5e-5),
    ("decomposition", ADD, 0.5, 1, 100, 1.0, 0.0095847, 1e-4),
    ("decomposition", REMOVE, 1.0, 1, 1000, 0.3, 7.01225e-07, 0.005),
    ("recursive", REMOVE, 1.0, 1, 50, 0.3, 0.297398, 1e-5),
    ("recursive", ADD, 1.0, 1, 50, 0.3, 0.381767, 1e-5),
    ("recursive", REMOVE, 1.0, 4, 400, 1.0, 0.0431382, 5e-5),
    ("direct", REMOVE, 1.0, 1, 50, 0.3, 0.0225887, 1e-5),
    ("direct", REMOVE, 1.0, 4, 400, 1.0, 0.000381317, 1e-5),
    ("direct", ADD, 1.0, 1, 50, 0.3, 0.178366, 1e-5),
    ("dong", REMOVE, 1.0, 1, 50, 0.3, 0.0553178, 1e-5),
    ("dong", ADD, 1.0, 1, 50, 0.8, 1.22064e-07, 1e-5),
    ("dong", ADD, 1.0, 4, 400, 1.0, 5.63834e-06, 1e-5),
    ("chua", REMOVE, 1.0, 1, 50, 0.3, 0.0019011, 2e-4),
    ("chua", REMOVE, 1.0, 1, 1000, 0.3, 6.21743e-09, 1e-4),
)


def delta_by(method, direction, setting):
    """δ of a method, σ, k, t and ε given."""
    noise, selected, steps, epsilon = setting
    if method == "decomposition":
        return earlier_allocation.decomposition_delta(*setting, direction)
    if method == "recursive":
        return earlier_allocation.recursive_delta(*setting, direction)
    if method == "chua":
        return earlier_allocation.max_statistic_delta(noise, steps, epsilon)
    if method == "dong":
        orders = earlier_allocation.DONG_ORDERS
        both = earlier_allocation.dong_rdp(noise, selected, steps, orders)
        rdp = both[0 if direction == REMOVE else 1].tolist()
        return rdp_privacy_accountant.compute_delta(orders, rdp, epsilon)[0]
    if direction == REMOVE:
        return earlier_allocation.direct_remove_delta(*setting)
    return earlier_allocation.direct_add_delta(*setting)


@pytest.mark.parametrize("row", THEIRS)
def test_each_number_is_what_its_authors_software_says(row):
    method, direction, *setting, theirs, agreement = row
    found = delta_by(method, direction, setting)
    assert found == pytest.approx(theirs, rel=agreement)
