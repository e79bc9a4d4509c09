"""What is asked of every type of event that is registered: of one event of each."""

import pathlib
import pickle

import asked
import attr
from dp_accounting import dp_event as stock
import mechanism_laws
import mpmath
import one_of_each
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import groups
from dp_accounting_ext.reading import event_table

TESTS = pathlib.Path(__file__).parent.parent
GOLDEN = (TESTS / one_of_each.GOLDEN).read_text()
every = pytest.mark.parametrize(
    "known", one_of_each.KNOWN, ids=lambda known: type(known.event).__name__
)


def test_each_registered_type_is_here():
    here = {type(known.event) for known in one_of_each.KNOWN}
    packages = "dp_accounting", "dp_accounting_ext"
    kinds = {k for k in event_table._TABLE if k.__module__.split(".")[0] in packages}
    assert kinds <= here


@every
def test_bounds_contain_the_truth(known):
    if not callable(known.truth):
        assert (TESTS / known.truth).exists()
        name = f'{{"{type(known.event).__name__}"'
        assert known.truth != one_of_each.GOLDEN or name in GOLDEN
        return
    accountant = asked.accountant_of(known.event, relation=known.relation)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        low, high = accountant.get_delta_bounds(epsilon)
        with mpmath.workdps(40):
            assert low <= known.truth(epsilon) <= high


@every
def test_bounds_are_in_order(known):
    """Of two runs; and those by Rényi divergences are above the lower ones."""
    accountant = asked.accountant_of(known.event, 2, known.relation)
    low, high = accountant.get_epsilon_bounds([0.0, 1e-9, 0.1])
    assert (low <= high).all() and (high[1:] <= high[:-1]).all()
    renyi = ext.RdpAccountant([2.0, 9.0], known.relation).compose(known.event, 2)
    assert renyi.get_epsilon(1e-9) >= low[1]


@every
def test_claims_are_no_less_than_what_is_certain(known):
    mechanism = event_table.reader(known.relation).mechanism(known.event)
    for scenario in groups.scenarios({mechanism: 1}):
        mechanism_laws.assert_claims(compositions.compose(scenario))


@every
def test_an_event_is_its_fields(known):
    """Equal, hashable, and written and read again."""
    event = known.event
    if type(event).__module__.split(".")[0] == "dp_accounting_ext":
        assert stock.DpEvent.from_named_tuple(event.to_named_tuple()) == event
        if not isinstance(event, ext.PLDEvent):  # No two distributions are equal.
            fields = attr.astuple(event, recurse=False)
            same = type(event)(*pickle.loads(pickle.dumps(fields)))
            assert same == event and hash(same) == hash(event)
        for field in attr.fields_dict(type(event)):
            assert attr.evolve(event, **{field: 0}) != event
