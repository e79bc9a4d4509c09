"""Replaced records and groups under 1 of t: against quadrature, numbers and others."""

import collections
import functools
import itertools
import math

import asked
import dp_accounting
import nights
import numpy as np
import pytest
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import group_counts
from dp_accounting_ext.amplification import group_scores
from dp_accounting_ext.amplification import replaced_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import allocated_replacements as replaced
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import subsampled

Allocation = replaced_allocation.Allocation
Steps = replaced_allocation.Steps
Relation = dp_accounting.NeighboringRelation
Gaussian = dp_accounting.GaussianDpEvent

_TAIL = 1e-20


def _one_step(shift, kappa, constant):
    """Returns E (X − κ X′ + c)₊ for one normal variable, in closed form."""
    root = np.sqrt(constant**2 + 4 * kappa * math.exp(-(shift**2)))
    # The positive root of u² + c u − κ e^{−s²}, whichever form keeps its digits.
    with np.errstate(divide="ignore"):
        u = np.where(
            constant > 0,
            2 * kappa * math.exp(-(shift**2)) / (constant + root),
            (root - constant) / 2,
        )
    y = np.log(u) / shift + shift / 2
    return (
        special.ndtr(shift - y)
        - kappa * special.ndtr(-shift - y)
        + constant * special.ndtr(-y)
    )


def _nodes(number):
    """Returns nodes of the trapezoidal rule, and weights for a normal variable."""
    nodes = np.linspace(-12.0, 12.0, number)
    density = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    return nodes, density * (nodes[1] - nodes[0])


def _profile(allocation, kappa):
    """Returns H_κ of up to three steps, by the trapezoidal rule over all but one."""
    each = [
        (steps.shift, steps.probability)
        for steps in allocation.steps
        for _ in range(steps.count)
    ]
    (shift, chance), *others = each
    nodes, density = _nodes(401 if len(others) == 2 else 20001)
    constant, weight = np.zeros(1), np.ones(1)
    for other, share in others:
        # Weights follow the old record, so that its rare outputs are not missed.
        terms = share * (
            np.exp(other * nodes - other**2 / 2)
            - kappa * np.exp(-other * nodes - other**2 / 2)
        )
        constant = np.add.outer(constant, terms).ravel()
        weight = np.multiply.outer(weight, density).ravel()
    constant = (constant + allocation.null_probability * (1 - kappa)) / chance
    value = chance * float((weight * _one_step(shift, kappa, constant)).sum())
    return value + allocation.infinity_mass


_FEW_STEPS = [
    *nights.at_night(
        Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(2.5, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(1.0, 1 / 3, 3),), 0.0, 0.0),
    ),
    Allocation((Steps(0.7, 0.2, 2), Steps(1.3, 0.35, 1)), 0.25, 0.0),
    Allocation((Steps(1.5, 0.3, 2),), 0.375, 0.025),
    Allocation((Steps(0.8, 0.3, 1),), 0.7, 0.0),
]


@pytest.mark.parametrize("allocation", _FEW_STEPS)
def test_bounds_hold_and_are_near_the_profile_of_few_steps(allocation):
    upper = replaced_allocation.upper_pair(allocation, tail_mass=_TAIL)
    lower = replaced_allocation.lower_pair(allocation, tail_mass=_TAIL)
    for epsilon in (0.0, 0.05, 0.3, 0.9, 1.7, 3.0):
        truth = _profile(allocation, math.exp(epsilon))
        if truth - allocation.infinity_mass < 1e-9:
            continue
        for way in Direction:
            above, below = upper.delta(epsilon, way), lower.delta(epsilon, way)
            assert below <= truth <= above
            assert above - allocation.infinity_mass <= 1.06 * (
                truth - allocation.infinity_mass
            )
            assert below - allocation.infinity_mass >= 0.95 * (
                truth - allocation.infinity_mass
            )
        # Who exchanges the datasets has the profile's reflection.
        swapped = 1 - math.exp(-epsilon) * (1 - truth)
        for way in Direction:
            assert lower.delta(-epsilon, way) <= swapped <= upper.delta(-epsilon, way)


def _two_of_three(shift, rate, kappa):
    """Returns H_κ of 2 of 3 steps on samples, by that rule over all but one."""
    nodes, weights = _nodes(401)
    old, new = (
        1 - rate + rate * np.exp(way * shift * nodes - shift**2 / 2) for way in (1, -1)
    )
    gain, cost = (np.add.outer(each, each).ravel() * rate for each in (old, new))
    both = np.outer(old, old) - kappa * np.outer(new, new)
    constant = both.ravel() + (1 - rate) / rate * (gain - kappa * cost)
    values = gain * _one_step(shift, kappa * cost / gain, constant / gain)
    return float(np.outer(weights, weights).ravel() @ values) / 3


@pytest.mark.parametrize(
    ("sigma", "rate"),
    [(4.0, 1.0), (2.0, 0.01), *nights.at_night((0.4, 1.0), (0.7, 0.2))],
)
def test_bounds_hold_of_two_of_three_steps(sigma, rate):
    step = dp_accounting.PoissonSampledDpEvent(rate, Gaussian(sigma))
    event = ext.RandomAllocationEvent(step if rate < 1 else Gaussian(sigma), 2, 3)
    accountant = ext.PLDAccountant(Relation.REPLACE_ONE).compose(event)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 1.5, 4.0, 9.0):
        truth = _two_of_three(1 / sigma, rate, math.exp(epsilon))
        if truth > 1e-11:
            lower, upper = accountant.get_delta_bounds(epsilon)
            assert lower <= truth <= upper
            assert lower >= 0.5 * truth or epsilon > 1


def _bounds(event):
    accountant = ext.PLDAccountant(Relation.REPLACE_ONE).compose(event)
    return accountant.get_epsilon_bounds(1e-6)


@pytest.mark.nightly
def test_nested_allocations_are_one():
    inner = ext.RandomAllocationEvent(Gaussian(1.0), 1, 3)
    one = _bounds(ext.RandomAllocationEvent(Gaussian(1.0), 1, 6))
    assert _bounds(ext.RandomAllocationEvent(inner, 1, 2)) == pytest.approx(
        one, rel=2e-3
    )


@functools.lru_cache(maxsize=3)  # Tests of one allocation stand side by side.
def _law(allocation, members):
    """Returns ratios of two steps' outputs on a grid, and weights on either axis."""
    each = [
        (steps.shift, steps.probability)
        for steps in allocation.steps
        for _ in range(steps.count)
    ]
    nodes = np.linspace(-12.0, 16.0, 1401)
    density = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi) * (nodes[1] - nodes[0])
    chances = collections.Counter()
    for draws in itertools.product([*range(len(each)), None], repeat=members):
        chance, moved = 1.0, [0.0] * len(each)
        for draw in draws:
            chance *= allocation.null_probability if draw is None else each[draw][1]
            if draw is not None:
                moved[draw] += each[draw][0]
        chances[tuple(moved)] += chance
    moved = np.array([*chances])
    one, other = np.exp(
        moved.T[..., np.newaxis] * (nodes - moved.T[..., np.newaxis] / 2)
    )
    return (one * np.array([*chances.values()])[:, np.newaxis]).T @ other, density


def _profile_of_two(ratio, density, epsilon, direction):
    """Returns δ, by the trapezoidal rule."""
    kappa = math.exp(epsilon)
    if direction is Direction.REMOVE:
        values = np.maximum(ratio - kappa, 0.0)
    else:
        values = np.maximum(1 - kappa * ratio, 0.0)
    return float(density @ values @ density)


def _accountant(steps, members):
    """Returns the accountant of a group under 1 of so many steps."""
    epoch = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(1.0), 1, steps)
    return asked.accountant_of(ext.GroupSubsampledEvent(members, epoch))


@pytest.mark.parametrize(
    ("members", "allocation"),
    [
        (2, Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0)),
        (3, Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0)),
        (3, Allocation((Steps(0.5, 0.2, 2),), 0.6, 0.0)),
        (2, Allocation((Steps(0.6, 0.4, 1), Steps(1.2, 0.3, 1)), 0.3, 0.0)),
        (3, Allocation((Steps(0.6, 0.4, 1), Steps(1.2, 0.3, 1)), 0.3, 0.0)),
        (9, Allocation((Steps(0.2, 0.5, 2),), 0.0, 0.0)),
        (9, Allocation((Steps(0.3, 0.1, 2),), 0.8, 0.0)),
    ],
)
def test_it_is_below_and_near_the_profile_of_two_steps(allocation, members):
    pairs = group_scores.lower_pairs(allocation, members, accuracy.Accuracy(1e-20))
    law = _law(allocation, members)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        for direction in Direction:
            truth = _profile_of_two(*law, epsilon, direction)
            found = pairs.of(direction).delta(epsilon, direction)
            # The rule errs by its kink, with the square of its step.
            assert found <= truth * (1 + 1e-4) + 1e-9
            if epsilon <= 0.3:
                assert found >= 0.6 * truth - 1e-5


@pytest.mark.nightly
def test_importance_samples_of_sixteen_members_agree():
    """δ at 13.85 of 16 members in 1 of 100 steps, σ = 1, but for three standard errors.

    Of 60,000 samples, the noise of each step drawn from N(0, 1) times the square of
    Σ_n (λ/t)^n e^{n y − n²/2} / n! for λ = 16 / 1.5; the ratio is 16! times the
    coefficient of degree 16 of the product over steps of that sum without λ.
    """
    sampled, error = 8.915e-7, 2.1e-8
    low, high = _accountant(100, 16).get_delta_bounds(13.85)
    assert low <= sampled + 3 * error
    assert sampled - 3 * error <= high


def test_lower_bounds_grow_with_the_group_however_large_it_is():
    """Of many members the sum of all outputs tells most, of however little noise."""
    lowers = [
        asked.lower_epsilon(_accountant(100, members), 1e-6)
        for members in (8, 8000, 2**53)
    ]
    assert lowers == sorted(lowers)
    mean = 2**53 / 10
    assert lowers[-1] == pytest.approx(mean**2 / 2, rel=1e-8)


@pytest.mark.parametrize(
    ("allocation", "sizes"),
    [
        (Allocation((Steps(0.5, 0.1, 10),), 0.0, 0.0), [2, 9, 33]),
        # Of noise that is moved so far few members fit floats.
        (Allocation((Steps(8.0, 0.5, 2),), 0.0, 0.0), [2, 8, 9, 17, 33]),
        (Allocation((Steps(0.2, 0.3, 2), Steps(0.5, 0.1, 3)), 0.1, 0.0), [2, 8, 9, 17]),
    ],
)
def test_lower_bounds_never_fall_as_a_group_grows(allocation, sizes):
    pairs = [
        group_scores.lower_pairs(allocation, members, accuracy.Accuracy(1e-22))
        for members in sizes
    ]
    for delta in (1e-3, 1e-6, 1e-12):
        found = [each.remove.epsilon(delta, Direction.REMOVE) for each in pairs]
        assert found == sorted(found)
        assert found[0] > 0


@pytest.mark.parametrize(
    "allocation",
    [
        Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(0.4, 0.3, 2),), 0.4, 0.0),
    ],
)
def test_who_leaves_and_who_joins_is_bounded_at_once(allocation):
    """The worst case moves noise one way under P and the other way under Q."""
    (steps,) = allocation.steps
    step = allocated.allocate(additive_noise.Gaussian(1 / steps.shift), 1, steps.count)
    inner = (
        step
        if not allocation.null_probability
        else subsampled.PoissonSampled(0.6, step)
    )
    for removed, inserted in ((2, 1), (1, 2), (2, 2), (3, 1)):
        bound = replaced.leave_and_join(inner, removed, inserted, allocation)
        pairs = interface.pairs_of(bound, Bound.UPPER, accuracy.Accuracy(1e-20))
        p, density = _law(allocation, removed)
        q, _ = _law(allocation, inserted)
        # The nodes reach further to the right; both laws need the same ones.
        kept = slice(0, 1201)
        p, q, density = p[kept, kept], q[kept, kept][::-1, ::-1], density[kept]
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            kappa = math.exp(epsilon)
            for direction, (one, other) in zip(
                (Direction.REMOVE, Direction.ADD), ((p, q), (q, p)), strict=True
            ):
                truth = float(density @ np.maximum(one - kappa * other, 0) @ density)
                found = pairs.of(direction).delta(epsilon, direction)
                assert found >= truth


@pytest.mark.parametrize("is_rough", [False, True])
@pytest.mark.parametrize("members", [2, 5])
@pytest.mark.parametrize(
    "allocation",
    [
        Allocation((Steps(1.0, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(0.2, 0.5, 2),), 0.0, 0.0),
        Allocation((Steps(2.0, 0.05, 2),), 0.9, 0.0),
    ],
)
def test_upper_bounds_are_above_the_profile_of_two_steps(allocation, members, is_rough):
    # Nothing else is known, so that what is found is the theorems' alone.
    nothing = dominating_pair.trivial_pair(Bound.UPPER)
    pair = group_counts.upper_pair(
        allocation, members, nothing, accuracy.Accuracy(1e-24), is_rough=is_rough
    )
    law = _law(allocation, members)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        truth = _profile_of_two(*law, epsilon, Direction.REMOVE)
        found = pair.delta(epsilon, Direction.REMOVE)
        # The rule errs by its kink, with the square of its step.
        assert found >= truth
        if members == 2 and truth > 1e-4:
            assert found <= (3 if is_rough else 2) * truth


def test_a_pair_that_is_less_stays():
    allocation = Allocation((Steps(0.2, 0.01, 100),), 0.0, 0.0)
    known = dominating_pair.identity_pair(Bound.UPPER)
    found = group_counts.upper_pair(allocation, 4, known, accuracy.Accuracy(1e-20))
    assert found.delta(0.01, Direction.REMOVE) <= 1e-12
