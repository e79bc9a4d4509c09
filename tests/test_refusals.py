"""What means nothing is refused by public functions, in words that name it.

Each row is what a message says, as a pattern, and a call that is refused so. The form
of messages, and that none is left out, is tested in `test_messages.py`.
"""

import math

import dp_accounting
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest
from scipy import sparse

import dp_accounting_ext as ext
from dp_accounting_ext import budget
from dp_accounting_ext import pld
from dp_accounting_ext import risk
from dp_accounting_ext import wpm
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows

NAN, INF = math.nan, math.inf
PLD = privacy_loss_distribution.PrivacyLossDistribution
NOISY = dp_accounting.GaussianDpEvent(1.0)
OPTIMISTIC = PLD(pld_pmf.SparsePLDPmf({0: 1.0}, 0.1, 0.0, False))
NOISE = batch_mechanisms.Noise(1.0)
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


def pair(ratios, masses):
    arrays = np.array(ratios), np.array(masses)
    return dominating_pair.DominatingPair(*arrays, 0.0, 0.0, Bound.UPPER)


def of_outputs(p, q, error=0.0):
    return output_pairs.of_probabilities(p, q, Bound.UPPER, error=error)


def parts(*removed, base=STEPS, **fields):
    return batches.on_batches(base, [batches.Coupled(*removed, **fields)])


def laws(first, distances):
    return batches.on_batch_laws(STEPS, first, SECOND, distances)


def sparse_pld(losses, interval=0.1, infinity=0.0):
    pmf = pld_pmf.SparsePLDPmf(losses, interval, infinity, True)
    return pld.poisson_subsample(PLD(pmf), 0.3)


def dense_pld(masses, start=0):
    pmf = pld_pmf.DensePLDPmf(0.1, start, masses, 0.0, True)
    return pld.random_allocation(PLD(pmf), 1, 10)


def both_sides():
    pmfs = (pld_pmf.SparsePLDPmf({0: 1.0}, 0.1, 0.0, side) for side in (True, False))
    return pld.poisson_subsample(PLD(*pmfs), 0.3)


def train(**fields):
    return training_run.TrainingRun(1.0, **fields)


def grows(accountant):
    return 1 / risk.advantage(accountant)[1]


def noise_for(measure, target, event=dp_accounting.GaussianDpEvent):
    """Neither search takes more than the widenings from 1 to 1e9."""
    asked = []

    def noisy(noise):
        asked.append(noise)
        assert len(asked) <= 25
        return event(noise)

    return budget.calibrate(noisy if callable(event) else event, measure, target)


def graph(edges, lengths):
    return wpm.GraphCost.from_edges(edges, lengths)


def project(**options):
    return wpm.project([0.5, 0.5], COST, np.full(3, 1 / 3), 1.0, **options)


def regularized(strength, **options):
    return wpm.from_points(PLACES, 1.0, regularization=strength, **options)


def learnt(users):
    return wpm.learn_base_measure(Points(PLACES), 1.0, users)


def linear(measure):
    return wpm.from_points(PLACES, 1.0, base_measure=measure, linear=True)


def composed(event):
    return ext.PLDAccountant().compose(event)


def draws(*fields):
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return ext.PLDAccountant(relation).compose(wpm.PrivateSamplingEvent(*fields))


def users(masses):
    return private_rows.read("mu", masses, 2)


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
    ("one shape", lambda: of_outputs([[1.0]], [[1.0]])),
    ("p must hold probab.* Found nan", lambda: of_outputs([NAN, 0.5], [0.5, 0.5])),
    ("q must hold probab.* Found 1.5", lambda: of_outputs([0.5, 0.5], [1.5, -0.5])),
    ("q must hold probab.* Found -0.5", lambda: of_outputs([0.5, 0.5], [0.5, -0.5])),
    ("p must sum to at most 1. Found 1.4", lambda: of_outputs([0.7, 0.7], [0.5, 0.5])),
    ("error must be in .* Found nan", lambda: of_outputs([0.5] * 2, [0.5] * 2, NAN)),
    ("error must be in .* Found 0.1", lambda: of_outputs([0.5] * 2, [0.5] * 2, 0.1)),
    # Laws of batches.
    ("parts must sum to 1. Found 0", lambda: batches.on_batches(NOISE, [])),
    ("parts must sum to 1. Found 0.5", lambda: parts(probability=0.5)),
    ("parts must be in .0, 1.. Found", lambda: parts(probability=NAN)),
    ("weights of distances must sum", lambda: parts(((1.0, 0.5),))),
    ("at least 0. Found", lambda: parts(((-1.0, 1.0),))),
    ("must be finite", lambda: parts(((INF, 1.0),))),
    ("must be integers", lambda: parts(((0.5, 1.0),), base=STEPS)),
    ("first must sum to 1. Found 0.9", lambda: laws((0.5, 0.4, 0.0), APART)),
    ("first must be in .0, 1.. Found", lambda: laws((0.5, 1.0, -0.5), APART)),
    ("weights of first must be in", lambda: laws((NAN, 0.5, 0.0), APART)),
    (r"a .3, 3. matrix.* Found the shape .2, 3.", lambda: laws(FIRST, APART[:2])),
    ("at least 0. Found -1", lambda: laws(FIRST, lambda x, y: -1.0)),
    ("must be finite.* Found inf", lambda: laws(FIRST, lambda x, y: INF)),
    ("must be finite.* Found nan", lambda: laws(FIRST, lambda x, y: NAN)),
    ("0.0 from 0 to 1, and 1.0 back", lambda: laws(FIRST, lambda x, y: max(x - y, 0))),
    ("from itself must be 0. Found 2.0", lambda: laws(FIRST, lambda x, y: 2.0)),
    ("must be integers.* Found 0.5", lambda: laws(FIRST, lambda x, y: 0.5 * (x != y))),
    ("128 classes at most. Found 999", lambda: laws((1 / 999,) * 999, APART)),
    # Distributions of dp_accounting.
    ("losses.*Found inf", lambda: sparse_pld({INF: 0.5})),
    ("losses.*Found nan", lambda: sparse_pld({NAN: 0.5})),
    ("losses.*Found 1.5", lambda: sparse_pld({1.5: 0.5})),
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
    ("must be pessimistic", lambda: composed(ext.PLDEvent(OPTIMISTIC))),
    ("PrivacyLossDistribution. Found int", lambda: composed(ext.PLDEvent(5))),
    ("orders must be above 1", lambda: pld.renyi_divergence_bounds(NOISY, [])),
    ("orders must be above 1", lambda: pld.renyi_divergence_bounds(NOISY, [1.0])),
    ("orders must be above 1", lambda: pld.renyi_divergence_bounds(NOISY, [2, 0.5])),
    # Runs of training, and the least noise of one.
    ("sampling_rate must be a number", lambda: train(sampling_rate=NAN)),
    ("sampling_rate must be a probab", lambda: train(sampling_rate=1.5)),
    (
        "steps_per_epoch must be left",
        lambda: train(sampling_rate=0.1, steps_per_epoch=1),
    ),
    ("batches_per_record must", lambda: train(sampling_rate=0.1, batches_per_record=2)),
    ("num_steps must be at least 1", lambda: train(sampling_rate=0.1, num_steps=0)),
    ("num_steps must be an integer", lambda: train(sampling_rate=0.1, num_steps=2e3)),
    (
        "num_steps must be at most",
        lambda: train(sampling_rate=0.1, num_steps=2 * 10**9),
    ),
    (
        "where dataset_size and batch_size are",
        lambda: train(**SIZES, sampling_rate=1.0),
    ),
    ("target .* 1e.09, the most that is", lambda: noise_for(risk.advantage, 0.0)),
    ("target must be such as a noise", lambda: noise_for(risk.advantage, -1.0)),
    ("the most that is tried.* is reached", lambda: noise_for(risk.advantage, 1e-12)),
    ("target must be such as noise is n", lambda: noise_for(risk.advantage, 1.0)),
    ("measure must decrease", lambda: noise_for(grows, 0.5)),
    ("measure must decrease", lambda: noise_for(grows, 9.0)),
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
    ("connected. Found 2", lambda: wpm.GraphCost(sparse.csr_matrix((2, 2)))),
    ("a metric.*Found a", lambda: DenseCost(COST).between_inputs(0)),
    ("a metric.*Found a", lambda: Points(PLACES, metric="cosine").between_inputs(0)),
    ("trace must have the dimension", lambda: wpm.counts_at([[0, 0]], [[1, 1, 2]])),
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
    (r"gap must be in \(0, 1\)", lambda: Projection(COST, 1.0, relative_gap=1)),
    (r"gap must be in \(0, 1\)", lambda: project(relative_gap=0)),
    (r"gap must be in \(0, 1\)", lambda: project(relative_gap=2.0)),
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
    ("mu must be an array", lambda: users(sparse.csr_matrix([[1j, 0]]))),
    ("mu must be an array of real", lambda: users(np.array([True, False]))),
    ("a masked array", lambda: users(np.ma.masked_array([1.0, 0.0], [0, 1]))),
    (r"mu must sum to less than 2\^53", lambda: users(BEYOND)),
    ("draws must be integers", lambda: AVERAGE([0.5], EXACT)),
    ("draws must be integers", lambda: AVERAGE([], EXACT)),
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
]


@pytest.mark.parametrize(("message", "call"), ROWS)
def test_what_means_nothing_is_refused(message, call):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
