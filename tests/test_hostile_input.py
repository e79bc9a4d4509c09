"""Input that no sane pipeline sends: a certain answer, or an error that names it."""

import collections
from concurrent import futures
from decimal import Decimal
from fractions import Fraction
import itertools
import math
import multiprocessing
import operator
import pickle

import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import nights
import numpy as np
import one_of_each
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld

PLD = privacy_loss_distribution.PrivacyLossDistribution
Composed = dp_accounting.ComposedDpEvent
Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
SelfComposed = dp_accounting.SelfComposedDpEvent
WithReplacement = stock_events.SampledWithReplacementDpEvent
WithoutReplacement = stock_events.SampledWithoutReplacementDpEvent

ERRORS = TypeError, ValueError, privacy_accountant.UnsupportedEventError


def sparse(losses, interval=0.1, infinity=0.0, pessimistic=True):
    return PLD(pld_pmf.SparsePLDPmf(losses, interval, infinity, pessimistic))


KNOWN = [
    *(k for k in one_of_each.KNOWN if type(k.event).__module__ != "registered"),
    one_of_each.Known(SelfComposed(Gaussian(1.0), 2)),
    one_of_each.Known(Composed([Gaussian(1.0)])),
]
VALUES = [
    np.float32(0.5),
    np.longdouble("1e4000"),
    np.int8(2),
    np.array(0.5),
    np.array([0.5, 0.5]),
    np.bool_(True),
    np.complex128(0.5),
    np.timedelta64(3, "s"),
    np.datetime64("2020-01-01"),
    True,
    Decimal("0.5"),
    Decimal("snan"),
    Fraction(10**400, 1),
    Fraction(1, 10**400),
    10**400,
    -1,
    math.nan,
    math.inf,
    1e-320,
    1e300,
    1j,
    "1",
    b"1",
    None,
    [],
    iter([Gaussian(1.0)]),
    {},
    object(),
    len,
]


def states(accountant):
    return (
        getattr(accountant, "_composed", None),
        repr(getattr(accountant, "_rdp", None)),
        accountant.ledger,
    )


def coarse_accountant(neighboring_relation):
    """Of wide cells: no bound is compared with another."""
    return ext.PLDAccountant(neighboring_relation, 0.1)


def renyi_accountant(neighboring_relation):
    """Of a few orders: all that there are cost a second an answer."""
    return ext.RdpAccountant([1.5, 2.0, 9.0, 64.0], neighboring_relation)


# Of these an answer takes long, and the other accountant is quick.
SLOW = {
    ("TruncatedSubsampledGaussianDpEvent", renyi_accountant),
    ("ExponentialMechanismDpEvent", coarse_accountant),
    ("ScheduledAllocationEvent", renyi_accountant),
}
ASKED = list(itertools.product(KNOWN, (coarse_accountant, renyi_accountant)))
IS_SLOW = [(type(known.event).__name__, of) in SLOW for known, of in ASKED]


@pytest.mark.parametrize(
    ("known", "accountant_type"),
    [
        *itertools.compress(ASKED, map(operator.not_, IS_SLOW)),
        *nights.at_night(*itertools.compress(ASKED, IS_SLOW)),
    ],
    ids=lambda each: getattr(each, "__name__", "") or type(each.event).__name__,
)
def test_any_value_in_any_field(known, accountant_type):
    """An ε that is a number, or an error that changes nothing."""
    event, _, relation = known
    for field in attr.fields(type(event)):
        for value in VALUES:
            hostile = attr.evolve(event, **{field.name: value})
            accountant = accountant_type(neighboring_relation=relation)
            accountant.compose(dp_accounting.NoOpDpEvent())
            before = states(accountant)
            assert accountant.supports(hostile) in (True, False)
            try:
                accountant.compose(hostile)
            except ERRORS:
                assert states(accountant) == before
            else:
                assert accountant.get_epsilon(1e-6) >= 0


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_any_value_as_an_argument(value):
    accountant = ext.PLDAccountant().compose(Gaussian(1.0))
    for call in (
        lambda: accountant.get_epsilon(value),
        lambda: accountant.get_delta(value),
        lambda: accountant.get_epsilon_bounds(value)[0],
        lambda: ext.PLDAccountant(value_discretization_interval=value).get_epsilon(0.1),
        lambda: pld.poisson_subsample(sparse({0: 1.0}), value).get_delta_for_epsilon(0),
        lambda: pld.random_allocation(sparse({0: 1.0}), 1, value).get_delta_for_epsilon(
            0
        ),
    ):
        try:
            assert np.all(np.asarray(call()) >= 0)
        except (TypeError, ValueError) as error:
            assert "Found" in str(error)
    before = states(accountant)
    with pytest.raises((TypeError, ValueError), match="event must be a DpEvent"):
        accountant.compose(value)
    with pytest.raises(TypeError, match="neighboring_relation must be a Neighboring"):
        ext.PLDAccountant(value)
    with pytest.raises(TypeError, match="neighboring_relation must be a Neighboring"):
        ext.RdpAccountant(neighboring_relation=value)
    assert states(accountant) == before


EXTREMES = [
    (Laplace(1e-3), 1000),
    (Laplace(1e60), 3),
    (stock_events.DiscreteLaplaceDpEvent(1e-5, 10**6), 3),
    (WithoutReplacement(10**12, 5 * 10**11, Gaussian(1.0)), 1),
    (WithReplacement(10**12, 10, Gaussian(1.0)), 1),
    (ext.GroupSubsampledEvent(4, WithoutReplacement(10**12, 10**6, Gaussian(1.0))), 1),
    *nights.at_night(
        (Poisson(1 - 1e-16, Gaussian(1.0)), 10),
        (ext.RandomAllocationEvent(Gaussian(1.0), 10**9 - 1, 10**9), 1),
        (
            stock_events.TruncatedSubsampledGaussianDpEvent(
                10**12, 0.01, 5 * 10**9, 1.0
            ),
            1,
        ),
    ),
]


@pytest.mark.parametrize(("event", "count"), EXTREMES)
def test_extreme_parameters(event, count):
    accountant = ext.PLDAccountant().compose(event, count)
    for delta in (0.0, 1e-6, 0.5):
        lower, upper = accountant.get_epsilon_bounds(delta)
        assert 0 <= lower <= upper
    for epsilon in (-math.inf, -1e300, 1e300, math.inf):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert 0 <= lower <= upper <= 1
        if epsilon < 0:
            assert upper == 1.0


def query(event):
    return ext.PLDAccountant().compose(event, 10).get_epsilon_bounds(1e-6)


SHARED = [ext.RandomAllocationEvent(Gaussian(1.0), 1, steps) for steps in (50, 51)]


def test_threads_that_compose_lose_no_run():
    accountant = ext.PLDAccountant()
    events = [Gaussian(1.0 + index) for index in range(50)]
    with futures.ThreadPoolExecutor(8) as pool:
        for event in events * 8:
            pool.submit(accountant.compose, event)
        asked = [pool.submit(accountant.get_epsilon_bounds, 1e-6) for _ in range(8)]
        assert all(math.isfinite(sum(future.result())) for future in asked)
    parts = accountant.ledger.events
    runs = collections.Counter()
    for part in parts:
        if isinstance(part, dp_accounting.SelfComposedDpEvent):
            runs[part.event] += part.count
        else:
            runs[part] += 1
    assert runs == dict.fromkeys(events, 8)
    again = pickle.loads(pickle.dumps(accountant))
    assert again.get_epsilon(1e-6) == accountant.get_epsilon(1e-6)


@pytest.mark.parametrize(
    "method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)]
)
def test_processes_have_the_answers_of_one(method):
    expected = [query(event) for event in SHARED]
    context = multiprocessing.get_context(method)
    with futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert list(pool.map(query, SHARED)) == expected
