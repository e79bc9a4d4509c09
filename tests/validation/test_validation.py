"""Fields are checked in one line each; trees of events are as large as they may be."""

import collections
from decimal import Decimal
from fractions import Fraction
import itertools
import math
import pathlib
import re

import dp_accounting
from dp_accounting import dp_event as stock_events
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

import dp_accounting_ext
import dp_accounting_ext as ext
from dp_accounting_ext.validation import event_trees
from dp_accounting_ext.validation import extras
from dp_accounting_ext.validation import fields

MOST = 2**53
TINY = 5e-324
LARGEST = math.nextafter(math.inf, 0.0)


def below(value):
    return math.nextafter(value, -math.inf)


def above(value):
    return math.nextafter(value, math.inf)


def named(check):
    """Returns a check of a field called `field`."""
    return lambda value: check("field", value)


def of_steps(value):
    return fields.steps(1, value)[1]


# check, the name it gives, both ends, what is just beyond them.
RANGES = [
    (named(fields.real_number), "field", -math.inf, math.inf, [math.nan]),
    (named(fields.real_number), "field", -LARGEST, LARGEST, [10**309, -(10**309)]),
    (named(fields.real_number), "field", -TINY, TINY, [Fraction(1, 10**400)]),
    (named(fields.scale), "field", 0.0, 0.0, [-TINY, TINY, -1e60]),
    (named(fields.scale), "field", 1e-60, 1e60, [below(1e-60), above(1e60), math.inf]),
    (fields.noise_multiplier, "noise_multiplier", 1e-60, 1e60, [below(1e-60), 2e60]),
    (named(fields.probability), "field", 0.0, 1.0, [-TINY, above(1.0), math.nan]),
    (fields.sampling_probability, "sampling_probability", 0.0, 1.0, [-TINY, above(1)]),
    (
        fields.sampling_probability,
        "sampling_probability",
        1e-100,
        1.0,
        [below(1e-100), TINY],
    ),
    (named(fields.non_negative_integer), "field", 0, MOST, [-1, MOST + 1, 10**5000]),
    (named(fields.positive_integer), "field", 1, MOST, [0, -1, MOST + 1, -(10**5000)]),
    (fields.number_of_steps, "num_steps", 1, 10**9, [0, 10**9 + 1, MOST + 1]),
    (of_steps, "num_steps", 1, 10**9, [0, 10**9 + 1]),
    (lambda k: fields.steps(k, 7)[0], "num_selected", 1, 7, [0, 8, MOST + 1]),
    (
        fields.discretization_interval,
        "value_discretization_interval",
        TINY,
        LARGEST,
        [0.0, -TINY, math.inf, math.nan],
    ),
]


@pytest.mark.parametrize(("check", "name", "low", "high", "beyond"), RANGES)
def test_ends_are_accepted_and_what_is_beyond_is_not(check, name, low, high, beyond):
    assert check(low) == low
    assert check(high) == high
    for value in beyond:
        with pytest.raises(ValueError, match=rf"^{name} must be .*\. Found .*\.$") as e:
            check(value)
        assert len(str(e.value)) < 300


NO_NUMBERS = [True, None, "1", np.timedelta64(1, "s")]
NO_REALS = [b"1", 1j, [1.0], np.array(1.0), np.complex128(1), Decimal("0.5"), object()]
NO_INTEGERS = [1.0, Fraction(2, 1), np.float64(1)]
REALS = named(fields.real_number), named(fields.scale), named(fields.probability)
REALS += fields.noise_multiplier, fields.sampling_probability
REALS += (fields.discretization_interval,)
INTEGERS = named(fields.non_negative_integer), named(fields.positive_integer)
INTEGERS += fields.number_of_steps, of_steps


@pytest.mark.parametrize(
    ("check", "value", "rule"),
    [
        *itertools.product(REALS, NO_NUMBERS + NO_REALS, ["a real number"]),
        *itertools.product(INTEGERS, NO_NUMBERS + NO_INTEGERS, ["an integer"]),
    ],
)
def test_what_is_no_number(check, value, rule):
    with pytest.raises(TypeError, match=rf"must be {rule}. Found .*\.$") as error:
        check(value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (np.float32(0.5), 0.5),
        ([1, 2.5], [1.0, 2.5]),
        (np.array([[1, 2]]), [[1.0, 2.0]]),
        ([Fraction(1, 4), math.inf], [0.25, math.inf]),
        ([], []),
    ],
)
def test_numbers_of_any_shape(value, expected):
    found = fields.real_numbers("x", value)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(expected))


def test_a_library_is_installed_by_its_extra():
    error = ModuleNotFoundError("", name="panel.io")
    assert extras.missing(error) == (
        "panel must be installed. Found none; in the checkout, run python -m pip "
        "install '.[explore]'."
    )
    error = ModuleNotFoundError("", name="numpy")
    assert extras.missing(error).endswith("run python -m pip install numpy.")


def test_extras_are_those_of_the_project():
    project = pathlib.Path(dp_accounting_ext.__file__).parents[1] / "pyproject.toml"
    names = re.findall(r"^([\w-]+) = \[", project.read_text("utf-8"), re.MULTILINE)
    assert set(extras._EXTRAS.values()) <= set(names)


Composed = stock_events.ComposedDpEvent
SelfComposed = stock_events.SelfComposedDpEvent
Poisson = stock_events.PoissonSampledDpEvent
LEAVES = [
    stock_events.GaussianDpEvent(1.0),
    stock_events.LaplaceDpEvent(2.0),
    Poisson(0.5, SelfComposed(stock_events.GaussianDpEvent(3.0), 4)),
    ext.ScheduledAllocationEvent([stock_events.GaussianDpEvent(1.0)], [2], 3),
]

trees = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.lists(inner, max_size=3).map(Composed)
        | st.builds(SelfComposed, inner, st.integers(1, 5))
    ),
    max_leaves=8,
)


def runs(event):
    """Returns every run of a tree, one by one, from its definition."""
    if isinstance(event, Composed):
        return [run for inner in event.events for run in runs(inner)]
    if isinstance(event, SelfComposed):
        return runs(event.event) * event.count
    return [repr(event)]


@given(trees)
def test_leaves_are_the_runs_of_a_tree(event):
    found = collections.Counter()
    for leaf, count in event_trees.leaves(event):
        assert not isinstance(leaf, Composed | SelfComposed)
        found[repr(leaf)] += count
    assert found == collections.Counter(runs(event))
    event_trees.event_tree(event)


def nested(wrap, depth):
    event = LEAVES[0]
    for _ in range(depth):
        event = wrap(event)
    return event


@pytest.mark.parametrize(
    "wrap",
    [lambda event: Composed([LEAVES[1], event]), lambda event: SelfComposed(event, 1)],
)
def test_compositions_may_be_nested_so_deep_and_no_deeper(wrap):
    deepest = nested(wrap, event_trees.DEEPEST)
    event_trees.event_tree(deepest)
    with pytest.raises(ValueError, match=r"^event must be nested at most 200 deep"):
        event_trees.event_tree(wrap(deepest))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda event: Poisson(0.5, event),
        lambda event: ext.PLDSubsampleEvent(0.5, Composed([event])),
        lambda event: ext.RandomAllocationEvent(SelfComposed(event, 2), 1, 2),
        lambda event: ext.ScheduledAllocationEvent([LEAVES[1], event], [1, 1], 2),
        lambda event: ext.GroupSubsampledEvent(2, event),
    ],
)
def test_samples_may_be_nested_so_deep_and_no_deeper(wrap):
    deepest = nested(wrap, event_trees.MOST_SAMPLINGS)
    event_trees.event_tree(deepest)
    with pytest.raises(ValueError, match=r"^event must sample at most 16 times"):
        event_trees.event_tree(wrap(deepest))


@pytest.mark.parametrize("accountant", [ext.PLDAccountant(), ext.RdpAccountant()])
def test_an_accountant_shows_what_it_composed(accountant):
    step = dp_accounting.GaussianDpEvent(2.0)
    accountant.compose(step, 5).compose(ext.RandomAllocationEvent(step, 1, 9))
    assert repr(accountant).splitlines() == [
        f"{type(accountant).__name__}, ADD_OR_REMOVE_ONE, composed:",
        "  5 × GaussianDpEvent(noise_multiplier=2.0)",
        f"  1 × {ext.RandomAllocationEvent(step, 1, 9)}",
    ]
