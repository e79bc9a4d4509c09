"""Input that no sane pipeline sends: a certain answer, or an error that names it."""

import collections
from concurrent import futures
from decimal import Decimal
from fractions import Fraction
import math
import multiprocessing
import pickle

import attr
import dp_accounting
from dp_accounting import dp_event as stock_events
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.wpm import dp_event as wpm_dp_event

NeighborRel = privacy_accountant.NeighboringRelation
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


def dense(masses, start=0, interval=0.1):
    return PLD(pld_pmf.DensePLDPmf(interval, start, masses, 0.0, True))


EVENTS = [
    Gaussian(1.0),
    Laplace(0.5),
    stock_events.DiscreteLaplaceDpEvent(0.5, 2),
    stock_events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
    stock_events.TruncatedSubsampledGaussianDpEvent(9, 0.1, 2, 1.0),
    Poisson(0.5, Gaussian(1.0)),
    ext.PLDSubsampleEvent(0.5, Laplace(1.0)),
    ext.RandomAllocationEvent(Gaussian(1.0), 1, 3),
    ext.ScheduledAllocationEvent([Gaussian(1.0)], [1], 3),
    ext.MatrixAllocationEvent((1.0,), 1.0, 2, 1),
    ext.GroupSubsampledEvent(2, Gaussian(1.0)),
    SelfComposed(Gaussian(1.0), 2),
    Composed([Gaussian(1.0)]),
    WithoutReplacement(4, 2, Gaussian(1.0)),
    WithReplacement(4, 2, Gaussian(1.0)),
    stock_events.RandomizedResponseDpEvent(0.5, 4),
    wpm_dp_event.PrivateSamplingEvent(1.0, 1.0),
    stock_events.ZCDpEvent(1.0),
    stock_events.RepeatAndSelectDpEvent(Gaussian(1.0), 2.0, 1.0),
]
VALUES = [
    np.float32(0.5),
    np.longdouble("1e4000"),
    np.int8(2),
    np.int64(2),
    np.array(0.5),
    np.array([0.5, 0.5]),
    np.bool_(True),
    np.complex128(0.5),
    np.timedelta64(3, "s"),
    np.datetime64("2020-01-01"),
    True,
    Decimal("0.5"),
    Decimal("snan"),
    Fraction(1, 2),
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


def renyi_accountant(neighboring_relation):
    """Of a few orders: all that there are cost a second an answer."""
    return ext.RdpAccountant([1.5, 2.0, 9.0, 64.0], neighboring_relation)


@pytest.mark.parametrize("accountant_type", [ext.PLDAccountant, renyi_accountant])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_any_value_in_any_field(event, accountant_type):
    """An ε that is a number, or an error that changes nothing."""
    replaced = stock_events.RandomizedResponseDpEvent, wpm_dp_event.PrivateSamplingEvent
    relation = list(NeighborRel)[isinstance(event, replaced)]
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


def test_what_can_be_read_once_is_refused():
    """A second reading would find no events at all."""
    with pytest.raises(TypeError, match="events must be a sequence"):
        ext.PLDAccountant().compose(Composed(iter([Gaussian(1.0)])))
    with pytest.raises(TypeError, match="counts must be a sequence"):
        ext.PLDAccountant().compose(
            ext.ScheduledAllocationEvent([Gaussian(1.0)], iter([1]), 2)
        )


def test_no_response_without_noise_in_rdp():
    for event in (
        stock_events.RandomizedResponseDpEvent(math.nan, 4),
        stock_events.RandomizedResponseDpEvent(0.5, math.nan),
    ):
        with pytest.raises((TypeError, ValueError), match="noise_param|num_buckets"):
            ext.RdpAccountant(neighboring_relation=NeighborRel.REPLACE_ONE).compose(
                event
            )


@pytest.mark.parametrize(
    ("sigma", "count"), [(1e-3, 1), (1e6, 10**12), (1e60, 1), (1e-60, 1), (3e7, 2**53)]
)
def test_plain_gaussians_at_any_scale(sigma, count):
    accountant = ext.PLDAccountant().compose(Gaussian(sigma), count)
    mean = math.sqrt(count) / sigma
    for delta in (5e-324, 1e-300, 1e-6, 0.5, 1 - 1e-16):
        lower, upper = accountant.get_epsilon_bounds(delta)
        assert 0 <= lower <= upper < math.inf
        if delta > 1e-200 and 1e-7 < mean < 1e4:
            assert oracles.gaussian_delta(mean, upper) <= delta
            assert lower == 0 or oracles.gaussian_delta(mean, lower) >= delta
    for epsilon in (0.0, 1.0, 1e5, 1e300):
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert 0 <= lower <= upper <= 1
        if epsilon <= 1 and 1e-7 < mean < 1e4:
            truth = oracles.gaussian_delta(mean, epsilon)
            assert lower <= truth <= upper


EXTREMES = [
    (Laplace(1e-3), 1000),
    (Laplace(1e60), 3),
    (Poisson(0.01, Gaussian(1e-3)), 1),
    (Poisson(1e-100, Gaussian(1.0)), 10),
    (Poisson(1e-100, Laplace(1.0)), 1),
    (Poisson(1 - 1e-16, Gaussian(1.0)), 10),
    (ext.RandomAllocationEvent(Gaussian(0.03), 1, 1000), 1),
    (ext.RandomAllocationEvent(Gaussian(1.0), 10**9 - 1, 10**9), 1),
    (stock_events.DiscreteLaplaceDpEvent(1e-5, 10**6), 3),
    (stock_events.TruncatedSubsampledGaussianDpEvent(10**12, 0.01, 5 * 10**9, 1.0), 1),
    (WithoutReplacement(10**12, 5 * 10**11, Gaussian(1.0)), 1),
    (WithReplacement(10**12, 10, Gaussian(1.0)), 1),
    (
        ext.GroupSubsampledEvent(4, WithoutReplacement(10**12, 10**6, Gaussian(1.0))),
        1,
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


def test_a_sampled_response_at_extremes():
    """Of p = 1e-310 a ratio does not fit a float; ε is ln(1 + k (1 − p) / p)."""
    event = stock_events.RandomizedResponseDpEvent(1e-310, 4)
    accountant = ext.PLDAccountant(NeighborRel.REPLACE_ONE).compose(event, 3)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert 0 <= lower <= upper
    assert upper >= 2 * 715  # Three losses of 715 each, most certainly.


@pytest.mark.parametrize(
    ("event", "count", "message"),
    [
        (Gaussian(1e-61), 1, "noise_multiplier must be 0 or from 1e-60 to 1e"),
        (Laplace(1e300), 1, "noise_multiplier must be 0 or from"),
        (Poisson(1e-300, Laplace(1.0)), 1, "sampling_probability must be 0 or at"),
        (Gaussian(1.0), 2**53 + 1, "count must be at most 2\\^53"),
        (SelfComposed(Gaussian(1.0), 2**52), 4, "count must be at most 2\\^53"),
        (Gaussian(1.0), 10**5000, "count must be at most.*bits"),
        (Laplace(1.0), 10**12, "count must be at most 1000000000.*Found 10000"),
        (
            ext.RandomAllocationEvent(Gaussian(1.0), 1, 10**12),
            1,
            "num_steps must be at most 1000000000",
        ),
        (WithReplacement(10, 10**12, Gaussian(1.0)), 1, "sample_size must be at most"),
        (
            Composed([Laplace(1 + i * 1e-6) for i in range(100_000)]),
            1,
            "at most 2000 different mechanisms.*Found 100000",
        ),
        (Composed([Gaussian(1.0)] * 300_000), 1, "at most 300000 events"),
    ],
    ids=range(11),
)
def test_what_is_too_much(event, count, message):
    accountant = ext.PLDAccountant().compose(Gaussian(1.0))
    before = states(accountant)
    with pytest.raises(ValueError, match=message):
        accountant.compose(event, count)
    assert states(accountant) == before


@pytest.mark.parametrize("spread", [0.0, 1e-6])
def test_many_leaves_are_one_gaussian(spread):
    sigmas = 100 + spread * np.arange(30_000)
    event = Composed([Gaussian(float(sigma)) for sigma in sigmas])
    accountant = ext.PLDAccountant().compose(event)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    mean = math.sqrt(math.fsum(sigmas**-2))
    assert oracles.gaussian_delta(mean, upper) <= 1e-6
    assert oracles.gaussian_delta(mean, lower) >= 1e-6


WRAPPERS = {
    "Composed": lambda event: Composed([event]),
    "SelfComposed": lambda event: SelfComposed(event, 1),
    "PoissonSampled": lambda event: Poisson(0.999, event),
    "PLDSubsample": lambda event: ext.PLDSubsampleEvent(0.999, event),
    "RandomAllocation": lambda event: ext.RandomAllocationEvent(event, 1, 2),
    "ScheduledAllocation": lambda event: ext.ScheduledAllocationEvent([event], [1], 2),
    "GroupSubsampled": lambda event: ext.GroupSubsampledEvent(2, event),
    "WithoutReplacement": lambda event: WithoutReplacement(10, 5, event),
    "RepeatAndSelect": lambda event: stock_events.RepeatAndSelectDpEvent(event, 2, 1),
    "mixed": lambda event: ext.RandomAllocationEvent(
        Composed([Poisson(0.5, SelfComposed(event, 2)), Laplace(9.0)]), 1, 2
    ),
}


INNERMOST = Gaussian(1.0)


def nested(wrap, depth, event=INNERMOST):
    for _ in range(depth):
        event = wrap(event)
    return event


@pytest.mark.parametrize("depth", [250, 1000, 10_000])
@pytest.mark.parametrize("name", WRAPPERS)
def test_too_deep(name, depth):
    event = nested(WRAPPERS[name], depth)
    for accountant_type in (ext.PLDAccountant, ext.RdpAccountant):
        accountant = accountant_type().compose(Gaussian(2.0))
        before = states(accountant)
        assert not accountant.supports(event)
        with pytest.raises(ValueError, match="event must (be nested|sample) at most"):
            accountant.compose(event)
        assert states(accountant) == before
    with pytest.raises(ValueError, match="event must (be nested|sample) at most"):
        pld.from_event(event)


def test_a_tree_that_holds_itself():
    event = Composed([])
    event.events.append(event)
    with pytest.raises(ValueError, match="nested at most 200 deep"):
        ext.PLDAccountant().compose(event)


def test_a_tree_of_few_nodes_and_very_many_paths():
    event = Gaussian(1.0)
    for _ in range(40):
        event = Composed([event, event])
    with pytest.raises(ValueError, match="at most 300000 events"):
        ext.PLDAccountant().compose(event)


@pytest.mark.parametrize("name", ["Composed", "SelfComposed"])
def test_as_deep_as_is_allowed_is_exact(name):
    event = nested(WRAPPERS[name], event_trees.DEEPEST)
    accountant = ext.PLDAccountant().compose(event).compose(event)
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    mean = math.sqrt(2)
    assert oracles.gaussian_delta(mean, upper) <= 1e-6
    assert oracles.gaussian_delta(mean, lower) >= 1e-6


@pytest.mark.parametrize("name", ["RandomAllocation", "ScheduledAllocation"])
def test_allocations_of_allocations(name):
    depth = event_trees.MOST_SAMPLINGS
    accountant = ext.PLDAccountant().compose(nested(WRAPPERS[name], depth))
    lower, upper = accountant.get_epsilon_bounds(1e-6)
    assert 0 <= lower <= upper < 5
    accountant.compose(Gaussian(1.0))
    # No less than the Gaussian alone.
    epsilon = accountant.get_epsilon(1e-6)
    assert oracles.gaussian_delta(1.0, epsilon) <= 1e-6


def test_blocks_of_blocks_are_not_computed_once_a_path():
    event = nested(lambda inner: ext.RandomAllocationEvent(inner, 2, 3), 3)
    assert ext.PLDAccountant().compose(event).get_epsilon(1e-6) < 16


def query(event):
    return ext.PLDAccountant().compose(event, 10).get_epsilon_bounds(1e-6)


SHARED = [
    ext.RandomAllocationEvent(Gaussian(1.0), 1, 50 + index % 4) for index in range(16)
]


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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_have_the_answers_of_one(method):
    expected = [query(event) for event in SHARED[:2]]
    context = multiprocessing.get_context(method)
    with futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert list(pool.map(query, SHARED[:2])) == expected
