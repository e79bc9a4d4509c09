"""A dp_accounting that is newer than this package knows, and what is taken of it."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import attr
import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import newer_events
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import pld
from dp_accounting_ext import wpm
from dp_accounting_ext.accountants import base_accountant
from dp_accounting_ext.reading import event_table

Gaussian = dp_accounting.GaussianDpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class UnknownEvent(dp_accounting.DpEvent):
    epsilon: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class TallTailedDpEvent(Gaussian):
    """A mechanism of the library's own that happens to inherit a known one."""


TallTailedDpEvent.__module__ = "dp_accounting.dp_event"


@attr.s(frozen=True, slots=True, auto_attribs=True)
class CorrelatedEvent(Gaussian):
    correlation: float = 0.0


@attr.s(frozen=True, slots=True, auto_attribs=True)
class WeightedComposedEvent(dp_accounting.ComposedDpEvent):
    weight: float = 1.0


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LaplaceDpEvent(dp_accounting.DpEvent):
    """The library's event, with one more field in a newer version."""

    noise_multiplier: float
    dimension: int = 1


def around(event):
    return [
        event,
        dp_accounting.ComposedDpEvent([Gaussian(1.0), event]),
        dp_accounting.SelfComposedDpEvent(event, 3),
        dp_accounting.PoissonSampledDpEvent(0.1, event),
        ext.RandomAllocationEvent(event, 1, 10),
        ext.ScheduledAllocationEvent([Gaussian(1.0), event], [1, 1], 3),
        ext.GroupSubsampledEvent(2, dp_accounting.PoissonSampledDpEvent(0.1, event)),
        dp_accounting.SampledWithoutReplacementDpEvent(10, 2, event),
        dp_accounting.dp_event.RepeatAndSelectDpEvent(event, 5, 1.0),
    ]


UNKNOWN = [
    UnknownEvent(1.0),
    TallTailedDpEvent(1.0),
    CorrelatedEvent(1.0, 0.5),
    WeightedComposedEvent([Gaussian(1.0)], 0.5),
]


@pytest.mark.parametrize(
    "event", [e for each in UNKNOWN for e in around(each)], ids=str
)
def test_what_is_unknown_is_refused_wherever_it_stands(event):
    accountant = ext.PLDAccountant().compose(dp_accounting.NoOpDpEvent())
    assert not accountant.supports(event)
    assert not ext.RdpAccountant().supports(event)
    error = privacy_accountant.UnsupportedEventError
    with pytest.raises(error, match=r"correlation|weight|caused by subevent \w+Event"):
        accountant.compose(event)
    with pytest.raises(error):
        pld.from_event(event)
    assert accountant.ledger == dp_accounting.NoOpDpEvent()
    assert accountant.get_epsilon(0.0) == 0.0


def test_a_field_of_its_default_means_what_it_meant():
    expected = ext.PLDAccountant().compose(Gaussian(2.0), 3).get_epsilon(1e-6)
    for event in (CorrelatedEvent(2.0), WeightedComposedEvent([Gaussian(2.0)])):
        found = ext.PLDAccountant().compose(event, 3).get_epsilon(1e-6)
        assert found == expected
        assert ext.RdpAccountant().supports(event)


def test_a_known_event_with_one_more_field(own_table):
    module = type("Module", (), {"LaplaceDpEvent": LaplaceDpEvent})
    event_table.register_stock_events(module)
    assert ext.PLDAccountant().supports(LaplaceDpEvent(1.0))
    with pytest.raises(
        privacy_accountant.UnsupportedEventError,
        match="`LaplaceDpEvent` has a field that is not accounted for: dimension. Foun",
    ):
        ext.PLDAccountant().compose(LaplaceDpEvent(1.0, 3))


MADE_UP_HOST = """
import dp_accounting
from dp_accounting.pld import pld_privacy_accountant as module

class Newer(module.PLDAccountant):
    limit = 5

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self._extra_delta = 0.0

    def get_extra_delta(self):
        return getattr(self, "_extra_delta", 0.0)

    @property
    def zcdp(self):
        return 0.0

    @classmethod
    def made(cls):
        return cls()

    @staticmethod
    def helper():
        return 0.0

module.PLDAccountant = Newer
import dp_accounting_ext as ext

accountant = ext.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0))
assert isinstance(accountant, Newer)
assert not hasattr(accountant, "_extra_delta")
for name in ("get_extra_delta", "zcdp", "limit", "made", "helper"):
    for owner in (accountant, ext.PLDAccountant):
        try:
            getattr(owner, name)
        except AttributeError as error:
            print(error)
assert Newer.made().zcdp == Newer.helper() == Newer().get_extra_delta() == 0.0

class Own(ext.PLDAccountant):
    def get_extra_delta(self):
        return self.get_delta(1.0)

assert Own().get_extra_delta() == 0.0
assert accountant.neighboring_relation.name == "ADD_OR_REMOVE_ONE"
print(accountant.get_epsilon(1e-6))
"""


def test_methods_and_state_that_are_unknown():
    package = os.path.dirname(os.path.dirname(ext.__file__))
    path = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MADE_UP_HOST)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *lines, found = done.stdout.splitlines()
    names = ["get_extra_delta", "zcdp", "limit", "made", "helper"]
    for name, *both in zip(names, lines[::2], lines[1::2], strict=True):
        for line in both:
            assert line.startswith(f"`{name}` is not supported: it is of the installed")
    expected = ext.PLDAccountant().compose(Gaussian(1.0)).get_epsilon(1e-6)
    assert float(found) == expected


def test_no_public_name_of_the_library_is_left_to_chance():
    """Each is answered here, or known to read no state, or refused."""
    stock = dp_accounting.pld.PLDAccountant
    for name in dir(stock):
        known = {"neighboring_relation", "CompositionErrorDetails"}
        known |= vars(ext.PLDAccountant).keys() | vars(base_accountant.Composing).keys()
        assert name.startswith("_") or name in known


PAGE = pathlib.Path(__file__).parent.parent / "docs" / "guarantees.md"
Relation = dp_accounting.NeighboringRelation
Sampled, Group = stock.PoissonSampledDpEvent, ext.GroupSubsampledEvent
Allocation = ext.RandomAllocationEvent
Without = stock.SampledWithoutReplacementDpEvent
With = stock.SampledWithReplacementDpEvent

GAUSSIAN, LAPLACE = stock.GaussianDpEvent(1.0), stock.LaplaceDpEvent(1.0)
TRUNCATED = stock.TruncatedSubsampledGaussianDpEvent(9, 0.1, 2, 1.0)
TREE = stock.SingleEpochTreeAggregationDpEvent(1.0, 4)
REPORTS = [stock.RandomizedResponseDpEvent(0.5, 4), wpm.PrivateSamplingEvent(1.0, 1.0)]
KNOWN_BOUNDS = [
    newer_events.EpsilonDelta(1.0, 1e-6),
    stock.ZCDpEvent(0.5),
    newer_events.Exponential(1.0),
    newer_events.PermuteAndFlip(1.0),
]
SELECTION = stock.RepeatAndSelectDpEvent(GAUSSIAN, 2.0, 1.0)
STRATEGY = (1.0, 0.5)
# In the order of the page: what each row of it names.
TAKEN = [
    [GAUSSIAN, LAPLACE],
    [stock.DiscreteLaplaceDpEvent(0.5, 2), newer_events.DiscreteGaussian(1.0, 1.0, 1)],
    [stock.MixtureOfGaussiansDpEvent(1.0, [0.0], [1.0])],
    [Sampled(0.5, GAUSSIAN), Sampled(0.5, LAPLACE)],
    [Sampled(0.5, Allocation(LAPLACE, 1, 3))],
    [Allocation(LAPLACE, 2, 3), ext.ScheduledAllocationEvent([GAUSSIAN], [1], 3)],
    [Without(4, 2, GAUSSIAN), With(4, 2, LAPLACE)],
    [Without(4, 2, Sampled(0.5, GAUSSIAN))],
    [TRUNCATED, Group(2, TRUNCATED)],
    [
        ext.MatrixAllocationEvent(STRATEGY, 1.0, 2, 1),
        ext.WindowedAllocationEvent(STRATEGY, 1.0, 3, 2, 2),
        ext.MinSepSamplingEvent(STRATEGY, 1.0, 0.5, 2, 4),
        ext.CyclicPoissonEvent(STRATEGY, 1.0, 0.5, 2, 4),
        ext.PoissonMatrixEvent(STRATEGY, 1.0, 0.5, 4),
        ext.SelectedStepsMatrixEvent(STRATEGY, 1.0, 2, 4),
    ],
    [TREE],
    REPORTS,
    [*KNOWN_BOUNDS, SELECTION],
]
REFUSED = [
    [*REPORTS, *(Sampled(0.5, event) for event in REPORTS)],
    [TREE],
    [
        kind(event)
        for event in KNOWN_BOUNDS
        for kind in (
            lambda event: Sampled(0.5, event),
            lambda event: Allocation(event, 1, 3),
        )
    ],
    [Without(4, 2, event) for event in KNOWN_BOUNDS],
    [
        Group(2, Sampled(0.5, Without(4, 2, GAUSSIAN))),
        Group(2, Sampled(0.5, TRUNCATED)),
        Group(17, stock.TruncatedSubsampledGaussianDpEvent(99, 0.1, 2, 1.0)),
    ],
    [Sampled(0.5, Group(2, GAUSSIAN)), Group(2, Group(2, GAUSSIAN))],
]


def table(head):
    """The cells of the page's table that begins so."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n|{head}|")[1]
    lines = text.split("\n\n")[0].splitlines()[2:]
    return [line.strip("|").split("|") for line in lines]


@pytest.fixture
def supports(own_table):
    event_table.register_stock_events(newer_events.MODULE)

    def both(event, relation):
        """What both accountants say, which must be one answer."""
        kinds = ext.PLDAccountant, ext.RdpAccountant
        found = {kind(neighboring_relation=relation).supports(event) for kind in kinds}
        assert len(found) == 1, event
        return found.pop()

    return both


def test_what_the_page_lists_is_taken(supports):
    rows = table("event")
    for (name, *cells), events in zip(rows, TAKEN, strict=True):
        for cell, relation in zip(cells, Relation, strict=True):
            for event in events:
                expected = cell != "refused"
                assert supports(event, relation) is expected, (name, relation, event)


def test_what_the_page_refuses_is_refused(supports):
    for (name, under), events in zip(table("refused"), REFUSED, strict=True):
        named = [each for each in Relation if re.search(rf"\b{each.name}\b", under)]
        for relation in named or Relation:
            for event in events:
                assert not supports(event, relation), (name, relation, event)
