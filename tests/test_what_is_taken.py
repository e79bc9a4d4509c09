"""Which accountant takes which event, as the page on limits says."""

import pathlib

import dp_accounting
from dp_accounting import dp_event as stock
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.wpm import sampling_event as wpm_dp_event

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "guarantees.md"
Relation = dp_accounting.NeighboringRelation
LETTERS = {
    "A": Relation.ADD_OR_REMOVE_ONE,
    "R": Relation.REPLACE_ONE,
    "Z": Relation.REPLACE_SPECIAL,
}
GAUSSIAN, LAPLACE = stock.GaussianDpEvent(1.0), stock.LaplaceDpEvent(1.0)
POISSON = stock.PoissonSampledDpEvent(0.5, GAUSSIAN)
EVENTS = {
    "Gaussian noise, zCDP, selections": GAUSSIAN,
    "Laplace noise": LAPLACE,
    "discrete Laplace noise": stock.DiscreteLaplaceDpEvent(0.5, 2),
    "mixtures of Gaussians": stock.MixtureOfGaussiansDpEvent(1.0, [0.0], [1.0]),
    "randomized response": stock.RandomizedResponseDpEvent(0.5, 4),
    "sums along trees": stock.SingleEpochTreeAggregationDpEvent(1.0, 4),
    "Poisson samples of Gaussian noise": POISSON,
    "Poisson samples of anything else": stock.PoissonSampledDpEvent(0.5, LAPLACE),
    "truncated Poisson samples": stock.TruncatedSubsampledGaussianDpEvent(
        9, 0.1, 2, 1.0
    ),
    "batches without replacement": stock.SampledWithoutReplacementDpEvent(
        4, 2, GAUSSIAN
    ),
    "batches with replacement": stock.SampledWithReplacementDpEvent(4, 2, GAUSSIAN),
    "random allocation of Gaussian noise": ext.RandomAllocationEvent(GAUSSIAN, 1, 3),
    "random allocation of anything else": ext.RandomAllocationEvent(LAPLACE, 1, 3),
    "scheduled allocation": ext.ScheduledAllocationEvent([GAUSSIAN], [1], 3),
    "groups on Poisson samples": ext.GroupSubsampledEvent(2, POISSON),
    "groups in random allocation": ext.GroupSubsampledEvent(
        2, ext.RandomAllocationEvent(GAUSSIAN, 1, 3)
    ),
    "draws by `wpm`": wpm_dp_event.PrivateSamplingEvent(1.0, 1.0),
}
# What each person reports, and sums along trees, in which an absent one is a gap.
REFUSED_IF_ABSENT = {"randomized response", "sums along trees", "draws by `wpm`"}


def taken(accountant, event):
    letters = [
        letter
        for letter, relation in LETTERS.items()
        if accountant(neighboring_relation=relation).supports(event)
    ]
    return " ".join(letters) or "none"


@pytest.mark.parametrize("name", EVENTS)
def test_both_accountants_take_all_but_reports_of_those_who_are_absent(name):
    """Under ADD_OR_REMOVE_ONE a report that is missing tells who is."""
    expected = "R Z" if name in REFUSED_IF_ABSENT else "A R Z"
    assert taken(ext.PLDAccountant, EVENTS[name]) == expected
    assert taken(ext.RdpAccountant, EVENTS[name]) == expected


def test_the_page_says_so():
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert "`RdpAccountant` supports the events that `PLDAccountant` supports" in page
    for refused in (
        "|randomized response, draws by `wpm`|refused|",
        "|sums along trees (`SingleEpochTreeAggregationDpEvent`)|refused|",
    ):
        assert refused in page
