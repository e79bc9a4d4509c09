"""Every message that a user reaches at the public edge, provoked once.

Each is one line that names the field, says what it must be, and what was found. The
last test asks the source: a message without its case here fails it.
"""

import ast
import math
import pathlib
import re

import dp_accounting
from dp_accounting import privacy_accountant
import numpy as np
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext import budget
from dp_accounting_ext import risk
from dp_accounting_ext import wpm
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.sampling import sampling_certificate
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks

PACKAGE = pathlib.Path(ext.__file__).parent
Gaussian = dp_accounting.GaussianDpEvent
Composed = dp_accounting.ComposedDpEvent
Unsupported = privacy_accountant.UnsupportedEventError


def compose(event, accountant=ext.PLDAccountant):
    return lambda: accountant().compose(event)


def run(**changes):
    return lambda: training_run.TrainingRun(**{"steps_per_epoch": 10, **changes})


def profiles(**options):
    setting = training_run.TrainingRun(1.0, 2, 1, 1, 1e-3)
    return lambda: curves.profiles(setting, **options)


def certify(event, **options):
    return lambda: ext.certify_by_sampling(event, **{"delta": 0.01, **options})


def audit(scores=(2.0, 1.0), members=(1, 0), guesses=1, **options):
    return lambda: canaries.audit(NOTHING, scores, members, guesses=guesses, **options)


def mixture(gram):
    return lambda: sampling_certificate.certify_mixture(gram, 0.01)


def strategy(value, steps=2):
    return lambda: strategies.strategy(value, steps)


def buffered(decays, scales):
    make = ext.MatrixAllocationEvent.from_buffered_toeplitz
    return lambda: make(decays, scales, 1.0, 2, 2)


def windowed(strategy=(1.0, 0.5), **fields):
    fields = {"window": 5, "separation": 3, "num_cycles": 2} | fields
    return compose(ext.WindowedAllocationEvent(strategy, 1.0, **fields))


def min_sep(strategy=(1.0, 0.5), **fields):
    fields = {"separation": 2, "num_steps": 3} | fields
    return compose(ext.MinSepSamplingEvent(strategy, 1.0, 0.5, **fields))


def sampled_again_and_again():
    event = Gaussian(1.0)
    for _ in range(20):
        event = dp_accounting.PoissonSampledDpEvent(0.5, event)
    return event


class Unknown(dp_accounting.DpEvent):
    """Registered nowhere."""


ADD_OR_REMOVE = privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE
GROUP = ext.GroupSubsampledEvent(2, Gaussian(9.0))
MATRIX = ext.MatrixAllocationEvent((1.0, 0.5), 3.0, 4, 1)
NOTHING = ext.PLDAccountant()
LOOP = Composed([])
LOOP.events.append(LOOP)
SETTING = training_run.TrainingRun(None, 10, 1, 1, 1e-6)

CASES = [
    # validation.fields, by the field of an event, an accountant or a run
    (compose(Gaussian(math.nan)), "noise_multiplier must be a number. Found nan."),
    (compose(Gaussian(10**400)), "noise_multiplier must be at most 1.8e308 in size."),
    (
        lambda: fields.real_number("epsilon", np.longdouble("1e-4000")),
        "epsilon must be 0 or at least 5e-324 in size. Found less.",
    ),
    (compose(Gaussian(1e99)), "noise_multiplier must be 0 or from 1e-60 to 1e+60."),
    (
        compose(ext.PLDSubsampleEvent(1e-200, Gaussian(1.0))),
        "sampling_probability must be 0 or at least 1e-100. Found 1e-200.",
    ),
    (
        lambda: ext.PLDAccountant().get_true_positive_rate_bounds("x"),
        "false_positive_rates must be an array of real numbers. Found dtype <U1.",
    ),
    (
        lambda: ext.PLDAccountant().get_true_positive_rate_bounds(2.0),
        "false_positive_rates must be in [0, 1]. Found 2.0.",
    ),
    (
        compose(ext.RandomAllocationEvent(Gaussian(1.0), 5, 3)),
        "num_selected must be at most num_steps. Found 5 of 3.",
    ),
    (
        compose(ext.RandomAllocationEvent(Gaussian(1.0), 1, 10**10)),
        "num_steps must be at most 1000000000. Found 10000000000.",
    ),
    (
        run(group_size=2**60),
        "group_size must be at most 2^53. Found 1152921504606846976",
    ),
    (run(epochs=-0.5), "epochs must be positive and finite. Found -0.5."),
    (
        run(batches_per_record=2, epochs=2.5),
        "epochs must be whole where batches_per_record is above 1. Found 2.5: round",
    ),
    (
        compose(
            ext.GroupSubsampledEvent(
                9999, dp_accounting.PoissonSampledDpEvent(0.1, Gaussian(1.0))
            )
        ),
        "group_size must be at most 1024 for a `PoissonSampledDpEvent`. Found 9999.",
    ),
    (
        compose(ext.ScheduledAllocationEvent("x", [1], 2)),
        "events must be a sequence. Found a str.",
    ),
    (
        lambda: ext.PLDAccountant("ADD"),
        "neighboring_relation must be a NeighboringRelation. Found 'ADD'.",
    ),
    (
        lambda: ext.PLDAccountant(value_discretization_interval=0.0),
        "value_discretization_interval must be positive and finite. Found 0.0.",
    ),
    (
        lambda: ext.PLDAccountant().get_epsilon_bounds(1e-6, direction="out"),
        "direction must be 'remove', 'add' or None, for the larger one. Found 'out'.",
    ),
    # studies.training_run
    (run(noise_multiplier=0.0), "noise_multiplier must be positive, from 1e-60 to"),
    (
        run(steps_per_epoch=10**6, epochs=10**6),
        "steps_per_epoch times epochs must be at most 1000000000. Found 1000000 times",
    ),
    (run(delta=1.0), "delta must be in (0, 1). Found 1.0."),
    (run(steps_per_epoch=None), "steps_per_epoch, must be given. Found it missing."),
    (
        run(dataset_size=10, batch_size=2),
        "steps_per_epoch must be left out where dataset_size and batch_size are given.",
    ),
    (
        run(steps_per_epoch=None, dataset_size=10, batch_size=20),
        "batch_size must be at most dataset_size. Found 20 of 10.",
    ),
    (
        run(steps_per_epoch=None, sampling_rate=0.0),
        "sampling_rate must be a probability, from 1e-09 to 1. Found 0.0.",
    ),
    (
        run(num_steps=9, epochs=2),
        "epochs must be left out where num_steps is given. Found 2.",
    ),
    (
        run(batches_per_record=2, num_steps=25),
        "num_steps must be whole epochs where batches_per_record is above 1. Found 25:",
    ),
    (run(sampling="shuffle"), "no-amplification, shuffled. Found 'shuffle'."),
    (
        run(batches_per_record=11),
        "batches_per_record must be at most steps_per_epoch. Found 11 of 10.",
    ),
    (
        lambda: run(sampling="shuffled")().event,
        "sampling must be another than 'shuffled or fixed batches' for an event: its",
    ),
    (
        lambda: run(sampling="shuffled")().accountant(ADD_OR_REMOVE),
        "neighboring_relation must be REPLACE_ONE where sampling is 'shuffled or fixed",
    ),
    (
        lambda: comparison.compare(training_run.TrainingRun(1.0, 10)),
        "delta must be given. Found it missing.",
    ),
    (lambda: statement.claims(1.0), "run must be a TrainingRun. Found 1.0."),
    (
        lambda: comparison.compare({"delta": 1e-6}),
        "run must be a TrainingRun. Found {'delta': 1e-06}.",
    ),
    # studies.calibration, studies.curves
    (
        lambda: calibration.calibrate(SETTING, -1.0),
        "epsilon must be positive and finite. Found -1.",
    ),
    (
        lambda: calibration.calibrate(run(delta=1e-15)(), 1e-12),
        "epsilon must be such as a noise of at most 1e+09, the most that is tried",
    ),
    (profiles(epsilons=[-1.0]), "epsilons must be finite and not negative. Found [-1"),
    (profiles(num_points=2), "num_points must be at least 3 and at most 10000. Found"),
    (
        lambda: curves.trade_offs(SETTING, least_rate=0.0),
        "least_rate must be in [1e-200, 1). Found 0.0.",
    ),
    # studies.canaries
    (audit(scores=[1.0, math.nan]), "scores must be numbers. Found nan at index 1."),
    (audit(scores="x"), "scores must be an array of real numbers. Found dtype <U1."),
    (audit(members=[1]), "members must be a row, as scores. Found shapes (1,) and (2"),
    (audit(members=[1, 2]), "members must be 0 or 1. Found 2."),
    (
        audit(scores=[], members=[], guesses=1),
        "members must have one for each canary. Found none.",
    ),
    (
        audit(scores=[0.0] * 30, members=[True] * 30),
        "members must be drawn by fair coins. Found 30 of 30, which they give with a",
    ),
    (audit(guesses=3), "guesses must be at most canaries. Found 3 of 2."),
    (audit(guesses=0), "guesses must be at least 1. Found 0."),
    (audit(guesses=1.0), "guesses must be an integer. Found 1.0."),
    (audit(guess="out"), "guess must be in or both. Found 'out'."),
    (audit(significance=1.0), "significance must be in (0, 1). Found 1.0."),
    (
        lambda: canaries.epsilon_lower_bound(3, 2, 9, 1e-5),
        "right must be at most guesses. Found 3 of 2.",
    ),
    (
        lambda: canaries.plan(NOTHING, 1.0, 9),
        "fault must be a PLDAccountant that has composed what ran, as PLDAccountant()",
    ),
    # studies.sweep
    (
        lambda: sweep.check_columns(["noise multiplier"]),
        "columns must have the names of a run's fields, or names that are not like",
    ),
    (
        lambda: sweep.check_columns(["a", "a"]),
        "columns must have different names. Found two 'a'.",
    ),
    (
        lambda: sweep.check_columns(["noise_multiplier"]),
        "sampling must be one of random-allocation, poisson-sampling, no-amplificat",
    ),
    (
        lambda: sweep.check_columns(["note"]),
        "columns must have other names than results. Found 'note', which is of the",
    ),
    (
        lambda: sweep.check_columns(["fpr"]),
        "columns must be such as results need: fpr goes with risks. Found 'fpr' with",
    ),
    (lambda: sweep.columns_of(["x"]), "results must be of epsilon, noise, risks, one"),
    (
        lambda: sweep.setting_of({"delta": "x", "sampling": "shuffled"}),
        "delta must be a real number. Found",
    ),
    (
        lambda: sweep.setting_of({"steps_per_epoch": "x", "sampling": "shuffled"}),
        "steps_per_epoch must be an integer. Found 'x'.",
    ),
    (
        lambda: sweep.setting_of({"sampling": "shuffled", "fpr": 2}),
        "fpr must be in [0, 1]. Found 2",
    ),
    (
        sweep.Setting(SETTING, epsilon=0.0).with_noise,
        "epsilon must be positive and finite. Found 0: for 0 no noise is",
    ),
    (
        lambda: sweep.sweep_to_file([], "", None),
        "rows must have a row. Found none.",
    ),
    (
        lambda: sweep.sweep_to_file([{"strategy": 1}, {"name": 1}], "", None),
        "rows must all have the columns strategy. Found one with name.",
    ),
    (
        lambda: sweep.sweep_to_file([{"strategy": "a\nb"}], "", None),
        "rows must have cells of one line each. Found one of several lines.",
    ),
    (
        lambda: sweep.sweep_to_file([{"strategy": "a"}], __file__, None),
        "output must be a file, new or with the columns of the grid and of results; ",
    ),
    (
        lambda: ext.PLDAccountant().get_delta("high"),
        "target_epsilon must be a real number. Found 'high'.",
    ),
    (
        lambda: ext.PLDAccountant().get_delta(["high"]),
        "target_epsilon must be real numbers. Found ['high'].",
    ),
    # risk, budget
    (lambda: risk.membership_success(NOTHING, 0.0), "prior must be in [1e-300, 1"),
    (lambda: risk.attack_success(NOTHING, -0.1), "baseline must be in"),
    (lambda: risk.advantage(0.5), "accountant must be a PLDAccountant that has comp"),
    (
        lambda: budget.calibrate(Gaussian, lambda _: None, 1.0),
        "measure must be a real number. Found None.",
    ),
    (
        lambda: risk.positive_predictive_value(NOTHING, 0.0),
        "false_positive_rate must be positive: a test that is never wrong names",
    ),
    (lambda: budget.RenyiFilter(0.0, 0.1), "epsilon must be positive and finite."),
    (lambda: budget.GaussianFilter(1.0, 1.0), "delta must be in (0, 1). Found 1"),
    (
        lambda: budget.RenyiFilter(1.0, 0.1, orders=[1.0]),
        "orders must be one or more in [1.01, 1e6). Found (1.0,).",
    ),
    (
        lambda: budget.RenyiFilter(0.1, 1e-6, orders=[2.0]),
        "epsilon must be larger, or orders others. Found 0.1 at delta 1e-06",
    ),
    (
        lambda: budget.RenyiFilter(1.0, 0.1).spend(dp_accounting.NonPrivateDpEvent()),
        "event must have no δ of its own. Found ",
    ),
    (
        lambda: budget.RenyiFilter(1.0, 0.1).spend(GROUP),
        "event must be that of single records: the size of a group is one for all that",
    ),
    (
        lambda: budget.GaussianFilter(1.0, 0.1).spend(Gaussian(0.0)),
        "noise_multiplier must be positive. Found 0.",
    ),
    (
        lambda: budget.remaining(NOTHING, Gaussian(1.0), -1.0, 0.1),
        "epsilon must be non-negative. Found -1.0",
    ),
    (
        lambda: budget.calibrate(Gaussian, risk.advantage, 1.0),
        "target must be such as noise is needed for. Found 1",
    ),
    (
        lambda: budget.calibrate(Gaussian, risk.advantage, -1.0),
        "target must be such as a noise of at most ",
    ),
    (
        lambda: budget.calibrate(Gaussian, 2.0, 1.0),
        "measure must be callable. Found 2.0.",
    ),
    (
        lambda: budget.calibrate(Gaussian, lambda a: 1 / risk.advantage(a)[1], 0.5),
        "measure must decrease with the noise. Found ",
    ),
    (
        lambda: budget.remaining(NOTHING, dp_accounting.NoOpDpEvent(), 1.0, 0.1),
        "event must cost something: any number of runs of this one fits. Found NoOpD",
    ),
    # sampling_certificate
    (certify(Gaussian(1.0)), "event must be a MatrixAllocationEvent, a PoissonMatrixE"),
    (
        certify(ext.PoissonMatrixEvent((1.0, 0.5), 1.0, 1.0, 9)),
        "sampling_probability must be in (0, 1) to be certified by sampling. Found 1",
    ),
    (
        certify(ext.PoissonMatrixEvent((1.0, 0.5), 0.0, 0.5, 9)),
        "noise_multiplier must be positive. Found 0",
    ),
    (
        certify(ext.PoissonMatrixEvent((1.0,) * 9, 50.0, 0.5, 100)),
        "strategy must have few bands for its steps and noise to be certified by ",
    ),
    (
        compose(ext.PoissonMatrixEvent((1.0,), 1.0, 0.5, 1 << 18)),
        "num_steps must be at most 131072. Found 262144",
    ),
    (
        compose(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 2, 1024, 129)),
        "num_steps times num_epochs must be at most 131072. Found 132096",
    ),
    (
        compose(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 9, 8)),
        "num_selected must be at most num_steps. Found 9 of 8",
    ),
    (
        certify(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 2, 12, 2)),
        " sets, and steps, to be certified by sampling. Found 2 of 12 in each of 2 ",
    ),
    (
        certify(ext.SelectedStepsMatrixEvent((1.0, 0.5), 0.0, 2, 12)),
        "noise_multiplier must be positive. Found 0",
    ),
    (
        certify(ext.MatrixAllocationEvent((1.0,), 0.0, 2, 1)),
        "noise_multiplier must be positive. Found 0.",
    ),
    (
        certify(ext.RandomAllocationEvent(Gaussian(0.0), 2, 9)),
        "event must be a RandomAllocationEvent of Gaussian noise, not 0, to be certi",
    ),
    (
        certify(ext.RandomAllocationEvent(Gaussian(1.0), 2, 92)),
        " sets, and steps, to be certified by sampling. Found 2 of 92",
    ),
    (certify(MATRIX, seed="x"), "seed must be None or a non-negative integer. Found"),
    (certify(MATRIX, delta=0.0), "delta must be in (0, 1). Found 0"),
    (certify(MATRIX, most_seconds=0.0), "most_seconds must be positive. Found 0"),
    (mixture([1.0, 0.5]), "gram must be a square matrix. Found shape (2,)."),
    (
        mixture(np.broadcast_to(1.0, (4097, 4097))),
        "gram must have at most 4096 rows. Found 4097",
    ),
    (
        mixture([[math.nan]]),
        "gram, products of means over the noise's variance, must have entries in [0, ",
    ),
    (mixture(np.zeros((2, 2))), "gram must have an entry above 0. Found none."),
    (
        mixture([[1.0, 0.5], [0.4, 1.0]]),
        "gram must be symmetric. Found entries that differ by 0.1",
    ),
    # validation.strategies
    (strategy(()), "strategy must have a coefficient at least. Found none."),
    (strategy((0.0, 1.0)), "strategy must begin with a positive coefficient. Found 0"),
    (strategy((1.0, -0.5)), "strategy must have no negative coefficient"),
    (
        strategy((1.0, 1e-200)),
        ": write 0 for what has died out, or 1e-30 for an upper bound. Found 1e-200",
    ),
    (
        strategy(((1.0,),)),
        " steps, or be the coefficients of a Toeplitz matrix. Found 1 rows",
    ),
    (
        strategy(((1.0,),) * 1025, 1025),
        " rows, or be the coefficients of a Toeplitz matrix. Found 1025",
    ),
    (strategy(((1.0,), (1.0, 2.0))), "strategy must be square. Found 1 entries in r"),
    (
        strategy(((1.0, 0.5), (0.0, 1.0))),
        "strategy must be lower triangular. Found a positive entry above the diagonal",
    ),
    (
        strategy(((1.0, 0.0), (1.0, 0.0))),
        "strategy must have a positive diagonal. Found 0 in row 1",
    ),
    (
        compose(ext.MatrixAllocationEvent((1.0,), 1.0, 5000, 1)),
        "num_bins must be at most 4096. Found 5000",
    ),
    (
        compose(ext.MatrixAllocationEvent((1.0,), 1.0, 4096, 33)),
        "num_bins times num_epochs must be at most 131072. Found 135168",
    ),
    (min_sep(separation=5000), "separation must be at most 1024. Found 5000"),
    (min_sep(num_steps=1 << 18), "num_steps must be at most 131072. Found 262144"),
    (min_sep(warm_start=1), "warm_start must be a bool. Found 1"),
    (
        min_sep(strategy=(1.0, 0.5, 0.5)),
        "strategy must have at most as many bands as separation, 2: no theorem covers ",
    ),
    (
        min_sep(strategy=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.0, 1.0))),
        "strategy must have at most as many bands as separation, 2: no theorem covers ",
    ),
    (windowed(window=5000), "window must be at most 4096. Found 5000"),
    (
        windowed(num_cycles=20000),
        "num_cycles must make at most 131072 steps. Found 20000 cycles of 7 steps",
    ),
    (
        windowed(strategy=((1.0, 0.0), (0.5, 1.0))),
        "strategy must be the coefficients of a Toeplitz matrix here. Found rows: use",
    ),
    (
        windowed(strategy=(1.0, 0.5, 0.5, 0.5)),
        "strategy must have at most as many bands as separation, 3: no theorem covers ",
    ),
    (buffered([0.5], [0.1, 0.2]), "decays and scales must be as many, one a buffer."),
    (buffered([1.5], [0.1]), "decays must be in [0, 1]. Found 1.5"),
    (buffered([0.5], [math.inf]), "scales must be at most 1e+30 in size. Found inf"),
    # validation.event_trees
    (compose(Composed([1.0])), "event must be a DpEvent. Found 1.0"),
    (
        compose(Composed([Gaussian(1.0)] * 300_000)),
        "event must hold at most 300000 events",
    ),
    (compose(LOOP), "event must be nested at most 200 deep"),
    (
        compose(sampled_again_and_again()),
        " times one within another. Found a ",
    ),
    # wpm.checks
    (
        lambda: fields.number_array("cost", [[1], [1, 2]]),
        "Found rows of unequal lengths.",
    ),
    (
        lambda: fields.number_array("cost", ["a"]),
        "cost must be an array of real numbers.",
    ),
    (lambda: checks.cost([1.0]), "cost must be a matrix with a row for each input"),
    (lambda: checks.cost([[-1.0]]), "cost must be non-negative and finite. Found -1"),
    (lambda: checks.order(0), "order must be at least 1 and finite. Found 0."),
    (
        lambda: checks.largest_cost("points", 61.0, 1000.0),
        "points must be such that the largest cost is 0, or from 1e-200 to 1e+200. "
        "Found a distance of up to 61, to the order 1000; take another unit, or a "
        "smaller order.",
    ),
    (
        lambda: checks.cost(np.full((2, 2), 1e-300)),
        "cost must be such that the largest cost is 0, or from 1e-200 to 1e+200. "
        "Found a distance of up to 1e-300, to the order 1;",
    ),
    (
        lambda: checks.cost([np.ma.masked_array([1.0, 2.0], [0, 1])]),
        "cost must be an array of real numbers. Found a masked array, whose hidden "
        "entries would count; fill them in.",
    ),
    (
        lambda: checks.points("points", np.zeros((2, 0))),
        "points must be a list of points, one at least. Found shape (2, 0).",
    ),
    (
        lambda: checks.points("points", np.zeros((2, 2, 1))),
        "points must be a list of points, one at least. Found shape (2, 2, 1).",
    ),
    (
        lambda: checks.points("points", [math.inf]),
        "points must be finite. Found inf at index 0.",
    ),
    (
        lambda: checks.amounts("lengths", [0.0], is_positive=True),
        "lengths must be positive and finite. Found 0.0 at index 0.",
    ),
    (
        lambda: checks.edges([(0.5, 1)]),
        "edges must be pairs of integers. Found dtype float64",
    ),
    (
        lambda: checks.edges([0, 1]),
        "edges must be pairs of nodes. Found shape (2,)",
    ),
    (
        lambda: checks.edges([(0, -1)]),
        "connect nodes 0 to 1 at most. Found node -1.",
    ),
    (
        lambda: checks.edges([(0, 1), (1, 10**15)]),
        "edges must number nodes from zero without gaps: 2 connect nodes 0 to 2",
    ),
    (lambda: checks.epsilon(0), "epsilon must be positive and finite. Found 0."),
    (lambda: checks.epsilon(1e-15), "epsilon must be from 1e-12 to 160. Found 1e-15."),
    (lambda: checks.epsilon(200), "epsilon must be from 1e-12 to 160. Found 200."),
    (
        lambda: wpm.WassersteinProjectionMechanism([[0.0]], 1.0, relative_gap=0.0),
        "relative_gap must be in (0, 1). Found 0.0.",
    ),
    (lambda: checks.metric("far"), "metric must be one of euclidean, cityblock, che"),
    (
        lambda: calibration.calibrate(SETTING, 1.5, risk.advantage),
        "target must be positive and at most 1. Found 1.5.",
    ),
    (lambda: checks.base_measure([1.0], 2, 1.0), "base_measure must have an entry"),
    (lambda: checks.base_measure([-1.0], 1, 1.0), "base_measure must be non-negati"),
    (lambda: checks.base_measure([9.0], 1, 1.0), "base_measure must have a sum in"),
    (
        lambda: checks.largest_masses([[1.0]], 1.0),
        "largest_masses must be a list of at most 4096 masses. Found shape (1, 1).",
    ),
    (
        lambda: checks.largest_masses([0.0], 1.0),
        "largest_masses must be positive and finite. Found 0.0 at index 0.",
    ),
    (
        lambda: checks.largest_masses([0.1, 0.2], 1.0),
        "largest_masses must fall. Found one above that before it.",
    ),
    (
        lambda: checks.largest_masses([0.7, 0.7], 1.0),
        "largest_masses must have a sum of at most total_mass, 1. Found 1.4.",
    ),
    # accountants
    (
        lambda: risk.published(mu=1.0, rho=1.0),
        "epsilon must be given, or rho or mu in its place. Found rho and mu.",
    ),
    (
        lambda: risk.published(mu=1.0, delta=0.1),
        "delta must be left out with mu. Found 0.1.",
    ),
    (
        lambda: risk.largest_rho(501.0, 1e-5),
        "epsilon must be at most 500, above which nothing is promised. Found 501.0.",
    ),
    (lambda: risk.largest_mu(1.0, 1.0), "delta must be in (0, 1). Found 1.0."),
    (
        lambda: risk.published(mu=-1.0),
        "mu must be non-negative and finite. Found -1.0.",
    ),
    (
        lambda: risk.gaussian_regret(ext.PLDAccountant(), -1.0),
        "mu must be non-negative. Found -1.0.",
    ),
    (
        lambda: ext.PLDAccountant().get_gdp_parameter_estimate([0.9]),
        "false_positive_rates must have one in (0, 1/2]. Found none.",
    ),
    (
        lambda: ext.PLDAccountant().get_gdp_parameter_bounds(
            least_false_positive_rate=0.9
        ),
        "least_false_positive_rate must be in [1e-200, 0.5]. Found 0.9.",
    ),
    (
        lambda: ext.PLDAccountant().explain(1.0),
        "target_delta must be in (0, 1). Found 1.0.",
    ),
    (
        lambda: ext.RdpAccountant().get_epsilon(-1.0),
        "target_delta must be in [0, 1]. Found -1.",
    ),
    (
        lambda: ext.RdpAccountant().get_delta(-1.0),
        "target_epsilon must be non-negative. Found -1.0.",
    ),
    (lambda: ext.RdpAccountant([0.5]), "orders must be at least 1. Found 0.5."),
    (
        lambda: ext.RdpAccountant([]),
        "orders must hold at least one order. Found none",
    ),
]


@pytest.fixture(scope="module")
def messages():
    found = []
    for provoke, _ in CASES:
        with pytest.raises((TypeError, ValueError)) as error:
            provoke()
        found.append(str(error.value))
    return found


def test_each_is_one_line_of_field_value_and_remedy(messages):
    for message, (_, expected) in zip(messages, CASES, strict=True):
        assert expected in message
        named = r"[a-z_]+('s \w+| out of \w+| and \w+)?( times \w+|,[\w ']+,)? must "
        assert re.match(named, message), message
        assert re.search(r"Found |CSV file", message), message
        assert "\n" not in message and message.endswith((".", "…")), message


EDGE = [
    "validation/fields.py",
    "validation/event_trees.py",
    "correlated/strategies.py",
    "accountants/risk.py",
    "accountants/budget.py",
    "accountants/noise_search.py",
    "correlated/sampling/sampling_certificate.py",
    "studies/training_run.py",
    "studies/calibration.py",
    "studies/canaries.py",
    "studies/curves.py",
    "studies/sweep.py",
    "wpm/checks.py",
    "accountants/pld_accountant.py",
    "accountants/rdp_accountant.py",
]


def templates(path):
    """The longest constant part of what is said by each raise of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
            continue
        name = getattr(node.exc.func, "id", "")
        if name in ("TypeError", "ValueError") and node.exc.args:
            parts = [
                part.value
                for part in ast.walk(node.exc.args[0])
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            if parts:
                yield max(parts, key=len)


@pytest.mark.parametrize("name", EDGE)
def test_every_message_of_the_edge_is_here(name, messages):
    found = list(templates(PACKAGE / name))
    assert found
    missing = [
        part for part in found if not any(part.strip() in each for each in messages)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("event", "accountant", "remedy"),
    [
        (Unknown(), ext.PLDAccountant, "`PLDAccountant.register` takes one"),
        (Unknown(), ext.RdpAccountant, "`PLDAccountant.register` takes one"),
        (
            ext.GroupSubsampledEvent(2, ext.GroupSubsampledEvent(2, Gaussian(1.0))),
            ext.PLDAccountant,
            "`GroupSubsampledEvent`",
        ),
    ],
)
def test_refusals_name_what_would_work(event, accountant, remedy):
    with pytest.raises(Unsupported) as error:
        accountant().compose(event)
    assert type(event).__name__ in str(error.value)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)
