"""Events are values: equal, hashable, written and read again, and never changed."""

import copy

import attr
import dp_accounting
from dp_accounting import dp_event as stock
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import dp_event
from dp_accounting_ext.correlated import events

NOISE = stock.GaussianDpEvent(1.5)
EVENTS = [
    (ext.RandomAllocationEvent, {"event": NOISE, "num_selected": 2, "num_steps": 9}),
    (
        ext.ScheduledAllocationEvent,
        {"events": (NOISE, stock.NoOpDpEvent()), "counts": (3, 1), "num_steps": 9},
    ),
    (
        ext.MatrixAllocationEvent,
        {
            "strategy": (1.0, 0.5),
            "noise_multiplier": 2.0,
            "num_bins": 4,
            "num_epochs": 2,
        },
    ),
    (
        ext.CyclicPoissonEvent,
        {
            "strategy": (1.0, 0.5),
            "noise_multiplier": 2.0,
            "sampling_probability": 0.25,
            "cycle_length": 2,
            "num_steps": 9,
        },
    ),
    (
        ext.PoissonMatrixEvent,
        {
            "strategy": (1.0, 0.5),
            "noise_multiplier": 2.0,
            "sampling_probability": 0.25,
            "num_steps": 8,
        },
    ),
    (
        ext.SelectedStepsMatrixEvent,
        {
            "strategy": (1.0, 0.5),
            "noise_multiplier": 2.0,
            "num_selected": 2,
            "num_steps": 4,
            "num_epochs": 2,
        },
    ),
    (
        ext.MinSepSamplingEvent,
        {
            "strategy": (1.0, 0.5),
            "noise_multiplier": 2.0,
            "sampling_probability": 0.25,
            "separation": 2,
            "num_steps": 9,
            "warm_start": True,
        },
    ),
    (
        ext.WindowedAllocationEvent,
        {
            "strategy": (1.0, 0.5),
            "noise_multiplier": 2.0,
            "window": 4,
            "separation": 2,
            "num_cycles": 3,
            "sampling_probability": 0.5,
        },
    ),
    (ext.PLDSubsampleEvent, {"sampling_probability": 0.25, "event": NOISE}),
    (ext.GroupSubsampledEvent, {"group_size": 3, "event": NOISE}),
    (dp_event.EpsilonDeltaDpEvent, {"epsilon": 1.0, "delta": 1e-6}),
    (dp_event.ExponentialMechanismDpEvent, {"epsilon": 1.0}),
    (dp_event.PermuteAndFlipDpEvent, {"epsilon": 1.0}),
    (
        dp_event.DiscreteGaussianDpEvent,
        {"sigma": 2.0, "sensitivity": 1.0, "dimension": 1},
    ),
]
TYPES = [kind for kind, _ in EVENTS]


def test_these_are_all():
    own = {getattr(home, name) for home in (dp_event, events) for name in home.__all__}
    # Distributions of dp_accounting are not values: no two of them are equal.
    assert own == {*TYPES, ext.PLDEvent}
    assert all(issubclass(kind, dp_accounting.DpEvent) for kind in TYPES)


@pytest.mark.parametrize(("kind", "fields"), EVENTS)
def test_an_event_is_its_fields(kind, fields):
    event, same = kind(**fields), kind(**copy.deepcopy(fields))
    assert event == same
    assert hash(event) == hash(same)
    for name in fields:
        other = attr.evolve(event, **{name: 0})
        assert other != event
    assert stock.DpEvent.from_named_tuple(event.to_named_tuple()) == event


@pytest.mark.parametrize("kind", TYPES)
def test_fields_that_are_no_good_are_for_the_accountant_to_refuse(kind):
    """As the stock events do: an event can be made, and its error names a field."""
    event = kind(*[None] * len(attr.fields(kind)))
    accountant = ext.PLDAccountant()
    with pytest.raises(TypeError, match=r"^\w+ must be a.*Found"):
        accountant.compose(event)
    assert accountant.ledger == stock.NoOpDpEvent()


def test_strategies_of_any_kind_of_sequence_are_one():
    rows = [[1.0, 0.0], [0.5, 1.0]]
    matrix = ext.MatrixAllocationEvent(rows, 1.0, 2, 1)
    assert matrix == ext.MatrixAllocationEvent(np.array(rows), 1.0, 2, 1)
    assert hash(matrix) == hash(ext.MatrixAllocationEvent(rows, 1.0, 2, 1))
    assert stock.DpEvent.from_named_tuple(matrix.to_named_tuple()) == matrix


def test_a_buffered_matrix_is_its_first_column():
    event = ext.MatrixAllocationEvent.from_buffered_toeplitz(
        [0.5, 0.25], [0.5, 1.0], 1.0, 2, 2
    )
    assert event.strategy == (1.0, 1.5, 0.5, 0.1875)
