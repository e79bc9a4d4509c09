"""One reader for all events: what it counts, and what it refuses."""

import asked
import dp_accounting
from dp_accounting import privacy_accountant
import newer_events
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.reading import event_reader
from dp_accounting_ext.reading import event_table

NeighborRel = privacy_accountant.NeighboringRelation
accountant_of = asked.accountant_of
Gaussian = dp_accounting.GaussianDpEvent
Poisson = dp_accounting.PoissonSampledDpEvent
Composed = dp_accounting.ComposedDpEvent


def test_ten_thousand_composes_one_at_a_time():
    accountant = ext.PLDAccountant()
    for _ in range(10_000):
        accountant.compose(Poisson(0.001, Gaussian(1.0)))
    expected = accountant_of(Poisson(0.001, Gaussian(1.0)), 10_000)
    assert accountant.get_epsilon(1e-6) == expected.get_epsilon(1e-6)


def test_so_many_runs_and_no_more():
    laplace, gaussian = additive_noise.laplace(1.0), additive_noise.Gaussian(1.0)
    assert event_reader.check_counts({laplace: 10**9, gaussian: 2**53}) == 1
    with pytest.raises(ValueError, match=r"^count must be at most 1000000000 .*Found"):
        event_reader.check_counts({laplace: 10**9 + 1})
    with pytest.raises(ValueError, match=r"^count must be at most 2\^53"):
        event_reader.check_counts({gaussian: 2**53 + 1})


def test_so_many_mechanisms_and_no_more():
    parts = [additive_noise.laplace(1.0 + i) for i in range(2000)]
    noise = [additive_noise.Gaussian(1.0 + i) for i in range(10)]
    assert event_reader.check_counts(dict.fromkeys([*parts, *noise], 1)) == 2000
    assert event_reader.check_counts({parts[0]: 2}, parts, 2000) == 2000
    with pytest.raises(ValueError, match=r"^event must add up to at most 2000 .* 2001"):
        event_reader.check_counts({parts[0]: 1}, (), 2000)


REPLACE = NeighborRel.REPLACE_ONE


def test_what_states_its_own_privacy_states_it_of_its_own_relation(own_table):
    event_table.register_stock_events(newer_events.MODULE)
    stated = newer_events.EpsilonDelta(1.0, 1e-6)
    assert accountant_of(stated, 1, REPLACE).get_epsilon(2e-6) <= 1.0 + 1e-9
    accountant = ext.PLDAccountant(REPLACE)
    for event in (
        Poisson(0.5, stated),
        ext.RandomAllocationEvent(Composed([Gaussian(1.0), stated]), 1, 5),
    ):
        assert not accountant.supports(event)
        with pytest.raises(
            privacy_accountant.UnsupportedEventError, match="here another counts"
        ):
            accountant.compose(event)
        assert ext.PLDAccountant().supports(event)
