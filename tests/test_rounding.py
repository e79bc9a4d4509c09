"""The table of roundings: what of each allowance is used, against exact arithmetic.

Each row of the tables in docs/rounding.md names a test, mostly one of these. A measure
yields errors that were found, each over what is allowed. The largest must be below the
share that is known to be used, and no less than a tenth of that: so a test fails if its
allowance becomes ten times as small.
"""

import ast
import bisect
from fractions import Fraction
import functools
import itertools
import math
import operator
import pathlib
import re
from unittest import mock

import dp_accounting
import mpmath
from mpmath import mpf
import numpy as np
import pytest
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext import mechanisms
from dp_accounting_ext.amplification import counts
from dp_accounting_ext.amplification import group_counts
from dp_accounting_ext.amplification import group_scores
from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.amplification import two_out_of_t
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated import schedules
from dp_accounting_ext.correlated import strategies
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import chain_steps
from dp_accounting_ext.correlated.chains import filtered_bins
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import projected
from dp_accounting_ext.correlated.sampling import bets
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import lattice_sums
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.kernel import tilted_sums
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.pairs import sampled_members
from dp_accounting_ext.pairs import shifts
from dp_accounting_ext.renyi import shifted_noise
from dp_accounting_ext.studies import canaries

Axis = atom_laws.Axis
Law = atom_laws.Law
REMOVE = Direction.REMOVE
ROOT = pathlib.Path(__file__).parent.parent
U = Fraction(1, 2**53)
ACCURACY = accuracy.Accuracy.of_level(0, accuracy.CELLS)
RNG = functools.partial(np.random.default_rng, 7)


def off(found, truth):
    """The relative error of a float, against a fraction or a number of mpmath."""
    if isinstance(truth, Fraction):
        return float(abs(Fraction(float(found)) - truth) / truth)
    return float(abs(mpf(float(found)) / truth - 1))


def off_centre(low, high, truth):
    """How far the middle of a bracket is from the truth, over half of its width."""
    low, high = mpf(float(low)), mpf(float(high))
    return float(abs(high + low - 2 * truth) / (high - low))


def normal_mass(low, high, mean=0.0, deviation=1.0):
    """Between two ends, from the nearer tail."""
    first, last = ((mpf(end) - mpf(mean)) / mpf(deviation) for end in (low, high))
    if first > 0:
        first, last = -last, -first
    return mpmath.ncdf(last) - mpmath.ncdf(first)


def gaussian_cells():
    tail = 1e-30
    for shift in (0.1, 1.0, 5.0):
        pair = gaussian.dominating_pair_of(1 / shift, Bound.LOWER, tail_mass=tail)
        low, high = special.ndtri(tail), shift - special.ndtri(tail)
        ends = np.linspace(low, high, pair.masses.size + 1).tolist()
        for i in range(0, pair.masses.size, pair.masses.size // 40):
            if ends[i] * ends[i + 1] > 0:
                truth = normal_mass(*ends[i : i + 2])
                yield off(pair.masses[i], truth) / pair.mass_error


def gaussian_ratios():
    """Logarithms of ratios are equally spaced."""
    for shift in (0.1, 1.0, 5.0):
        pair = gaussian.dominating_pair_of(1 / shift, Bound.UPPER, tail_mass=1e-30)
        last = pair.ratios.size - 1
        low, high = (mpmath.log(pair.ratios[end]) for end in (0, -1))
        for i in range(0, last, last // 40):
            truth = mpmath.exp(low + (high - low) * i / last)
            yield off(pair.ratios[i], truth) / pair.ratio_error


def laplace_cells():
    shift = 9.5
    pair = additive_noise.laplace(1 / shift).pair(Bound.LOWER, ACCURACY)
    ends = np.linspace(0.0, shift, pair.masses.size - 1)
    for i in range(1, pair.masses.size - 1, 97):
        low, high = map(mpf, ends[i - 1 : i + 1].tolist())
        truth = -mpmath.expm1(low - high) * mpmath.exp(-low) / 2
        yield off(pair.masses[i], truth) / pair.mass_error


def discrete_laplace():
    for parameter, sensitivity in ((0.7, 1), (0.7, 900), (689.9, 1), (1e-9, 3)):
        noise = discrete_outputs.DiscreteLaplace(parameter, sensitivity)
        pair = noise.pair(Bound.UPPER, ACCURACY)
        a = mpf(parameter)
        for x, ratio in enumerate(pair.ratios.tolist()):
            ends = 1 - mpmath.exp(-a) if x in (0, sensitivity) else 1
            mass = mpmath.tanh(a / 2) * mpmath.exp(-a * x) / ends
            truth = mpmath.exp(a * (2 * x - sensitivity))
            yield off(ratio, truth) / pair.ratio_error
            yield off(pair.masses[x], mass) / pair.mass_error


def few_outcomes():
    for number, buckets in ((0.1, 3), (0.37, 7), (0.999, 1000), (1 / 3, 13)):
        response = discrete_outputs.RandomizedResponse(number, buckets, True)
        pair = response.pair(Bound.UPPER, ACCURACY)
        other = Fraction(number) / buckets
        truth = 1 - Fraction(number) + other
        found = max(off(pair.masses[-1], other), off(pair.masses[0], truth))
        yield found / discrete_outputs.FEW_ERROR


def nested_weights():
    """Sixteen samples one within another; and numbers of members."""
    for rate in np.linspace(0.05, 0.999, 100).tolist():
        event = mechanisms.Gaussian(1.0)
        for _ in range(16):
            event = subsampled.on_poisson_sample(rate, event)
        exact = Fraction(rate) ** 16
        for (_, weight), truth in zip(event.p, (1 - exact, exact), strict=True):
            yield off(weight, truth) / shifts.weight_error(event.p)


def pair_to_law():
    generator = RNG()
    for size in (1.0, 30.0, 300.0):
        ratios = np.exp(np.sort(generator.uniform(-size, size, 40)))
        masses = np.minimum(1 / ratios, 1.0) / 100
        pair = dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, Bound.LOWER)
        law = law_sums.of_pair(pair, Axis.LOSS)
        for i in range(40):
            truth = mpmath.log(mpf(ratios[i]))
            yield float(abs(law.values[i] - truth)) / law.law.ratio_error


def lattice_shares():
    for bound in Bound:
        for width in (2.0**-9, 0.25, 2.0):
            values = np.sort(RNG().uniform(-9.0, 9.0, 30))
            rows = np.ones((1 if bound is Bound.UPPER else 2, values.size))
            atoms = atom_laws.Atoms(Law(Axis.LOSS, bound), values, rows)
            _, masses = atom_laws.on_nodes(atoms, np.full(values.size, width))
            for i, value in enumerate(values.tolist()):
                above = mpf(value) / width - mpmath.floor(mpf(value) / width)
                if bound is Bound.UPPER:
                    truth = mpmath.expm1(-width * above) / mpmath.expm1(-width)
                    found = masses[0, values.size + i]
                else:
                    moved = mpmath.nint(mpf(value) / width) * width - value
                    truth, found = mpmath.exp(moved), masses[1, i]
                yield off(found, truth) / float(lattice_sums._SHARE * U)


def split_atoms():
    """Of an upper pair, some of which meet."""
    ratios = np.exp(np.sort(RNG().uniform(-9.0, 0.0, 200)))
    masses = RNG().random(200) / 200
    rest = [1 - float(each.sum()) for each in (ratios * masses, masses)]
    many = dominating_pair.DominatingPair(ratios, masses, *rest, Bound.UPPER)
    for most in (5, 40, 150):
        few = chained_pairs.reduced(many, most)
        nodes, truth = few.ratios.tolist(), [Fraction(0)] * few.ratios.size
        for ratio, mass in zip(ratios.tolist(), masses.tolist(), strict=True):
            place = min(bisect.bisect(nodes, ratio) - 1, len(nodes) - 2)
            low, high = Fraction(nodes[place]), Fraction(nodes[place + 1])
            share = (Fraction(ratio) - low) / (high - low) if high > low else 0
            truth[place] += Fraction(mass) * (1 - share)
            truth[place + 1] += Fraction(mass) * share
        for mass, exact in zip(few.masses.tolist(), truth, strict=True):
            if exact:
                yield off(mass, exact) / few.mass_error


def merged_atoms():
    """Of a lower pair: a hundred in each of ten cells, and one at either end."""
    losses = np.add.outer(np.arange(10.0), RNG().uniform(0.2, 0.8, 100))
    ratios = np.exp(np.sort(np.append(losses, [0.0, 10.0])))
    masses = np.minimum(1 / ratios, 1.0) / 2000
    many = dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, Bound.LOWER)
    few = chained_pairs.reduced(many, 11)
    cells = np.append(0, np.repeat(np.arange(11), [100] * 10 + [1]))
    for cell in range(11):
        q = [Fraction(mass) for mass in masses[cells == cell].tolist()]
        z = [Fraction(ratio) for ratio in ratios[cells == cell].tolist()]
        p = sum(map(operator.mul, z, q))
        yield off(few.masses[cell], sum(q)) / few.mass_error
        yield off(few.ratios[cell], p / sum(q)) / few.ratio_error


def law_of(masses):
    rows = np.array([masses])
    return lattice_law.LatticeLaw(
        Law(Axis.LOSS, Bound.UPPER),
        step=1.0,
        accuracy=accuracy.Accuracy(0.0),
        pieces={0: (0, rows)},
        centre=0,
        reach=1 << 12,
    )


def sums_on_a_lattice():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        x, y = (generator.random(4) / 4 for _ in range(2))
        total = law_of(x).plus(law_of(y))
        ((_, masses),) = total.pieces.values()
        exact = np.convolve(*([Fraction(v) for v in each.tolist()] for each in (x, y)))
        for found, truth in zip(masses[0], exact, strict=True):
            yield off(found, truth) / total.law.mass_error


def sums_of_atoms():
    """Values that are nearly one: as far as they are apart."""
    for units in (90, 100, 110, 120):
        near = 1.0 + units * 2.0**-53
        one, other = (
            atom_laws.Atoms(
                Law(Axis.LOSS, Bound.UPPER), np.array(values), np.full((1, 2), 0.4)
            )
            for values in ([0.0, 1.0], [0.0, near])
        )
        found = law_sums.sum_of(
            [(lambda one=one: one, 1), (lambda other=other: other, 1)],
            Bound.UPPER,
            accuracy.Accuracy(0.0),
        )
        furthest = float(np.abs(found.values - near).min())
        yield furthest / found.law.ratio_error


def both_profiles(losses, masses):
    return [
        profile.Profile.of(losses, masses, 0.0, bound, 0.0, 0.0)
        for bound in (Bound.LOWER, Bound.UPPER)
    ]


def readings_of_delta():
    generator = RNG()
    for _ in range(20):
        losses, masses = np.sort(generator.uniform(1, 9, 3)), generator.random(3) / 9
        profiles = both_profiles(losses, masses)
        for epsilon in (losses[0] - 0.3, (losses[0] + losses[1]) / 2):
            truth = mpmath.fsum(
                mpf(m) * -mpmath.expm1(mpf(epsilon) - mpf(loss))
                for loss, m in zip(losses.tolist(), masses.tolist(), strict=True)
                if loss > epsilon
            )
            found = (each.deltas(np.array([epsilon]))[0] for each in profiles)
            yield off_centre(*found, truth)


def readings_of_epsilon():
    for loss in (0.7, 9.0, 123.0):
        losses, masses = np.array([loss]), np.array([0.3])
        goal = 0.1
        truth = mpf(loss) + mpmath.log1p(-mpf(goal) / mpf(0.3))
        profiles = both_profiles(losses, masses)
        found = (each.epsilons(np.array([goal]))[0] for each in profiles)
        yield off_centre(*found, truth)


def poisson_samples():
    ratios = np.exp(np.linspace(-5.0, 5.0, 101))
    masses = np.minimum(1 / ratios, 1.0) / 101
    pair = dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, Bound.LOWER)
    for rate in (0.1, 1 / 3, 0.77):
        found = poisson_subsampling.poisson_subsample(pair, rate)
        exact = Fraction(rate)
        for ratio, z in zip(found.ratios.tolist(), ratios.tolist(), strict=True):
            truth = 1 - exact + exact * Fraction(z)
            yield off(ratio, truth) / found.ratio_error


def normal_masses():
    places = 0.0, 0.7
    for low, high in ((-8.0, 9.0), (-30.0, 36.0)):
        cells = gaussian.NormalCells.of(places, low, high)
        for shift, masses in zip(places, cells.masses, strict=True):
            for i in [*range(0, masses.size, 97), masses.size - 1]:
                truth = normal_mass(*cells.ends[i : i + 2].tolist(), shift)
                yield off(masses[i], truth) / cells.mass_error


def boxes_of_projections():
    """Of the sides of boxes: narrow and wide, near and far."""
    means = np.array([0.0, 0.7])
    for ends in (np.linspace(-9.0, 9.7, 75), np.linspace(-9.0, 10.0, 14)):
        masses, error = projected.normal_masses(ends, means)
        for shift, row in zip(means.tolist(), masses, strict=True):
            cells = itertools.pairwise(ends.tolist())
            for mass, cell in zip(row, cells, strict=True):
                yield off(mass, normal_mass(*cell, shift)) / error


def cells_of_filters():
    """Of states that are near to the mean, and to the ends of what is told apart."""
    states = np.linspace(-3.0, 6.0, 60)
    function = filtered_bins.Statistic(states, 0.8, np.zeros(60, int), 2)
    means = np.array([-2.4, 0.3, 4.7])
    masses, error = filtered_bins._masses(function, means, 0.6)
    ends = [-mpmath.inf, *((states[1:] + states[:-1]) / 2).tolist(), mpmath.inf]
    for mean, row in zip(means.tolist(), masses, strict=True):
        for mass, cell in zip(row.tolist(), itertools.pairwise(ends), strict=True):
            yield off(mass, normal_mass(*cell, mean, 0.6)) / error


def profile_values():
    for seed in range(30):
        generator = np.random.default_rng(seed)
        ratios, masses = np.sort(generator.random(4) * 9), generator.random(4)
        place = float(generator.random())
        found = profile_pairs.values_at(np.array([place]), ratios, masses, 0.0)[0]
        truth = sum(
            Fraction(m) * max(Fraction(z) - Fraction(place), Fraction(0))
            for z, m in zip(ratios.tolist(), masses.tolist(), strict=True)
        )
        _, factor = dominating_pair.allowance(Bound.UPPER, 4, 0.0, 0.0)
        yield off(found, truth) / (factor - 1)


def scores_of_steps():
    for rate in (0.003, 0.3, 0.98):
        for ratio in (0.0, 0.37, 0.999, 1.01, 3.3, 1e8):
            (score,), _, (variance,) = step_laws.scores(np.array([ratio]), rate)
            mixed = 1 - mpf(rate) + mpf(rate) * ratio
            truth, chance = mpmath.log(mixed), mpf(rate) * ratio / mixed
            allowed = step_laws.error_of_score(float(abs(truth)))
            yield float(abs(score - truth) / allowed)
            if ratio:
                allowed = 16 * float(U)
                yield off(variance, chance * (1 - chance)) / allowed


def spectra():
    """Where a plane has no mass there is what was added, and the transforms' error."""
    for seed in range(8):
        generator = np.random.default_rng(seed)
        rows, columns = generator.integers(0, 3, (2, 9))
        masses = generator.random(9)
        factor = tilted_sums.Factor(rows, columns, masses / masses.sum(), 3)
        found = tilted_sums.TiltedSum([factor], 0.0, (64, 32)).masses(
            np.ones(1), 0, height=1
        )
        empty = found[20:]
        added = np.median(empty)
        yield float((empty.max() - added) / added)


def counted_members():
    steps = replaced_allocation.Steps(0.8, 0.05, 20)
    places = np.linspace(-6.0, 9.0, 40)
    terms, allowed = group_counts.counted(places, steps, 2.0)
    for place, value in zip(places.tolist(), terms.losses.tolist(), strict=True):
        s, y, rate = mpf(0.8), mpf(place), mpf(2.0) * mpf(0.05)
        total = mpmath.fsum(
            rate**n * mpmath.exp(n * s * y - (n * s) ** 2 / 2) / mpmath.factorial(n)
            for n in range(60)
        )
        truth = mpmath.log(total) - rate
        yield float(abs(value - truth)) / allowed


def numbers_of_members():
    """Of none to 64 members in a step, of a chance that is rounded."""
    for members, count in ((9, 7), (16, 113), (64, 93)):
        chance = Fraction(members, count)
        for number in range(members + 1):
            found = group_scores._power(members * (1 / count), number)
            truth = chance**number / math.factorial(number)
            allowed = (32 + 4 * members) * float(U)
            yield off(found, truth) / allowed


def probabilities_of_numbers():
    for selected, steps, rate in ((3, 100, 0.05), (40, 100, 0.4), (900, 2000, 0.3)):
        value, error = step_laws.log_binomial(selected, steps, rate)
        truth = mpmath.log(math.comb(steps, selected)) + selected * mpmath.log(rate)
        truth += (steps - selected) * mpmath.log1p(-mpf(rate))
        yield float(abs(value - truth)) / error


def bessel():
    for v in np.geomspace(0.8, 300.0, 60).tolist():
        (found,) = counts.log_reciprocal(np.array([v]))
        truth = mpf(v) - mpmath.log(mpmath.besseli(0, v))
        allowed = counts._BESSEL_ERROR * float(U)
        yield float(abs(found - truth)) / allowed


def gram_matrices():
    for bins, epochs in ((1, 4), (3, 5), (7, 2)):
        steps = bins * epochs
        column = RNG().random(steps)
        strategy = strategies.Strategy(tuple(column.tolist()))
        found, error = strategy.gram(bins, epochs)
        exact = [Fraction(c) for c in column.tolist()]
        moved = [
            [
                sum(exact[s - i] for i in range(b, steps, bins) if i <= s)
                for s in range(steps)
            ]
            for b in range(bins)
        ]
        for i in range(bins):
            for j in range(bins):
                truth = sum(a * b for a, b in zip(moved[i], moved[j], strict=True))
                yield off(found[i, j], truth) / error


def moves_of_chains():
    """Of the widest cells of either rule, whose quadrature errs the most."""

    def call(strike):
        return mpmath.npdf(strike) - strike * mpmath.ncdf(-strike)

    for cell in (markov_chain.LARGEST_CELL, chain_steps.NARROW_CELL):
        count = round(10 / cell)
        states = np.arange(-float(count), count + 1) * cell
        found = chain_steps.hats(states, np.zeros(1), 1.0, raised=False)[0]
        for target in range(1, 2 * count, 3):
            here, width = mpf(float(states[target])), mpf(cell)
            truth = call(here - width) - 2 * call(here) + call(here + width)
            yield off(found[target], truth / width) / chain_steps.QUADRATURE_ERROR


def largest_losses():
    for rate, shift in ((1e-9, 1e-3), (0.3, 0.7), (0.9, 30.0), (1e-30, 1e3)):
        p = ((0.0, 1 - rate), (shift, rate))
        with mpmath.workdps(60):
            truth = mpmath.log1p(mpf(rate) * mpmath.expm1(mpf(shift)))
        noise = additive_noise.LaplaceMixture(p, shifts.UNSHIFTED)
        found = noise.claims().loss / mechanisms.interface.LOSS_ROUNDED_UP
        allowed = mechanisms.interface.LOSS_ROUNDED_UP - 1
        yield off(found, truth) / allowed


def half_a_piece():
    for width in (2.0**-9, 0.3, 5.0):
        law = law_of(np.ones(1))
        _, masses = lattice_law.halved((1, np.ones((1, 1))), width, law.law)
        low, high = mpmath.expm1(width), mpmath.expm1(-width)
        truth = low / (low - high), -high / (low - high)
        shares = sorted(masses[0][masses[0] > 0].tolist(), reverse=True)
        for found, exact in zip(shares, truth, strict=True):
            yield off(found, exact) / float(lattice_law._HALVING * U)


def some_pair(seed):
    generator = np.random.default_rng(seed)
    ratios = np.sort(np.exp(generator.normal(0.0, 1.0, 5)))
    masses = generator.random(5)
    masses /= masses.sum()
    ratios /= (ratios * masses).sum()
    return dominating_pair.DominatingPair(ratios, masses, 0.0, 0.0, Bound.UPPER)


def mixtures():
    pairs, weights = [some_pair(seed) for seed in range(2)], (0.3, 0.7)
    found = dominating_pair.mixture(pairs, weights)
    exact = {
        z: Fraction(weight) * Fraction(q)
        for pair, weight in zip(pairs, weights, strict=True)
        for z, q in zip(pair.ratios.tolist(), pair.masses.tolist(), strict=True)
    }
    each = zip(found.ratios.tolist(), found.masses.tolist(), strict=True)
    for z, q in each:
        yield off(q, exact[z]) / found.mass_error


def chains():
    """Ratios are products, but the lower half, which takes Q's masses above one."""
    for seed in range(40):
        first, second = some_pair(seed), some_pair(seed + 100)
        found = chained_pairs.chain_one_way(first, second)
        products = np.multiply.outer(first.ratios, second.ratios).ravel()
        for ratio in found.ratios[np.cumsum(found.masses) > 0.75].tolist():
            near = int(np.argmin(np.abs(products - ratio)))
            i, j = divmod(near, second.ratios.size)
            truth = Fraction(first.ratios[i]) * Fraction(second.ratios[j])
            yield off(ratio, truth) / found.ratio_error


def terms_for_replaced_records():
    """Terms are raised by what they may err by: what that is off by."""
    shift, kappa = 1.3, 1.7
    noise = gaussian.NormalCells.of((0.0, -shift, shift), -6.0, 8.0)
    law = replaced_allocation._atoms(noise, shift, kappa, 1.0, Bound.UPPER)
    for end, value in list(zip(noise.ends.tolist(), law.values.tolist(), strict=True)):
        exponent = mpf(shift) * mpf(end)
        old = mpmath.exp(exponent - mpf(shift) ** 2 / 2) / mpf(kappa)
        new = mpmath.exp(-exponent - mpf(shift) ** 2 / 2)
        units = 24 + 4 * (abs(exponent) + shift**2)
        allowed = units * float(U) * (old + new)
        yield float(abs(value - (old - new) - allowed) / allowed)


def weights_of_batches():
    for members, size in ((40, 10**6), (900, 3000)):
        law = sampled_members.with_replacement(members, size, 5000)
        total = math.fsum(weight for _, weight in law)
        mean = math.fsum(number * weight for number, weight in law)
        yield abs(total - 1) / batches.WEIGHT_ERROR
        yield abs(mean * size / members / 5000 - 1) / batches.WEIGHT_ERROR


def two_of_t():
    """Splits keep the masses of both laws."""
    coin = np.array([0.6, 1.4]), np.array([0.5, 0.5])
    pair = dominating_pair.DominatingPair(*coin, 0.0, 0.0, Bound.UPPER)
    found = two_out_of_t.two_out_of_t(pair, 13, tail_mass=1e-30)
    p = abs(math.fsum(found.p_masses) + found.infinity_mass - 1)
    q = abs(math.fsum(found.masses) + found.zero_mass - 1)
    yield q / found.mass_error
    yield p / (found.mass_error + found.ratio_error)


def ratios_of_chains():
    grids = markov_chain.Grids(
        chain=chain_fits.Chain(2.89, 1.0, 0.5, (1.0,)),
        scale=1.7,
        states=np.linspace(-7.0, 9.0, 81),
        factors=np.ones(1),
        probabilities=np.ones(1),
        lost_factor=0.0,
        factor_error=0.0,
        places=np.arange(3.0),
    )
    for state, ratio in zip(grids.states.tolist(), grids.ratios.tolist(), strict=True):
        truth = mpmath.exp(mpf(1.7) * mpf(state) - mpf(1.7) ** 2 / 2)
        yield off(ratio, truth) / grids.place_error


RESPONSE = dp_accounting.dp_event.RandomizedResponseDpEvent(0.37, 2)
REPLACED = {"neighboring_relation": dp_accounting.NeighboringRelation.REPLACE_ONE}


def divergences_of_pairs():
    for order in (1.5, 4.0, 60.0):
        bounds = ext.pld.renyi_divergence_bounds(RESPONSE, [order], **REPLACED)
        other, order_ = mpf(0.37) / 2, mpf(order)
        truth = (1 - other) ** order_ * other ** (1 - order_)
        truth += other**order_ * (1 - other) ** (1 - order_)
        truth = mpmath.log(truth) / (order_ - 1)
        yield off_centre(*(each[0] for each in bounds), truth)


def divergences_of_shifts():
    p = shifted_noise.mixture(((0.0, 0.7), (1.0, 0.3)))
    (found,) = shifted_noise.rdp([2.0], p, shifted_noise.mixture(((0.0, 1.0),)))
    a, b = mpf(0.7), mpf(0.3)
    truth = mpmath.log(a**2 + 2 * a * b + b**2 * mpmath.e)
    # Raised by what it may err by: what that is off by.
    yield float(abs(mpf(found) / truth - 1 - mpf(10) ** -11)) * 1e11


def shifts_of_projections():
    """Lowered by what they may err by: what that is off by."""
    gram = RNG().random((6, 6)) + 1
    gram = gram + gram.T
    found = projected._shifts(gram, np.ones(6), error=0.0)
    exact = [[Fraction(x) for x in row] for row in gram.tolist()]
    means = [sum(row) for row in exact]
    allowed = (4 * 6 + 16) * float(U)
    total = sum(means)
    for shift, mean in zip(found.tolist(), means, strict=True):
        truth = mpf(mean.numerator) / mean.denominator
        truth /= mpmath.sqrt(mpf(total.numerator) / total.denominator)
        yield float(abs(mpf(shift) / truth - 1 + allowed)) / allowed


def counts_of_steps():
    """Steps one apart: a binomial law."""
    steps, rate = 90, Fraction(0.37)
    schedule = schedules.MinSep(steps, float(rate), 1, warm_start=False)
    found, _ = schedule.numbers(steps)
    allowed = 8 * (steps + 1 + found.size) * float(U)
    for n, mass in enumerate(found.tolist()):
        truth = math.comb(steps, n) * rate**n * (1 - rate) ** (steps - n)
        yield off(mass, truth) / allowed


def logs_of_capitals():
    """Lowered by what they may err by: what that is off by."""
    gains = RNG().uniform(-0.5, 0.5, 20_000)
    truth = mpmath.fsum(mpmath.log1p(mpf(0.25) * g) for g in gains.tolist())
    found = bets._capital(gains, 0.25)
    yield float(abs(mpf(found) - truth + mpf(10) ** -6)) * 1e6


def masses_of_stock_distributions():
    """Lowered by what they may err by: what that is off by."""
    found = ext.pld.from_event(
        RESPONSE,
        value_discretization_interval=0.01,
        pessimistic_estimate=False,
        **REPLACED,
    )
    masses = found._pmf_remove._loss_probs.values()
    yield abs(1 - math.fsum(masses) - 1e-12) * 1e12


def sums_of_canaries():
    """Tails of binomial laws, over the mass where they begin."""
    for n, k in [(1, 1), (3, 2), (5, 1), (2, 6)]:
        slopes = np.exp(np.random.default_rng(n + k).uniform(-2, 2, 99))
        for slope, found in zip(
            slopes, canaries._series(1 / slopes, n, k), strict=True
        ):
            term = truth = mpf(1)
            for j in range(n):
                term *= mpf(n - j) / (k + 1 + j) / mpf(slope)
                truth += term
            yield float(abs(found / truth - 1)) / (8 * (n + k + 8) * 2.0**-53)


def tails_of_canaries():
    """The least probability that is excluded, if nothing is lowered."""
    rng = RNG()

    def is_excluded(probability, game):
        tail, above, m = probability, 0, game.canaries
        begins, slopes, costs = zip(*game._pieces, strict=True)
        for i in range(game.guesses - 1, -1, -1):
            right = ((i + 1) * tail + above) / m
            place = bisect.bisect_right(begins, right) - 1
            above += tail
            wrong = slopes[place] * right - costs[place]
            tail = (m * wrong + above) / (game.guesses - i)
        return tail > 1

    for guesses in [1, 2, 3, 4] * 4:
        slopes = np.exp(rng.uniform(0.1, 2, 3))
        game = canaries._Game(slopes, rng.random(3) / 9, 9, guesses, "both", 0.5)
        with mock.patch.multiple(canaries, _DOWN=1.0, _UP=1.0):
            low, high = 1e-9, 1.0
            while math.nextafter(low, 1.0) < high:
                middle = (low + high) / 2
                is_high = game._excludes(guesses, middle)
                low, high = (low, middle) if is_high else (middle, high)
        low, high = mpf(high) * (1 - mpf(2) ** -44), mpf(high) * (1 + mpf(2) ** -44)
        assert is_excluded(high, game) and not is_excluded(low, game)
        found = (low + high) / 2
        for _ in range(40):
            middle = (low + high) / 2
            is_high = is_excluded(middle, game)
            low, high = (low, middle) if is_high else (middle, high)
        yield float(abs(found / high - 1)) / (3 * guesses * 2.0**-49)


# The share of what is allowed that is used at most: some two or three times what the
# measure finds here, so that other processors and libraries may differ a little.
USED = {
    gaussian_cells: 0.4,
    gaussian_ratios: 1.0,
    laplace_cells: 0.006,
    discrete_laplace: 0.03,
    few_outcomes: 0.08,
    nested_weights: 0.2,
    pair_to_law: 0.6,
    lattice_shares: 0.16,
    half_a_piece: 0.6,
    sums_on_a_lattice: 0.16,
    sums_of_atoms: 1.0,
    readings_of_delta: 0.05,
    readings_of_epsilon: 0.09,
    poisson_samples: 0.9,
    mixtures: 0.6,
    split_atoms: 0.3,
    merged_atoms: 0.1,
    chains: 0.9,
    normal_masses: 0.15,
    boxes_of_projections: 0.15,
    cells_of_filters: 0.03,
    weights_of_batches: 6e-5,
    profile_values: 0.25,
    scores_of_steps: 0.35,
    spectra: 2e-3,
    counted_members: 0.012,
    numbers_of_members: 0.3,
    probabilities_of_numbers: 0.035,
    bessel: 0.16,
    two_of_t: 2e-3,
    gram_matrices: 0.07,
    moves_of_chains: 2e-2,
    ratios_of_chains: 0.17,
    divergences_of_pairs: 1.5e-3,
    largest_losses: 0.035,
    counts_of_steps: 0.012,
    sums_of_canaries: 0.05,
    tails_of_canaries: 0.12,
}

# What is moved to its side by the allowance itself: how far it is from that, over it.
MOVED = (
    terms_for_replaced_records,
    divergences_of_shifts,
    shifts_of_projections,
    logs_of_capitals,
    masses_of_stock_distributions,
)


@pytest.mark.parametrize("measure", MOVED, ids=lambda measure: measure.__name__)
def test_what_is_moved_by_its_allowance(measure):
    with mpmath.workdps(60):
        # Of a tenth of it nine tenths would be missing.
        assert max(measure()) <= 0.5


@pytest.mark.parametrize("measure", USED, ids=lambda measure: measure.__name__)
def test_a_tenth_of_an_allowance_would_not_do(measure):
    with mpmath.workdps(60):
        used = max(measure())
    assert used <= USED[measure]
    # Of a tenth, ten times as much is used: the line above would tell.
    assert used > USED[measure] / 10


def rows():
    """The rows of the page's tables of steps, as lists of cells."""
    text = (ROOT / "docs" / "rounding.md").read_text()
    tables = text.split("\n\n|step|allowed|measured by|\n")[1:]
    lines = [
        line for table in tables for line in table.split("\n\n")[0].splitlines()[1:]
    ]
    return [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]


def is_known(name):
    if "::" not in name:
        return name in {measure.__name__ for measure in (*USED, *MOVED)}
    file, test = name.split("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return any(getattr(node, "name", "") == test for node in tree.body)


def test_each_row_names_the_tests_that_hold_it():
    assert len(rows()) > 40
    named = set()
    for step, _, tests in rows():
        names = re.findall(r"`([^`]+)`", tests)
        assert names, f"{step} must name a test."
        assert all(map(is_known, names)), f"{step} names {names}."
        named |= set(names)
    assert {measure.__name__ for measure in (*USED, *MOVED)} <= named
