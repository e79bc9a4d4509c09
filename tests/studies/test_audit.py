"""Recorded batches: which way of drawing them they fit, and which they refute."""

import collections
import itertools
import os
import re

import numpy as np
import pytest

from dp_accounting_ext.studies import audit
from dp_accounting_ext.studies import training_run

ALLOCATION, POISSON, SHUFFLED = audit.AUDITED
RUNS = int(os.environ.get("LAW_EXAMPLES", 25))


def poisson(rng, records, steps, times, epochs):
    rate = times / steps
    return [np.flatnonzero(rng.random(records) < rate) for _ in range(steps * epochs)]


def allocated(rng, records, steps, times, epochs):
    batches = []
    for _ in range(epochs):
        chosen = np.argsort(rng.random((records, steps)), axis=1)[:, :times]
        batches += [np.flatnonzero((chosen == x).any(axis=1)) for x in range(steps)]
    return batches


def shuffled(rng, records, steps, times, epochs):
    size = -(-times * records // steps)
    batches = []
    for _ in range(epochs):
        order = np.concatenate([rng.permutation(records) for _ in range(times)])
        batches += np.split(order, np.arange(size, order.size, size))
    return batches


DRAWS = {POISSON: poisson, ALLOCATION: allocated, SHUFFLED: shuffled}


def run_of(records, steps, times, epochs):
    if times == 1:
        size = -(-records // steps)
        return training_run.TrainingRun(
            dataset_size=records, batch_size=size, epochs=epochs
        )
    return training_run.TrainingRun(
        steps_per_epoch=steps, batches_per_record=times, epochs=epochs
    )


def findings(run, batches, **options):
    return {each.sampling: each for each in audit.audit(run, batches, **options)}


def sizes_of(batches):
    return [len(batch) for batch in batches]


@pytest.mark.parametrize("form", [list, sizes_of])
@pytest.mark.parametrize("scheme", DRAWS)
@pytest.mark.parametrize(
    "setting",
    [(640, 20, 1, 3), (630, 20, 1, 3), (640, 20, 1, 1), (600, 12, 3, 2), (60, 6, 2, 4)],
)
def test_simulated_runs(setting, scheme, form):
    """Few false alarms, and others that fit no more often than is said."""
    records = setting[0]
    rng = np.random.default_rng([*setting, len(scheme)])
    alarms, fits, said = 0, collections.Counter(), collections.Counter()
    for _ in range(RUNS):
        batches = form(DRAWS[scheme](rng, *setting))
        found = findings(run_of(*setting), batches, num_records=records)
        alarms += not found.pop(scheme).fits
        for other, finding in found.items():
            fits[other] += finding.fits
            said[other] += finding.missed[scheme]
    assert alarms <= 0.01 * RUNS + 1  # 0.001 is what is said.
    for other, expected in said.items():
        assert fits[other] <= expected + 4 * expected**0.5 + 0.01
    if setting == (640, 20, 1, 3):
        assert not any(fits.values())


def every_poisson(records, steps):
    for drawn in itertools.product([0, 1], repeat=records * steps):
        table = np.reshape(drawn, (steps, records))
        yield [np.flatnonzero(row) for row in table]


def every_allocation(records, steps, epochs):
    for bins in itertools.product(range(steps), repeat=records * epochs):
        table = np.reshape(bins, (epochs, records))
        yield [np.flatnonzero(row == x) for row in table for x in range(steps)]


def every_shuffle(records, steps, epochs):
    size = -(-records // steps)
    cuts = []
    for order in itertools.permutations(range(records)):
        cut = [sorted(order[i : i + size]) for i in range(0, records, size)]
        cuts += [cut] * (cut not in cuts)
    for chosen in itertools.product(cuts, repeat=epochs):
        yield [np.array(batch) for cut in chosen for batch in cut]


@pytest.mark.parametrize("form", [list, sizes_of])
def test_chances_by_enumeration(form, level=0.45):
    """All equally likely runs: as many are refuted, and fit, as is said at most."""
    for records, steps, epochs in ((2, 2, 2), (3, 2, 1)):
        run = run_of(records, steps, 1, epochs)
        every = {
            POISSON: every_poisson(records, steps * epochs),
            ALLOCATION: every_allocation(records, steps, epochs),
            SHUFFLED: every_shuffle(records, steps, epochs),
        }
        for scheme, runs in every.items():
            counted = collections.Counter(
                tuple(x if form is sizes_of else tuple(x) for x in form(batches))
                for batches in runs
            )
            shares, said = collections.Counter(), dict.fromkeys(every, 1.0)
            for batches, number in counted.items():
                parts = batches if form is sizes_of else list(map(list, batches))
                found = findings(run, parts, false_alarm=level)
                for name, finding in found.items():
                    shares[name] += finding.fits * number / counted.total()
                    if name != scheme:
                        said[name] = min(said[name], finding.missed[scheme])
            assert shares.pop(scheme) >= 1 - level - 1e-9
            for other, share in shares.items():
                assert share <= said[other] + 1e-9


RECORDS, STEPS, EPOCHS = 640, 20, 3
RUN = run_of(RECORDS, STEPS, 1, EPOCHS)


def drawn(scheme):
    return DRAWS[scheme](np.random.default_rng(0), RECORDS, STEPS, 1, EPOCHS)


def weighted():
    rng = np.random.default_rng(0)
    rates = np.full(RECORDS, 0.045)
    rates[:3] = 0.5
    return [np.flatnonzero(rng.random(RECORDS) < rates) for _ in range(STEPS * EPOCHS)]


@pytest.mark.parametrize(
    ("batches", "scheme", "words"),
    [
        (drawn(POISSON), ALLOCATION, "not of 640 records|not once"),
        (drawn(POISSON), SHUFFLED, "an epoch that is cut has 32"),
        (drawn(SHUFFLED), ALLOCATION, "too alike in size"),
        (drawn(SHUFFLED), POISSON, "epochs have all|one size"),
        (drawn(ALLOCATION), POISSON, "epochs have all|as often"),
        (drawn(ALLOCATION)[:STEPS] * 3, ALLOCATION, "repeat the batches"),
        (drawn(POISSON)[:STEPS] * 3, POISSON, "repeat the batches"),
        (weighted(), POISSON, "too often in batches"),
        (poisson(np.random.default_rng(0), RECORDS, 14, 1, 4), POISSON, "too large"),
        (drawn(POISSON) * 2, POISSON, "120 steps ran, and 60"),
        (drawn(ALLOCATION) * 2, ALLOCATION, "120 steps ran, and 60"),
        ([*drawn(POISSON)[:9], np.array([1, 1])], POISSON, "twice in one batch"),
        (
            [*drawn(ALLOCATION)[:30], np.arange(RECORDS)],
            ALLOCATION,
            "once in an epoch",
        ),
        ([*[32] * 20, *[31] * 19, 51], SHUFFLED, "step 21 has 31"),
    ],
)
def test_what_is_refuted(batches, scheme, words):
    found = findings(RUN, batches)[scheme]
    assert not found.fits
    assert re.search(words, found.refuted_by), found.refuted_by


def test_a_run_that_ended_early_and_a_loader_that_drops_its_rest():
    rng = np.random.default_rng(3)
    early = allocated(rng, RECORDS, STEPS, 1, 3)[:47]
    assert findings(RUN, early)[ALLOCATION].fits
    run = training_run.TrainingRun(dataset_size=650, batch_size=32, epochs=2)
    dropped = [x for _ in range(2) for x in np.split(rng.permutation(650)[:640], 20)]
    found = findings(run, dropped, steps_per_epoch=20)
    assert found[SHUFFLED].fits and not found[ALLOCATION].fits
    assert not found[POISSON].fits


def test_words():
    told = audit.in_words(audit.audit(RUN, drawn(ALLOCATION)))
    assert "random allocation: the batches fit." in told
    assert "Poisson sampling: refuted: " in told and "at most 0.001." in told
    assert max(map(len, told.splitlines())) <= 80
    one = audit.audit(run_of(640, 20, 1, 1), sizes_of(drawn(ALLOCATION)[:20]))
    assert "so that the test cannot exclude them" in audit.in_words(one)


@pytest.mark.parametrize(
    ("batches", "options", "error", "words"),
    [
        ([], {}, ValueError, "one step at least"),
        ([641], {}, ValueError, "at most num_records = 640"),
        ([-1], {}, ValueError, "batches"),
        ([1.5], {}, TypeError, "batches"),
        ([[640]], {}, ValueError, "indices from 0"),
        ([[0.5]], {}, TypeError, "indices"),
        ([[[1]]], {}, TypeError, "indices"),
        (["a"], {}, TypeError, "batches"),
        ([1], {"false_alarm": 0}, ValueError, "false_alarm"),
        ([1], {"num_records": 0}, ValueError, "num_records"),
        ([1], {"steps_per_epoch": -1}, ValueError, "steps_per_epoch"),
    ],
)
def test_bad_input(batches, options, error, words):
    with pytest.raises(error, match=words):
        audit.audit(RUN, batches, **options)


def test_a_run_without_a_size_and_what_is_no_run():
    with pytest.raises(ValueError, match="num_records"):
        audit.audit(training_run.TrainingRun(steps_per_epoch=2), [1, 2])
    with pytest.raises(TypeError, match="TrainingRun"):
        audit.audit("run", [1, 2])
