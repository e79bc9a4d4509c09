"""What each stock event's curve is: against the stock accountant and closed forms."""

import dp_accounting
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant as stock
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import renyi_events

NeighborRel = dp_accounting.NeighboringRelation
Gaussian = dp_event.GaussianDpEvent
Laplace = dp_event.LaplaceDpEvent
ORDERS = (2.0, 3.0, 8.0, 32.0)

ADD = NeighborRel.ADD_OR_REMOVE_ONE
REPLACE = NeighborRel.REPLACE_ONE

SAME_AS_STOCK = [
    Gaussian(2.0),
    Laplace(0.7),
    dp_event.ZCDpEvent(0.3),
    dp_event.NoOpDpEvent(),
    dp_event.PoissonSampledDpEvent(0.1, Gaussian(1.5)),
]


def curve(event, relation=ADD):
    return renyi_events.reader(relation).curve(event)


@pytest.mark.parametrize("event", SAME_AS_STOCK, ids=lambda e: type(e).__name__)
def test_where_the_stock_accountant_is_right_its_curve_is_ours(event):
    """From above: its values are rounded to nearest, ours up."""
    theirs = stock.RdpAccountant(ORDERS, ADD).compose(event).rdp
    ours = curve(event).rdp(ORDERS)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-14)


def test_a_replaced_record_is_two_norms_away():
    """The stock accountant leaves the factor out: four times the divergence."""
    replaced = curve(Gaussian(2.0), REPLACE).rdp(ORDERS)
    assert replaced == pytest.approx(4 * curve(Gaussian(2.0)).rdp(ORDERS), rel=1e-12)
    halved = curve(Laplace(0.7), REPLACE).rdp(ORDERS)
    assert halved == pytest.approx(curve(Laplace(0.35)).rdp(ORDERS), rel=1e-12)


def test_curves_grow_with_the_order_and_less_noise():
    for quiet, loud in ((Gaussian(1.0), Gaussian(2.0)), (Laplace(0.5), Laplace(1.0))):
        assert np.all(np.diff(curve(quiet).rdp(ORDERS)) >= 0)
        assert np.all(curve(quiet).rdp(ORDERS) >= curve(loud).rdp(ORDERS))


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (dp_event.NonPrivateDpEvent(), 1.0),
        (dp_event.PoissonSampledDpEvent(0.25, dp_event.NonPrivateDpEvent()), 0.25),
        (dp_event.PoissonSampledDpEvent(0.25, Gaussian(0.0)), 0.25),
        (dp_event.PoissonSampledDpEvent(0.0, Gaussian(0.0)), 0.0),
    ],
)
def test_what_has_no_privacy_costs_the_chance_that_it_runs(event, delta):
    found = curve(event)
    assert delta <= found.delta <= delta * (1 + 1e-12)
    if delta < 1:
        assert not found.rdp(ORDERS).any()


def test_a_group_is_told_apart_from_a_record():
    family = curve(ext.GroupSubsampledEvent(4, Gaussian(3.0)))
    largest = family.rdp(ORDERS).max(axis=0)
    assert largest == pytest.approx(16 * curve(Gaussian(3.0)).rdp(ORDERS), rel=1e-9)


@pytest.mark.parametrize(
    "event",
    [
        dp_event.UnsupportedDpEvent(),
        dp_event.PoissonSampledDpEvent(0.5, dp_event.UnsupportedDpEvent()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_no_curve_is_known_of_is_refused(event):
    with pytest.raises(event_reader.UnsupportedError):
        curve(event)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Gaussian(-1.0), "noise_multiplier"),
        (dp_event.ZCDpEvent(float("nan")), "rho"),
        (dp_event.PoissonSampledDpEvent(1.5, Gaussian(1.0)), "sampling_probability"),
        (dp_event.PoissonSampledDpEvent(1e-200, Gaussian(1.0)), "sampling_probability"),
        (ext.GroupSubsampledEvent(10**8, Gaussian(1.0)), "group_size"),
        (ext.RandomAllocationEvent(Gaussian(1.0), 7, 5), "num_selected"),
    ],
)
def test_bad_fields_are_named(event, message):
    with pytest.raises((TypeError, ValueError), match=f"{message} must be .*Found"):
        curve(event)
