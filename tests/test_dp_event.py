"""Events of the package: those that there are, and strategies as values."""

from dp_accounting import dp_event as stock
import numpy as np
import one_of_each

import dp_accounting_ext as ext
from dp_accounting_ext import dp_event
from dp_accounting_ext.correlated import events

EVENTS = [
    known.event
    for known in one_of_each.KNOWN
    if type(known.event).__name__ in (*dp_event.__all__, *events.__all__)
]


def test_these_are_all():
    own = {getattr(home, name) for home in (dp_event, events) for name in home.__all__}
    assert own == {type(event) for event in EVENTS}
    assert all(issubclass(kind, stock.DpEvent) for kind in own)


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
