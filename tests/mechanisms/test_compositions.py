"""What is put together is taken apart again, and nothing is lost on the way."""

import collections
from fractions import Fraction
import itertools

from hypothesis import given
from hypothesis import strategies as st
import mechanism_laws
import mpmath
import oracles
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Composed = compositions.Composed
Gaussian = additive_noise.Gaussian
LEAVES = [
    Gaussian(1.0),
    Gaussian(3.7),
    additive_noise.laplace(2.0),
    discrete_outputs.RandomizedResponse(0.5, 4, True),
    allocated.RandomAllocation(Gaussian(2.0), 1, 7),
    allocated.RandomAllocation(additive_noise.laplace(1.0), 2, 7),
]

counts = st.integers(1, 9)
mechanisms = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.dictionaries(inner, counts, max_size=3).map(
        lambda items: Composed(tuple(items.items()))
    ),
    max_leaves=6,
)
several = st.dictionaries(mechanisms, counts, max_size=4)


def runs(given_counts):
    """Returns the runs of each leaf, from the definition."""
    found = collections.Counter()
    for part, count in given_counts.items():
        if isinstance(part, Composed):
            for inner, number in runs(dict(part.items)).items():
                found[inner] += count * number
        else:
            found[part] += count
    return {part: number for part, number in found.items() if number}


@given(several)
def test_what_is_unpacked_are_the_runs(parts):
    found = compositions.unpacked(parts)
    assert found == runs(parts)
    assert compositions.unpacked(found) == found


@given(several)
def test_composing_and_unpacking_are_inverses(parts):
    whole = compositions.compose(parts)
    assert compositions.unpacked({whole: 1}) == runs(parts)
    assert compositions.compose(compositions.unpacked({whole: 1})) == whole
    assert compositions.compose({whole: 1}) == whole


@given(several, st.sampled_from(list(Bound)))
def test_flattening_loses_nothing_but_the_number_of_gaussians(parts, bound):
    flat = compositions.flatten(parts, bound)
    whole = compositions.compose(parts)
    assert compositions.flatten(flat, bound) == flat
    assert compositions.flatten({whole: 1}, bound) == flat
    for part in flat:
        assert part.parts(bound) == {part: 1}
    assert sum(isinstance(part, Gaussian) for part in flat) <= max(
        1, sum(n == 1 for p, n in runs(parts).items() if isinstance(p, Gaussian))
    )


def precision_of(parts):
    """Σ n / σ², exactly."""
    return sum(
        (n / Fraction(part.noise_multiplier) ** 2 for part, n in parts.items()),
        Fraction(0),
    )


gaussians = st.dictionaries(
    st.floats(1e-3, 1e3).map(Gaussian), st.integers(1, 10**9), min_size=1, max_size=4
)


@given(gaussians)
def test_gaussians_become_one_rounded_to_the_side_of_the_bound(parts):
    exact = precision_of(parts)
    for bound in Bound:
        flat = compositions.flatten(parts, bound)
        found = precision_of(flat)
        assert sum(flat.values()) == 1
        assert found >= exact if bound is Bound.UPPER else found <= exact
        assert abs(found / exact - 1) <= 1e-14


def test_one_gaussian_stays_as_it_is():
    parts = {Gaussian(0.3): 1, LEAVES[2]: 4}
    for bound in Bound:
        assert compositions.flatten(parts, bound) == parts


def test_parts_are_of_the_bound_that_is_asked_for():
    """Blocks compose to an upper bound of several steps, and to no lower one."""
    several_steps = LEAVES[5]
    assert compositions.flatten({several_steps: 3}, Bound.LOWER) == {several_steps: 3}
    blocks = compositions.flatten({several_steps: 3}, Bound.UPPER, other=True)
    assert sorted(part.num_steps for part in blocks) == [3, 4]
    assert sum(blocks.values()) == 3 * 2


def test_nothing_and_one():
    assert compositions.compose({}) == compositions.NO_OP
    assert compositions.compose({compositions.NO_OP: 5}) == compositions.NO_OP
    assert compositions.compose({LEAVES[0]: 1, compositions.NO_OP: 5}) == LEAVES[0]
    assert compositions.unpacked({compositions.NO_OP: 5}) == {}
    assert compositions.NO_OP.largest_loss() == 0
    mechanism_laws.assert_laws(compositions.NO_OP)


@given(several)
def test_what_has_no_privacy_is_all_that_counts(parts):
    revealed = known_bounds.NonPrivate()
    assert compositions.compose({**parts, revealed: 1}) == revealed
    assert compositions.compose({Composed(((revealed, 2),)): 1, **parts}) == revealed


@given(st.dictionaries(st.sampled_from(LEAVES[:4]), counts, max_size=4))
def test_what_is_said_of_a_composition_adds_up(parts):
    whole = Composed(tuple(parts.items()))
    for said in ("largest_loss", "gaussian_precision"):
        values = [n * getattr(part, said)() for part, n in parts.items()]
        assert getattr(whole, said)() == pytest.approx(sum(values), rel=1e-12)
    assert whole.is_symmetric() == all(part.is_symmetric() for part in parts)


@pytest.mark.parametrize(
    "items",
    [
        ((LEAVES[2], 3), (LEAVES[3], 2)),
        ((LEAVES[0], 2), (Composed(((LEAVES[1], 3),)), 2)),
        ((Composed(((LEAVES[4], 2), (LEAVES[2], 1))), 2),),
    ],
)
def test_laws(items):
    mechanism_laws.assert_laws(Composed(items))


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.1, 2.5])
def test_two_responses_by_enumeration(epsilon):
    """All outputs of two responses to the first question, and of one to another."""
    responses = [(0.5, 2, 2), (0.75, 3, 1)]
    laws = []
    with mpmath.workdps(40):
        for noise, buckets, count in responses:
            other = mpmath.mpf(noise) / buckets
            truth = 1 - mpmath.mpf(noise) + other
            p = [truth, *[other] * (buckets - 1)]
            q = [other, truth, *[other] * (buckets - 2)]
            laws += [(p, q)] * count
        p, q = (
            [mpmath.fprod(way) for way in itertools.product(*(law[i] for law in laws))]
            for i in (0, 1)
        )
        truth = oracles.discrete_deltas(p, q, epsilon)["remove"]
    mechanism = Composed(
        tuple(
            (discrete_outputs.RandomizedResponse(noise, buckets, True), count)
            for noise, buckets, count in responses
        )
    )
    for direction in Direction:
        low, high = mechanism_laws.bounds_of(mechanism, epsilon, direction)
        assert low <= truth <= high
        assert high <= low * 1.01 + 1e-9
