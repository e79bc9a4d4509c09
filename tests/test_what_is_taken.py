"""Which accountant takes which event, as the two tables of the page on limits say."""

import pathlib
import re

import dp_accounting
from dp_accounting import dp_event as stock
import newer_events
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import wpm
from dp_accounting_ext.reading import event_table

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
    [TRUNCATED],
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
    [Group(2, TRUNCATED), Group(2, Sampled(0.5, Without(4, 2, GAUSSIAN)))],
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
