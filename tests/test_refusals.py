"""What means nothing is refused by public functions, in words that name it.

Each row is what a message says, as a pattern, and a call that is refused so. Every
message is one line that names the field, says what it must be, and what was found. The
last test but one asks the source: a message without a row here fails it.
"""

import ast
import functools
import math
import pathlib
import re

import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest
from scipy import sparse

import dp_accounting_ext as ext
from dp_accounting_ext import budget
from dp_accounting_ext import pld
from dp_accounting_ext import risk
from dp_accounting_ext import verify
from dp_accounting_ext import wpm
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.sampling import sampling_certificate
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import canaries
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import curves
from dp_accounting_ext.studies import statement
from dp_accounting_ext.studies import sweep
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows

PACKAGE = pathlib.Path(ext.__file__).parent
NAN, INF = math.nan, math.inf
PLD = privacy_loss_distribution.PrivacyLossDistribution
OPTIMISTIC = PLD(pld_pmf.SparsePLDPmf({0: 1.0}, 0.1, 0.0, False))
# Only whole steps between batches mean anything.
STEPS = batch_mechanisms.NeighboringBatches(discrete_outputs.DiscreteLaplace(0.7, 1))
FIRST, SECOND = (0.5, 0.5, 0.0), (0.5, 0.0, 0.5)
APART = ((0, 1, 1), (1, 0, 1), (1, 1, 0))
SIZES = {"dataset_size": 9, "batch_size": 3}
DEGREES = {"metric": "haversine"}
Sphere, Points, DenseCost = wpm.SphereMechanism, wpm.PointCost, costs.DenseCost
Projection, AVERAGE = wpm.WassersteinProjectionMechanism, wpm.average_of_draws
COST, PLACES = np.ones((2, 3)), np.random.default_rng(2).random((6, 2))
EXACT = wpm.from_points(PLACES, 2.0)
LINEAR = wpm.from_points(PLACES, 2.0, linear=True)
HALF, FULL = [0, 0.5, 0.5, 0, 0, 0], np.full(6, np.exp(0.5) / 6)
BEYOND = sparse.coo_matrix(
    (np.array([2**63, 2**63, 1], "uint64"), ([0, 0, 0], [1, 1, 0])), shape=(1, 2)
)
Gaussian, Composed = stock.GaussianDpEvent, stock.ComposedDpEvent
STEP, NOTHING = Gaussian(1.0), ext.PLDAccountant()
REVEALING = stock.NonPrivateDpEvent()
SAMPLED = stock.PoissonSampledDpEvent(0.1, STEP)
TRUNCATED = stock.TruncatedSubsampledGaussianDpEvent(99, 0.1, 12, 1.0)
ALLOCATED_NO_OP = ext.RandomAllocationEvent(stock.NoOpDpEvent(), 1, 10)
ADD_OR_REMOVE, REPLACE, _ = dp_accounting.NeighboringRelation
REPLACING = ext.PLDAccountant(REPLACE)


def pair(ratios, masses):
    arrays = np.array(ratios), np.array(masses)
    return dominating_pair.DominatingPair(*arrays, 0.0, 0.0, Bound.UPPER)


def of_outputs(p, q, error=0.0):
    return output_pairs.of_probabilities(p, q, Bound.UPPER, error=error)


def parts(*removed, base=STEPS, **fields):
    return batches.on_batches(base, [batches.Coupled(*removed, **fields)])


def laws(first, distances, base=STEPS):
    return batches.on_batch_laws(base, first, SECOND, distances)


def sparse_pld(losses, interval=0.1, infinity=0.0):
    pmf = pld_pmf.SparsePLDPmf(losses, interval, infinity, True)
    return pld.poisson_subsample(PLD(pmf), 0.3)


def dense_pld(masses, start=0):
    pmf = pld_pmf.DensePLDPmf(0.1, start, masses, 0.0, True)
    return pld.random_allocation(PLD(pmf), 1, 10)


def both_sides():
    pmfs = (pld_pmf.SparsePLDPmf({0: 1.0}, 0.1, 0.0, side) for side in (True, False))
    return pld.poisson_subsample(PLD(*pmfs), 0.3)


def grows(accountant):
    return 1 / risk.advantage(accountant)[1]


def noise_for(measure, target, event=Gaussian):
    """Neither search takes more than the widenings from 1 to 1e9."""
    asked = []

    def noisy(noise):
        asked.append(noise)
        assert len(asked) <= 25
        return event(noise)

    return budget.calibrate(noisy if callable(event) else event, measure, target)


def graph(edges, lengths):
    return wpm.GraphCost.from_edges(edges, lengths)


def public(trace):
    return wpm.check_public_trace(PLACES, trace)


def project(**options):
    return wpm.project([0.5, 0.5], COST, np.full(3, 1 / 3), 1.0, **options)


def regularized(strength, **options):
    return wpm.from_points(PLACES, 1.0, regularization=strength, **options)


def learnt(users):
    return wpm.learn_base_measure(Points(PLACES), 1.0, users)


def linear(measure):
    return wpm.from_points(PLACES, 1.0, base_measure=measure, linear=True)


def draws(*fields):
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return ext.PLDAccountant(relation).compose(wpm.PrivateSamplingEvent(*fields))


def users(masses):
    return private_rows.read("mu", masses, 2)


def told_direction(event):
    ext.PLDAccountant().compose(event).get_delta_bounds(1.0, direction="add")


def gdp_parameter(least):
    ask = NOTHING.get_gdp_parameter_bounds
    return lambda: ask(least_false_positive_rate=least)


def published(mu):
    return lambda: risk.published(mu=mu)


def split_group(num_removed):
    return ext.GroupSubsampledEvent(3, SAMPLED, num_removed)


def schedule(num_selected, events):
    return ext.ScheduledAllocationEvent(events, [2, 2], 6, num_selected)


def register(event_type, construction):
    ext.PLDAccountant.register(event_type, construction)


def opinion(**changes):
    asked = {"accountant": NOTHING, "target_delta": 1e-6, **changes}
    verify.verify_epsilon(**asked)


def compose(event, accountant=ext.PLDAccountant):
    return lambda: accountant().compose(event)


def run(**changes):
    return lambda: training_run.TrainingRun(**{"steps_per_epoch": 10, **changes})


def rated(**changes):
    return run(**{"steps_per_epoch": None, "sampling_rate": 0.1, **changes})


def correlated(strategy):
    return run(noise_multiplier=1.0, strategy=strategy)()


def of_strategy(**changes):
    return lambda: run(noise_multiplier=1.0, strategy="1,0.5", **changes)().event


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


GROUP = ext.GroupSubsampledEvent(2, Gaussian(9.0))
MATRIX = ext.MatrixAllocationEvent((1.0, 0.5), 3.0, 4, 1)
LOOP = Composed([])
LOOP.events.append(LOOP)
SETTING = training_run.TrainingRun(None, 10, 1, 1, 1e-6)
TEN_STEPS = {"steps_per_epoch": 10, "delta": 1e-6}

ROWS = [
    # Pairs and laws of outputs. Of the first an ε of 2e-13 was answered, for 19.459.
    ("ratios must be increasing. Found 1e-09", lambda: pair([7e8, 1e-9], [1e-9, 0.3])),
    ("ratios must be positive .* Found nan", lambda: pair([0.5, NAN], [0.5, 0.5])),
    ("ratios must be positive .* Found -0.5", lambda: pair([-0.5, 2.0], [0.5, 0.5])),
    ("ratios must be positive .* Found inf", lambda: pair([0.5, INF], [0.5, 0.5])),
    ("masses must be finite .* Found nan", lambda: pair([0.5, 2.0], [0.5, NAN])),
    ("masses must be finite .* Found -0.1", lambda: pair([0.5, 2.0], [0.5, -0.1])),
    (r"have one shape.*\(2,\) and \(1,\)", lambda: pair([0.5, 2.0], [0.5])),
    (r"one shape.*\(2,\) and \(1,\)", lambda: of_outputs([0.5, 0.5], [1.0])),
    ("p must hold probab.* Found nan", lambda: of_outputs([NAN, 0.5], [0.5, 0.5])),
    ("q must hold probab.* Found 1.5", lambda: of_outputs([0.5, 0.5], [1.5, -0.5])),
    ("q must hold probab.* Found -0.5", lambda: of_outputs([0.5, 0.5], [0.5, -0.5])),
    ("p must sum to at most 1. Found 1.4", lambda: of_outputs([0.7, 0.7], [0.5, 0.5])),
    ("error must be in .* Found nan", lambda: of_outputs([0.5] * 2, [0.5] * 2, NAN)),
    ("error must be in .* Found 0.1", lambda: of_outputs([0.5] * 2, [0.5] * 2, 0.1)),
    # Laws of batches.
    ("parts must sum to 1. Found 0.5", lambda: parts(probability=0.5)),
    ("parts must be in .0, 1.. Found", lambda: parts(probability=NAN)),
    ("weights of distances must sum", lambda: parts(((1.0, 0.5),))),
    ("at least 0. Found", lambda: parts(((-1.0, 1.0),))),
    ("must be finite", lambda: parts(((INF, 1.0),))),
    ("must be integers", lambda: parts(((0.5, 1.0),), base=STEPS)),
    ("base must be a mechanism on batches", lambda: laws(FIRST, APART, base=None)),
    ("noise_multiplier must be non-neg.*-1", lambda: batch_mechanisms.Noise(-1.0)),
    ("noise_multiplier must be.* Found nan", lambda: batch_mechanisms.Noise(NAN)),
    ("noise_parameter must be in .0, 1.", lambda: batch_mechanisms.Answer(2.0)),
    ("distances must be from 0 to 1e.60", lambda: laws(FIRST, np.full((3, 3), 1e300))),
    ("distances must be real numbers, in rows", lambda: laws(FIRST, [[0, 1], [1]])),
    ("weights of first must be a real number", lambda: laws((0.5, 0.5j, 0.0), APART)),
    ("first must sum to 1. Found 0.9", lambda: laws((0.5, 0.4, 0.0), APART)),
    ("first must be in .0, 1.. Found", lambda: laws((0.5, 1.0, -0.5), APART)),
    ("weights of first must be a number", lambda: laws((NAN, 0.5, 0.0), APART)),
    (r"a .3, 3. matrix.* Found the shape .2, 3.", lambda: laws(FIRST, APART[:2])),
    ("from 0 to 1e.60. Found -1", lambda: laws(FIRST, lambda x, y: -1.0)),
    ("from 0 to 1e.60. Found nan", lambda: laws(FIRST, lambda x, y: NAN)),
    ("0.0 from 0 to 1, and 1.0 back", lambda: laws(FIRST, lambda x, y: max(x - y, 0))),
    ("from itself must be 0. Found 2.0", lambda: laws(FIRST, lambda x, y: 2.0)),
    ("must be integers.* Found 0.5", lambda: laws(FIRST, lambda x, y: 0.5 * (x != y))),
    ("128 classes at most. Found 999", lambda: laws((1 / 999,) * 999, APART)),
    # Distributions of dp_accounting.
    ("losses.*Found nan", lambda: sparse_pld({NAN: 0.5})),
    ("losses.*object", lambda: sparse_pld({10**30: 0.5, 1: 0.5})),
    (r"losses.*2\^53", lambda: sparse_pld({2**62: 0.5})),
    ("losses of", lambda: sparse_pld({"a": 0.5})),
    ("masses of", lambda: sparse_pld({0: None})),
    ("masses of.*complex", lambda: sparse_pld({0: 1j})),
    ("Found a sum of 1.8", lambda: sparse_pld({1: 0.9, 2: 0.9})),
    ("infinity_mass.*'x'", lambda: sparse_pld({0: 1.0}, infinity="x")),
    ("a sum of inf", lambda: sparse_pld({0: 1.0}, infinity=INF)),
    ("interval must be positive", lambda: sparse_pld({0: 1.0}, 0.0)),
    ("interval must be a number", lambda: sparse_pld({0: 1.0}, NAN)),
    ("interval must be at least", lambda: sparse_pld({1: 0.5, 0: 0.5}, 1e-300)),
    ("masses.*2 dimensions", lambda: dense_pld(np.array([[0.5, 0.5]]))),
    ("masses", lambda: dense_pld([[0.5], [0.2, 0.3]])),
    ("losses.*Found 0.5", lambda: dense_pld(np.array([0.5, 0.5]), 0.5)),
    ("losses", lambda: dense_pld(np.array([0.5, 0.5]), 10**30)),
    ("at most 10000000 losses", lambda: dense_pld(np.zeros(10_000_001))),
    ("for each direction. Found None", lambda: pld.poisson_subsample(PLD(None), 0.3)),
    ("from one side", both_sides),
    ("must be pessimistic", compose(ext.PLDEvent(OPTIMISTIC))),
    ("PrivacyLossDistribution. Found int", compose(ext.PLDEvent(5))),
    ("orders must be above 1", lambda: pld.renyi_divergence_bounds(STEP, [])),
    # Runs of training, and the least noise of one.
    ("sampling_rate must be a number", rated(sampling_rate=NAN)),
    ("sampling_rate must be", rated(sampling_rate=1.5)),
    ("steps_per_epoch must be left", rated(steps_per_epoch=1)),
    ("batches_per_record must", rated(batches_per_record=2)),
    ("num_steps must be at least 1", rated(num_steps=0)),
    ("num_steps must be an integer", rated(num_steps=2e3)),
    ("num_steps must be at most", rated(num_steps=2 * 10**9)),
    ("where dataset_size and batch_size are", rated(**SIZES, sampling_rate=1.0)),
    ("target .* 1e.09, the most that is", lambda: noise_for(risk.advantage, 0.0)),
    ("the most that is tried.* is reached", lambda: noise_for(risk.advantage, 1e-12)),
    ("target must be such as noise is n", lambda: noise_for(risk.advantage, 1.0)),
    ("measure must decrease", lambda: noise_for(grows, 0.5)),
    ("measure must be callable. Found 1.0", lambda: noise_for(1.0, 0.5)),
    ("measure must be a real number", lambda: noise_for(lambda _: (1.0,), 0.5)),
    ("make_event must be callable. Found 2", lambda: noise_for(risk.advantage, 1, 2.0)),
    # The sphere.
    ("dimension must be at least 1. Found 0", lambda: wpm.sphere_scale(0, 1.0, 2)),
    ("dimension must be an integer. Found 2", lambda: wpm.sphere_scale(2.5, 1.0, 2)),
    ("order must be at least 1 .* Found 0.5", lambda: wpm.sphere_scale(2, 1.0, 0.5)),
    ("epsilon must be positive .* Found 0.0", lambda: wpm.sphere_scale(2, 0.0, 2)),
    ("dimension must be at least", lambda: Sphere(0, 1.0)),
    ("order must be at", lambda: Sphere(2, 1.0, 0.5)),
    ("from 2 to 1048576. Found 1", lambda: Sphere(2, 1.0, candidates=1)),
    ("such that 64 of at most 1048576 candidates are near", lambda: Sphere(500, 40.0)),
    ("vectors must have 3 coordinates each", lambda: Sphere(2, 1.0).sample([1.0, 0.0])),
    ("have the length 1 within 1e-06", lambda: Sphere(1, 1.0).sample([0.125, 0.5])),
    ("vectors must have the length 1", lambda: Sphere(1, 1.0).sample([NAN, 0.5])),
    ("vectors must be", lambda: Sphere(1, 1.0).sample("a")),
    ("rng must be None", lambda: Sphere(1, 1.0).sample([1.0, 0.0], rng=-1)),
    # Costs.
    (r"\[-90, 90\].* in column 1 of 2", lambda: Points([[91.0, 0.0]], **DEGREES)),
    ("points must have two columns", lambda: Points([[1.0]], **DEGREES)),
    (r"\[-360, 360\].* Found 400 beyond", lambda: Points([[0.0, 400.0]], **DEGREES)),
    ("points must be a list of points", lambda: Points([])),
    ("of one dimension", lambda: Points([[1.0, 2.0]], outputs=[[1.0]])),
    ("metric must be .* Found 'far'", lambda: Points([[1.0, 2.0]], metric="far")),
    ("must have a direct", lambda: Points([[1.0], [0.0]], metric="cosine")),
    ("order must be at least 1", lambda: Points([1.0], order=0.5)),
    ("1e-200 to 1e.200. Found.* inf", lambda: Points([1e308, -1e308])),
    ("points must be .* inf at index 1", lambda: Points([[1.0], [INF]])),
    ("edges must be pairs of integers", lambda: graph([(0.5, 1)], [1])),
    (r"pairs of nodes.*Found shape \(2,\)", lambda: graph([0, 1], [1])),
    ("edges must number nodes.*Found node -1", lambda: graph([(0, -1)], [1])),
    # A matrix of so many nodes would fit no memory.
    ("2 connect nodes 0 to 2 .* 1000000", lambda: graph([(0, 1), (1, 10**15)], [1, 1])),
    ("lengths must be such .* inf", lambda: graph([(0, 1), (1, 2)], [1e308, 1e308])),
    (r"the 1 edges. Found shape \(2,\)", lambda: graph([(0, 1)], [1, 2])),
    ("lengths must be positive .* Found 0.0", lambda: graph([(0, 1)], [0])),
    ("connected. Found 2 pieces", lambda: graph([(0, 1), (2, 3)], [1, 1])),
    ("graph must be a scipy sparse matrix", lambda: wpm.GraphCost(np.eye(2))),
    (r"square.*\(2, 3\)", lambda: wpm.GraphCost(sparse.csr_matrix((2, 3)))),
    ("a metric.*Found a", lambda: DenseCost(COST).between_inputs(0)),
    ("a metric.*Found a", lambda: Points(PLACES, metric="cosine").between_inputs(0)),
    ("trace must have the dimension", lambda: wpm.counts_at([[0, 0]], [[1, 1, 2]])),
    ("public_trace must have the dimension", lambda: public([[1.0, 1.0, 1.0]])),
    ("public_trace must be finite. Found nan at", lambda: public([[NAN, 1.0]])),
    # The Wasserstein mechanism, and others.
    ("cost must be non-neg.*-1.0 in row 0", lambda: Projection([[1, -1.0]], 1.0)),
    (r"cost must be a matrix.*\(2,\)", lambda: Projection([1.0, 2.0], 1.0)),
    ("cost must be an array of real numbers", lambda: Projection([["a"]], 1.0)),
    ("cost must be .* unequal lengths", lambda: Projection([[1], [1, 2]], 1.0)),
    ("epsilon must be positive .* Found 0.0", lambda: Projection(COST, 0.0)),
    ("from 1e-12 to 160. Found 161.0", lambda: Projection(COST, 161.0)),
    ("epsilon must be a real number. Found", lambda: Projection(COST, "1")),
    ("base_measure must be .*Found 'best'", lambda: Projection(COST, 1.0, "best")),
    (r"the 3 outputs. Found shape \(2,\)", lambda: Projection(COST, 1.0, [1, 1])),
    ("and finite. Found -1.0 at", lambda: Projection(COST, 1.0, [1, 1, -1])),
    ("a sum in .* Found 0.3; scale it", lambda: Projection(COST, 1.0, [0.1] * 3)),
    (r"gap must be in \(0, 1\)", lambda: Projection(COST, 1.0, relative_gap=-1)),
    (r"gap must be in \(0, 1\)", lambda: project(relative_gap=0)),
    (r"square.*shape \(2, 3\)", lambda: wpm.KLProjectionMechanism(COST, 1.0)),
    ("regularization must be positive", lambda: regularized(0.0)),
    ("regularization must be at least 0.0015", lambda: regularized(1e-9)),
    ("regularization must be", lambda: regularized("1")),
    ("iterations must be", lambda: regularized(0.05, iterations=0)),
    ("linear must be False with regular", lambda: regularized(0.1, linear=True)),
    ("linear must be a", lambda: wpm.from_points(PLACES, 1.0, linear=1)),
    ("epsilon must be positive.* Found -1.0", lambda: draws(-1.0, 1.0)),
    ("total_mass must be in .* 3; scale it", lambda: draws(1.0, 3.0)),
    ("total_mass must be a real number", lambda: draws(1.0, "1")),
    ("largest_masses must be a list", lambda: draws(1.0, 1.0, 0.5)),
    ("largest_masses must fall", lambda: draws(1.0, 1.0, [0.2, 0.3])),
    ("sum of at most total_mass", lambda: draws(1.0, 1.0, [0.7, 0.7])),
    ("largest_masses must be pos", lambda: draws(1.0, 1.0, [0.0])),
    ("at most 4096 masses", lambda: draws(1.0, 1.0, [1e-9] * 5000)),
    ("distributions must have a row", lambda: learnt(np.zeros((0, 6)))),
    # Users of it, and what is estimated from their draws.
    ("mu must have some mass in each row", lambda: users([0, 0])),
    ("an array of real numbers. Found None", lambda: users(None)),
    ("an array of real numbers. Found a dict", lambda: users({0: 1.0})),
    ("mu must be non-negative", lambda: users([-1, 2])),
    ("mu must sum to less than 2", lambda: users([2**52, 2**52])),
    ("mu must sum to 1", lambda: users(sparse.csr_matrix([[0.5, 0.6]]))),
    (r"of the 2 inputs.*\(1, 1\)", lambda: users(sparse.csr_matrix([[1.0]]))),
    ("mu must be non-neg", lambda: users(sparse.csr_matrix([[NAN, 1.0]]))),
    ("mu must be an array of real", lambda: users(np.array([True, False]))),
    ("a masked array", lambda: users(np.ma.masked_array([1.0, 0.0], [0, 1]))),
    (r"mu must sum to less than 2\^53", lambda: users(BEYOND)),
    ("draws must be integers", lambda: AVERAGE([0.5], EXACT)),
    ("draws must be a list", lambda: AVERAGE([[1]], EXACT)),
    ("of the 6 outputs. Found 6", lambda: AVERAGE([6], EXACT)),
    ("confidence must be in", lambda: AVERAGE([0], EXACT, 1)),
    ("mechanism must be a Wass", lambda: AVERAGE([0], 3)),
    ("cost of a metric", lambda: AVERAGE([0], Projection(np.ones((6, 6)), 1.0))),
    ("regularization None", lambda: AVERAGE([0], regularized(0.1))),
    ("made with linear=True", lambda: wpm.debiased_average([0], EXACT)),
    ("leave room for what", lambda: wpm.debiased_average([0], linear(FULL))),
    ("Found 3, which", lambda: wpm.likeliest_population([1, 3], linear(HALF))),
    ("linear=True", lambda: wpm.likeliest_population([0], EXACT)),
    ("a finite value for each of the 6", lambda: wpm.estimate_mean([0], LINEAR, [1.0])),
    # Checks of `validation.fields`, each met through an event, an accountant or a run.
    ("noise_multiplier must be a number. Found nan", compose(Gaussian(math.nan))),
    ("noise_multiplier must be at most 1.8e308 in", compose(Gaussian(10**400))),
    ("epsilon must", lambda: fields.real_number("epsilon", np.longdouble("1e-4000"))),
    ("noise_multiplier must be 0 or from 1e-60 to", compose(Gaussian(1e99))),
    ("sampling_probability", compose(ext.PLDSubsampleEvent(1e-200, Gaussian(1.0)))),
    ("false_positive_", lambda: ext.PLDAccountant().get_true_positive_rate_bounds("x")),
    ("false_positive_", lambda: ext.PLDAccountant().get_true_positive_rate_bounds(2.0)),
    ("num_selected must be", compose(ext.RandomAllocationEvent(Gaussian(1.0), 5, 3))),
    ("num_steps must be", compose(ext.RandomAllocationEvent(Gaussian(1.0), 1, 10**10))),
    ("group_size must be at most", run(group_size=2**60)),
    ("epochs must be positive and finite. Found -0.5", run(epochs=-0.5)),
    ("at most 1024 for a", compose(ext.GroupSubsampledEvent(9999, SAMPLED))),
    ("at most 16 where members are", compose(ext.GroupSubsampledEvent(17, TRUNCATED))),
    ("events must be a sequence", compose(ext.ScheduledAllocationEvent("x", [1], 2))),
    ("neighboring_relation must be a", lambda: ext.PLDAccountant("ADD")),
    ("value_discretizat", lambda: ext.PLDAccountant(value_discretization_interval=0.0)),
    ("directio", lambda: ext.PLDAccountant().get_epsilon_bounds(1e-6, direction="out")),
    # studies.training_run
    ("noise_multiplier must be positive, from 1e-60 to 1e.", run(noise_multiplier=0.0)),
    ("steps_per_epoch times epochs must be", run(steps_per_epoch=10**6, epochs=10**6)),
    ("delta must be in .0, 1.. Found 1.0", run(delta=1.0)),
    ("dataset_size and batch_size, or sampling_rate or", run(steps_per_epoch=None)),
    ("steps_per_epoch must be left out where", run(dataset_size=10, batch_size=2)),
    ("batch_size must be", run(steps_per_epoch=None, dataset_size=10, batch_size=20)),
    ("epochs must be left out where num_steps is given", run(num_steps=9, epochs=2)),
    ("sampling must be one of random-allocation,", run(sampling="shuffle")),
    ("batches_per_record must be at most", run(batches_per_record=11)),
    ("epochs must be whole .* Found 2.5: round it up to 3", of_strategy(epochs=2.5)),
    ("num_steps must be .* Found 25: round it up to 30", of_strategy(num_steps=25)),
    ("sampling must be another than", lambda: run(sampling="shuffled")().event),
    ("neighboring_relat", lambda: run(sampling="shuffled")().accountant(ADD_OR_REMOVE)),
    ("delta must be", lambda: comparison.compare(training_run.TrainingRun(1.0, 10))),
    ("run must be a TrainingRun. Found 1.0", lambda: statement.claims(1.0)),
    # studies.calibration, studies.curves
    ("epsilon must be positive and", lambda: calibration.calibrate(SETTING, -1.0)),
    ("epsilon must be", lambda: calibration.calibrate(run(delta=1e-15)(), 1e-12)),
    ("epsilons must be finite and not negative", profiles(epsilons=[-1.0])),
    ("num_points must be at least 3 and at most", profiles(num_points=2)),
    ("least_rate must be in", lambda: curves.trade_offs(SETTING, least_rate=0.0)),
    ("max_points must be", lambda: profiles(num_points=3)()[0].table(0)),
    # studies.canaries
    ("scores must be numbers. Found nan at index", audit(scores=[1.0, math.nan])),
    ("scores must be an array of real numbers. Found dtype", audit(scores="x")),
    ("members must be a row, as", audit(members=[1])),
    ("members must be 0 or 1. Found 2", audit(members=[1, 2])),
    ("members must have one for each canary", audit(scores=[], members=[], guesses=1)),
    ("members must be drawn by fair", audit(scores=[0.0] * 30, members=[True] * 30)),
    ("guesses must be at most canaries. Found 3 of", audit(guesses=3)),
    ("guesses must be at least 1. Found 0", audit(guesses=0)),
    ("guesses must be an integer. Found 1.0", audit(guesses=1.0)),
    ("guess must be in or both. Found .out.", audit(guess="out")),
    ("significance must be in .0, 1.. Found 1.0", audit(significance=1.0)),
    ("right must be at most", lambda: canaries.epsilon_lower_bound(3, 2, 9, 1e-5)),
    ("fault must be a PLDAccountant that", lambda: canaries.plan(NOTHING, 1.0, 9)),
    # studies.sweep
    ("columns must have the names", lambda: sweep.check_columns(["noise multiplier"])),
    ("columns must have different names", lambda: sweep.check_columns(["a", "a"])),
    ("sampling must be one of", lambda: sweep.check_columns(["noise_multiplier"])),
    ("columns must have other names than", lambda: sweep.check_columns(["note"])),
    ("columns must be such as results need:", lambda: sweep.check_columns(["fpr"])),
    ("results must be of epsilon, noise, risks,", lambda: sweep.columns_of(["x"])),
    ("delta must be", lambda: sweep.setting_of({"delta": "x", "sampling": "shuffled"})),
    ("ste", lambda: sweep.setting_of({"steps_per_epoch": "x", "sampling": "shuffled"})),
    ("fpr must be in", lambda: sweep.setting_of({"sampling": "shuffled", "fpr": 2})),
    ("write noise_multiplier if", lambda: sweep.check_columns(["sampling", "noise"])),
    ("group_size must be left out w", run(strategy="1,0.5", group_size=2)),
    ("sampling must be balls-in-bins wi", run(strategy="1,0.5", sampling="shuffled")),
    ("strategy must be numbers such as", lambda: correlated("x").event),
    ("strategy must be left out of a st", lambda: statement.claims(correlated("1,2"))),
    (
        "epsilon must be positive and",
        lambda: sweep.bound_row(
            {"epsilon": 0.0, "sampling": "shuffled", **TEN_STEPS}, ["noise"]
        ),
    ),
    ("rows must have a row. Found none", lambda: sweep.sweep_to_file([], "", None)),
    ("rows mus", lambda: sweep.sweep_to_file([{"strategy": 1}, {"name": 1}], "", None)),
    ("rows must have", lambda: sweep.sweep_to_file([{"strategy": "a\nb"}], "", None)),
    ("output must", lambda: sweep.sweep_to_file([{"strategy": "a"}], __file__, None)),
    ("target_epsilon must be a real", lambda: ext.PLDAccountant().get_delta("high")),
    ("target_epsilon must be real", lambda: ext.PLDAccountant().get_delta(["high"])),
    # risk, budget
    ("prior must be in .1e-300, 1.", lambda: risk.membership_success(NOTHING, 0.0)),
    ("baseline must be in .0, 1.", lambda: risk.attack_success(NOTHING, -0.1)),
    ("accountant must be a PLDAccountant that has", lambda: risk.advantage(0.5)),
    ("false_positive_rate must", lambda: risk.positive_predictive_value(NOTHING, 0.0)),
    ("epsilon must be positive and", lambda: budget.RenyiFilter(0.0, 0.1)),
    ("delta must be in .0, 1.. Found 1.0", lambda: budget.GaussianFilter(1.0, 1.0)),
    ("orders must be one or", lambda: budget.RenyiFilter(1.0, 0.1, orders=[1.0])),
    ("epsilon must be larger,", lambda: budget.RenyiFilter(0.1, 1e-6, orders=[2.0])),
    ("no δ of its own", lambda: budget.RenyiFilter(1.0, 0.1).spend(REVEALING)),
    ("event must be that of", lambda: budget.RenyiFilter(1.0, 0.1).spend(GROUP)),
    ("noise_multiplier", lambda: budget.GaussianFilter(1.0, 0.1).spend(Gaussian(0.0))),
    ("epsilon must be", lambda: budget.remaining(NOTHING, Gaussian(1.0), -1.0, 0.1)),
    ("event", lambda: budget.remaining(NOTHING, dp_accounting.NoOpDpEvent(), 1.0, 0.1)),
    # sampling_certificate
    ("event must be a MatrixAllocationEvent, a", certify(Gaussian(1.0))),
    ("sampling_probability", certify(ext.PoissonMatrixEvent((1.0, 0.5), 1.0, 1.0, 9))),
    ("noise_multiplier must", certify(ext.PoissonMatrixEvent((1.0, 0.5), 0.0, 0.5, 9))),
    ("strategy must", certify(ext.PoissonMatrixEvent((1.0,) * 9, 50.0, 0.5, 100))),
    ("num_steps must be", compose(ext.PoissonMatrixEvent((1.0,), 1.0, 0.5, 1 << 18))),
    ("num_steps", compose(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 2, 1024, 129))),
    ("num_selected must", compose(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 9, 8))),
    ("num_selected", certify(ext.SelectedStepsMatrixEvent((1.0, 0.5), 1.0, 2, 12, 2))),
    ("noise_multiplier", certify(ext.SelectedStepsMatrixEvent((1.0, 0.5), 0.0, 2, 12))),
    ("noise_multiplier must be", certify(ext.MatrixAllocationEvent((1.0,), 0.0, 2, 1))),
    ("event must be a", certify(ext.RandomAllocationEvent(Gaussian(0.0), 2, 9))),
    ("num_selected out of", certify(ext.RandomAllocationEvent(Gaussian(1.0), 2, 92))),
    ("seed must be None or a non-negative integer", certify(MATRIX, seed="x")),
    ("delta must be in .0, 1.. Found 0.0", certify(MATRIX, delta=0.0)),
    ("most_seconds must be positive. Found 0.0", certify(MATRIX, most_seconds=0.0)),
    ("gram must be a square matrix. Found shape .2,.", mixture([1.0, 0.5])),
    ("gram must have at most 4096", mixture(np.broadcast_to(1.0, (4097, 4097)))),
    ("gram, products of means over the noise.s variance, must", mixture([[math.nan]])),
    ("gram must have an entry above 0. Found none", mixture(np.zeros((2, 2)))),
    ("gram must be", mixture([[1.0, 0.5], [0.4, 1.0]])),
    # validation.strategies
    ("strategy must have a coefficient at least. Found none", strategy(())),
    ("strategy must begin with a positive", strategy((0.0, 1.0))),
    ("strategy must have no negative coefficient: no theorem", strategy((1.0, -0.5))),
    ("strategy must have each coefficient 0 or from 1e-30", strategy((1.0, 1e-200))),
    ("strategy must have a row for each of the 2 steps, or be", strategy(((1.0,),))),
    ("strategy must have at most 1024 rows, or be", strategy(((1.0,),) * 1025, 1025)),
    ("strategy must be", strategy(((1.0,), (1.0, 2.0)))),
    ("strategy must be lower", strategy(((1.0, 0.5), (0.0, 1.0)))),
    ("strategy must have a positive", strategy(((1.0, 0.0), (1.0, 0.0)))),
    ("num_bins must be at", compose(ext.MatrixAllocationEvent((1.0,), 1.0, 5000, 1))),
    ("num_bins times", compose(ext.MatrixAllocationEvent((1.0,), 1.0, 4096, 33))),
    ("separation must be at most 1024. Found 5000", min_sep(separation=5000)),
    ("num_steps must be at most 131072. Found 262144", min_sep(num_steps=1 << 18)),
    ("warm_start must be a bool. Found 1", min_sep(warm_start=1)),
    ("strategy must have at most as many bands", min_sep(strategy=(1.0, 0.5, 0.5))),
    ("strategy", min_sep(strategy=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.0, 1.0)))),
    ("window must be at most 4096. Found 5000", windowed(window=5000)),
    ("num_cycles must make at most 131072", windowed(num_cycles=20000)),
    ("strategy must be the", windowed(strategy=((1.0, 0.0), (0.5, 1.0)))),
    ("strategy must have at most as many", windowed(strategy=(1.0, 0.5, 0.5, 0.5))),
    ("decays and scales must be as many, one a", buffered([0.5], [0.1, 0.2])),
    ("decays must be in .0, 1.. Found 1.5", buffered([1.5], [0.1])),
    ("scales must be at most 1e.30 in size. Found inf", buffered([0.5], [math.inf])),
    # validation.event_trees
    ("event must be a DpEvent. Found 1.0", compose(Composed([1.0]))),
    ("event must hold at most 300000", compose(Composed([Gaussian(1.0)] * 300_000))),
    ("event must be nested at most 200", compose(LOOP)),
    ("event must sample at most 16 times one", compose(sampled_again_and_again())),
    # accountants
    ("epsilon must be given, or rho or mu", lambda: risk.published(mu=1.0, rho=1.0)),
    ("delta must be left out with", lambda: risk.published(mu=1.0, delta=0.1)),
    ("epsilon must be at most 500, above", lambda: risk.largest_rho(501.0, 1e-5)),
    ("delta must be in .0, 1.. Found 1.0", lambda: risk.largest_mu(1.0, 1.0)),
    ("mu must be non-negative and finite. Found -1.0", lambda: risk.published(mu=-1.0)),
    ("mu must be", lambda: risk.gaussian_regret(ext.PLDAccountant(), -1.0)),
    ("false_positive_r", lambda: ext.PLDAccountant().get_gdp_parameter_estimate([0.9])),
    ("least_false_positive_rate must be in", gdp_parameter(0.9)),
    ("target_delta must be in .0, 1.", lambda: ext.PLDAccountant().explain(1.0)),
    ("target_delta must be in .0, 1.", lambda: ext.RdpAccountant().get_epsilon(-1.0)),
    ("target_epsilon must be", lambda: ext.RdpAccountant().get_delta(-1.0)),
    ("orders must be at least 1. Found 0.5", lambda: ext.RdpAccountant([0.5])),
    ("orders must hold at least one order. Found none", lambda: ext.RdpAccountant([])),
    # Filters and runs that remain, and directions.
    ("RenyiFilter", lambda: budget.GaussianFilter(1.0, 0.1).may_run(SAMPLED)),
    ("single", lambda: budget.RenyiFilter(1.0, 0.1).spend(Composed([STEP, GROUP]))),
    ("noise_mult", lambda: budget.GaussianFilter(1.0, 0.1).spend(Gaussian(NAN))),
    ("event must cost", lambda: budget.remaining(NOTHING, ALLOCATED_NO_OP, 1.0, 0.1)),
    ("direction must", lambda: NOTHING.get_epsilon_bounds(0.1, direction=["remove"])),
    ("for a group of 2 records", lambda: told_direction(GROUP)),
    ("Found 1.0000000000000002", lambda: NOTHING.get_epsilon(np.nextafter(1, 2))),
    (r"target_delta must be in \[0, 1\]", lambda: NOTHING.get_epsilon_bounds(-1e-300)),
    ("target_delta", lambda: ext.RdpAccountant().get_epsilon_and_optimal_order(INF)),
    *((f"mu must be .* Found {mu}", published(mu)) for mu in (INF, 1e-310)),
    ("mu must be .* Found 1e.61", published(1e61)),
    ("a PLDAccountant", lambda: risk.gaussian_regret("accountant", 1.0)),
    # Events, and what registers them.
    ("num_removed must be", compose(split_group(4))),
    ("num_removed must be", compose(split_group(-1))),
    ("num_removed must be", compose(split_group(1.5))),
    ("None for a neighboring", compose(split_group(2), lambda: REPLACING)),
    ("num_selected=1", compose(schedule(2, [Gaussian(0.0), STEP]))),
    *(("num_selected", compose(schedule(n, [STEP, STEP]))) for n in (0, 7, 1.5, "2")),
    ("event_type must be a subclass of DpEvent", lambda: register(int, len)),
    ("construction must be callable. Found 5", lambda: register(Unknown, 5)),
    # A second opinion.
    ("accountant must have ledger.*3", lambda: opinion(accountant=3)),
    ("target_delta must be in.*0.0", lambda: opinion(target_delta=0.0)),
    ("target_delta must be in.*nan", lambda: opinion(target_delta=NAN)),
    ("seconds must be positive.*0.0", lambda: opinion(seconds=0.0)),
    ("seed must be at least 0.*-1", lambda: opinion(seed=-1)),
]
REFUSALS = TypeError, ValueError, privacy_accountant.UnsupportedEventError


@functools.cache
def refusal(row):
    """The error that a row's call raises."""
    with pytest.raises(REFUSALS) as error:
        ROWS[row][1]()
    return error.value


@pytest.mark.parametrize("row", range(len(ROWS)), ids=lambda row: ROWS[row][0])
def test_what_means_nothing_is_refused(row):
    assert re.search(ROWS[row][0], str(refusal(row)))


@pytest.fixture(scope="module")
def messages():
    errors = map(refusal, range(len(ROWS)))
    refused = privacy_accountant.UnsupportedEventError
    return [str(error) for error in errors if not isinstance(error, refused)]


def test_each_is_one_line_of_field_value_and_remedy(messages):
    named = r"[a-z_]+('s \w+| out of \w+| and \w+)?( times \w+|,[\w ']+,)? must "
    part = r"[a-z_]+( of (a )?[a-z_]+)?( from itself| and \w+)? (must|may) "
    for message in messages:
        assert re.match(f"{named}|{part}", message), message
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
    "wpm/base_measures.py",
    "wpm/checks.py",
    "wpm/costs.py",
    "wpm/estimates.py",
    "wpm/mechanism.py",
    "wpm/private_rows.py",
    "wpm/sampling_mechanism.py",
    "wpm/sphere.py",
    "kernel/dominating_pair.py",
    "kernel/output_pairs.py",
    "mechanisms/batches.py",
    "reading/stock_pld.py",
    "accountants/pld.py",
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


def test_every_message_of_the_edge_is_here(messages):
    for name in EDGE:
        found = list(templates(PACKAGE / name))
        assert found, name
        for part in found:
            assert any(part.strip() in each for each in messages), (name, part)


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
    with pytest.raises(privacy_accountant.UnsupportedEventError) as error:
        accountant().compose(event)
    assert type(event).__name__ in str(error.value)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)
