"""The best of a random number of runs."""

import math

import dp_accounting
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
import pytest

from dp_accounting_ext.renyi import pure_mechanisms
from dp_accounting_ext.renyi import selection

ORDERS = [1.1, 1.5, 2.0, 4.0, 8.0, 32.0, 128.0]


def laplace(orders):
    return pure_mechanisms.laplace_rdp(orders, 0.3)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 5.0, math.inf])
@pytest.mark.parametrize("mean", [1.0, 3.0, 100.0])
def test_it_is_no_more_than_the_stock_s(shape, mean):
    event = dp_accounting.LaplaceDpEvent(1 / 0.3)
    stock = rdp_privacy_accountant.RdpAccountant([*ORDERS])
    expected = stock.compose(dp_event.RepeatAndSelectDpEvent(event, mean, shape)).rdp
    got = selection.selection_rdp(ORDERS, laplace, mean, shape)
    assert np.all(got <= expected * (1 + 1e-8))
    assert np.all(got >= laplace(ORDERS))
    assert np.all(np.diff(got) >= 0)


def best_of(law, generating):
    """The law of the best of K draws: outcomes in order, the last one the best."""
    below = np.concatenate([[0.0], np.cumsum(law)])
    return np.diff([generating(x) for x in below])


@pytest.mark.parametrize("mean", [1.0, 2.0, 20.0])
@pytest.mark.parametrize("kind", ["geometric", "poisson", "logarithmic"])
@pytest.mark.parametrize("last", [1e-3, 0.1, 0.5])
def test_no_bound_is_below_the_truth(mean, kind, last):
    """A bit of randomized response, the likelier or the rarer answer the better."""
    epsilon = 0.3
    p = np.array([1 - last, last])
    q = np.array([1 - last * math.exp(-epsilon), last * math.exp(-epsilon)])
    shape = {"geometric": 1.0, "poisson": math.inf, "logarithmic": 0.0}[kind]
    if kind == "poisson":
        # Nothing is released of no run: an outcome below all.
        def generating(x):
            return math.exp(mean * (x - 1))
    elif kind == "geometric":

        def generating(x):
            return x / mean / (1 - (1 - 1 / mean) * x)
    else:
        halting = math.exp(-selection._log_halting(mean, 0.0))
        if mean == 1:
            return

        def generating(x):
            return math.log1p(-(1 - halting) * x) / math.log(halting)

    laws = [best_of(law, generating) for law in (p, q)]
    if kind == "poisson":
        laws = [np.append(law, math.exp(-mean)) for law in laws]

    def curve(orders):
        return pure_mechanisms.pure_dp_rdp(orders, epsilon)

    bounds = selection.selection_rdp(ORDERS, curve, mean, shape)
    for order, bound in zip(ORDERS, bounds, strict=True):
        for one, other in (laws, laws[::-1]):
            with np.errstate(divide="ignore"):
                logs = order * np.log(one) + (1 - order) * np.log(other)
            total = np.logaddexp.reduce(logs[one > 0])
            assert bound >= total / (order - 1) * (1 - 1e-9)


@pytest.mark.parametrize("shape", [0.0, 0.3, 1.0, 7.0, 1e6])
@pytest.mark.parametrize("mean", [1.0, 1.5, 40.0, 1e9])
def test_the_halting_probability_has_the_mean(mean, shape):
    found = selection._log_halting(mean, shape)
    gamma = math.exp(-found)
    if gamma == 1 or -math.log(gamma) < 1e-9:
        return
    stock = rdp_privacy_accountant._truncated_negative_binomial_mean(gamma, shape)
    assert stock == pytest.approx(mean, rel=1e-6)
