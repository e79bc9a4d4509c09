"""The page on limits says which accountant takes which event, under which relation."""

import pathlib
import re

import dp_accounting
from dp_accounting import dp_event as stock
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.wpm import dp_event as wpm_dp_event

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "limits.md"
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
    "groups under Gaussian noise, or Poisson samples of it": ext.GroupSubsampledEvent(
        2, POISSON
    ),
    "groups in random allocation": ext.GroupSubsampledEvent(
        2, ext.RandomAllocationEvent(GAUSSIAN, 1, 3)
    ),
    "draws by `wpm`": wpm_dp_event.PrivateSamplingEvent(1.0, 1.0),
}


def taken(accountant, event):
    letters = [
        letter
        for letter, relation in LETTERS.items()
        if accountant(neighboring_relation=relation).supports(event)
    ]
    return " ".join(letters) or "none"


@pytest.mark.parametrize("name", EVENTS)
def test_a_row_is_true(name):
    """Where it is not, what is shown is the row that belongs there."""
    both = (
        taken(kind, EVENTS[name]) for kind in (ext.PLDAccountant, ext.RdpAccountant)
    )
    row = f"| {name} | {' | '.join(both)} |"
    assert row in PAGE.read_text(encoding="utf-8").splitlines()


def test_every_row_is_asked():
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| event | `PLDAccountant` | `RdpAccountant` |\n")[2]
    rows = re.findall(r"^\| ([^|]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == list(EVENTS)
