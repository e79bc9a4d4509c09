"""Every bound against an independent referee, on random trees of every event.

LAW_EXAMPLES says how many trees of each kind are judged, as of laws. The referee itself
is tested beside exact fractions.
"""

import dataclasses
import fractions
import itertools
import math

from dp_accounting import dp_event
from dp_accounting import privacy_accountant
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import judge
from lawful import law
from nights import at_night
import own_readings
import pytest
import registered
import tree_strategies

import dp_accounting_ext as ext
from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lattices
from dp_accounting_ext.verify import noises

NeighborRel = privacy_accountant.NeighboringRelation
ADD, REPLACE, SPECIAL = (
    NeighborRel.ADD_OR_REMOVE_ONE,
    NeighborRel.REPLACE_ONE,
    NeighborRel.REPLACE_SPECIAL,
)
SMALL = tree_strategies.SMALL
EXTREME = dataclasses.replace(SMALL, extremes=True)
DISCRETE = dataclasses.replace(SMALL, discrete=True)
SIZES = {"cells": 120, "most": 150}  # Of the referee's channels.
MIXED_SIZES = {"cells": 80, "most": 100}
# Rényi divergences of a high order live far out in the tail.
EDGE_SIZES = {"cells": 80, "most": 100, "rare": 1e-300}
SHALLOW = dataclasses.replace(SMALL, depth=1)
LONGER = dataclasses.replace(SMALL, steps=12, count=12, depth=1, selected=2)
MIXED = dataclasses.replace(SMALL, steps=8, count=6, depth=2, selected=1, given=False)
MIXED_EXTREMES = dataclasses.replace(MIXED, extremes=True)

KINDS = {
    # name: trees, relations.
    "one level": (tree_strategies.sampled_trees(SHALLOW), [ADD, SPECIAL]),
    "sampled trees": (tree_strategies.sampled_trees(SMALL), [ADD, SPECIAL]),
    "discrete trees": (tree_strategies.sampled_trees(DISCRETE), [ADD, SPECIAL]),
    "longer": (tree_strategies.sampled_trees(LONGER), [ADD]),
    "extremes": (tree_strategies.sampled_trees(EXTREME), [ADD]),
    "batches": (tree_strategies.record_trees(SMALL, ADD), [ADD]),
    "batches of any": (tree_strategies.batches_of_any(SMALL), [ADD, REPLACE, SPECIAL]),
    "replaced": (tree_strategies.record_trees(SMALL, REPLACE), [REPLACE]),
    "special": (tree_strategies.record_trees(SMALL, SPECIAL), [SPECIAL]),
    "groups": (tree_strategies.group_trees(SMALL), [ADD]),
    "groups replaced": (
        tree_strategies.group_trees(SMALL, replaced=True),
        [REPLACE, SPECIAL],
    ),
    # Losses from 1e-9 to beyond e^700, counts beside every threshold of the package.
    "edges": (tree_strategies.edge_trees(), [ADD, SPECIAL]),
    "edges of few": (tree_strategies.edge_trees(discrete=True), [ADD]),
    "edges of runs": (tree_strategies.edge_runs(), [ADD, SPECIAL]),
    # Rates, weights and losses down to 1e-100, one of them beside what is ordinary.
    "rare edges": (tree_strategies.beside_rare_parts(), [ADD]),
    # Of both accountants, which may refuse: old events and new ones.
    "mixed": (tree_strategies.mixed_trees(MIXED, ADD), [ADD]),
    "mixed special": (tree_strategies.mixed_trees(MIXED, SPECIAL), [SPECIAL]),
    "mixed replaced": (tree_strategies.mixed_trees(MIXED, REPLACE), [REPLACE]),
    "mixed extremes": (tree_strategies.mixed_trees(MIXED_EXTREMES, ADD), [ADD]),
    "mixed edges": (tree_strategies.edge_trees(given=False), [ADD]),
}

SLOW = "mixed special", "mixed replaced", "rare edges"


def questions(kind):
    trees, relations = KINDS[kind]
    numpy_too = st.sampled_from(
        [lambda event: event, tree_strategies.with_numpy_scalars]
    )
    usual = tree_strategies.log_scale(1e-30, 0.9)
    deltas = tree_strategies.edge_deltas if "edge" in kind else usual
    shares = st.sampled_from([0.1, 0.5, 0.9, 0.999, 1.0])
    rates = [0.0, 1e-320, 1e-308, 1e-100, 1e-9, 0.01, 0.5, 0.999]
    rates += tree_strategies.beside(1e-320, 1e-250)
    # Mostly none is asked for: tests' powers take the longest, but of few outputs.
    powers = st.sampled_from(rates).map(lambda rate: (rate,))
    return st.builds(
        judge.Question,
        st.builds(lambda change, event: change(event), numpy_too, trees),
        st.sampled_from(relations),
        st.lists(deltas, min_size=2, max_size=3).map(tuple),
        st.tuples(shares, shares),
        st.lists(tree_strategies.losses(), max_size=2).map(tuple),
        st.lists(st.floats(0.0, 1.0), min_size=1, max_size=2).map(tuple),
        st.just((0.0,)) | powers
        if kind == "edges of runs"
        else st.just(()) | st.just(()) | powers,
        st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.01]),
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in SLOW] + at_night(*SLOW))
def test_random_trees(kind):
    mixed, sizes = kind.startswith("mixed"), SIZES
    if mixed:
        sizes = EDGE_SIZES if kind == "mixed edges" else MIXED_SIZES

    @law
    @given(questions(kind))
    def nothing_is_wrong(question):
        assert judge.judge(question, mixed=mixed, **sizes) == []

    nothing_is_wrong()


def test_ratios_whose_squares_fit_no_float():
    """Of the referee's own sums of ratios, which left them with a warning."""
    noises = [dp_event.DiscreteLaplaceDpEvent(loss, 1) for loss in (600.0, 1380.0)]
    epoch = ext.ScheduledAllocationEvent(noises, (3, 3), 8)
    question = judge.Question(
        dp_event.SelfComposedDpEvent(epoch, 11),
        ADD,
        deltas=(1e-6,),
        shares=(0.5, 0.5),
        epsilons=(),
        atoms=(0.5,),
        rates=(1e-300,),
    )
    assert judge.judge(question, **SIZES) == []


SUBNORMAL = [
    ((0.72, 0.06, 0.12, 0.1), (1e-323, 1.5e-157, 0.11, 0.89), 1, 5),
    ((0.12, 0.88, 1e-163), (0.99, 1e-160, 0.01), 3, 4),
    ((0.9, 0.1, 5e-324), (1e-157, 0.3, 0.7), 3, 4),
    ((0.9, 0.1, 5e-324), (1e-157, 0.1, 0.9), 3, 8),
]


@pytest.mark.parametrize(("without", "with_record", "steps", "runs"), SUBNORMAL)
def test_products_below_the_smallest_masses(without, with_record, steps, runs):
    """A MassError was raised: the other law's mass there was only known roughly."""
    event = registered.DiscreteEvent(without, with_record)
    epoch = ext.RandomAllocationEvent(event, 1, steps)
    question = judge.Question(
        dp_event.SelfComposedDpEvent(epoch, runs),
        ADD,
        deltas=(1e-6, 1e-200),
        atoms=(0.5,),
        rates=(0.01,),
    )
    assert judge.judge(question, **SIZES) == []


assert own_readings  # It sets the precision.
Fraction = fractions.Fraction
Side = channels.Side
weights = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any)
# Where e^ε is a fraction: at atoms of the laws, and between them.
kappas = st.builds(Fraction, st.integers(1, 12), st.integers(1, 12))


def chances(numbers):
    return [Fraction(n, sum(numbers)) for n in numbers]


def excess(outputs, kappa, *, remove):
    """Returns Σ (p − κ q)_+ of (q, p), exactly."""
    pairs = [(p, q) if remove else (q, p) for q, p in outputs]
    return sum((max(a - kappa * b, Fraction(0)) for a, b in pairs), Fraction(0))


def runs(outputs, count):
    """Returns (q, p) of every sequence of outputs."""
    return [
        (math.prod(q for q, _ in way), math.prod(p for _, p in way))
        for way in itertools.product(outputs, repeat=count)
    ]


def steps(outputs, selected, count):
    """Returns (q, p) of every sequence, the record in a random set of the steps."""
    sets = list(itertools.combinations(range(count), selected))
    found = []
    for way in itertools.product(outputs, repeat=count):
        with_record = sum(
            math.prod(pair[i in chosen] for i, pair in enumerate(way))
            for chosen in sets
        )
        found.append((math.prod(q for q, _ in way), with_record / len(sets)))
    return found


@pytest.fixture(params=["listed", "reduced"])
def is_listed(request, monkeypatch):
    """Whether all outputs are listed, or merged and split on lattices."""
    if request.param == "reduced":
        monkeypatch.setattr(channels, "MOST_LISTED", 1)
    return request.param == "listed"


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(weights, weights, st.integers(1, 3), st.fractions(0, 1), kappas, st.data())
def test_channels_hold_exact_fractions(is_listed, one, other, count, rate, kappa, data):
    """From both sides, and at once where nothing is merged or split."""
    q, p = chances(one), chances(other)
    selected = data.draw(st.integers(1, count))
    outputs = list(zip(q, p, strict=True))
    expected = {
        "runs": runs(outputs, count),
        "sample": [(a, (1 - rate) * a + rate * b) for a, b in outputs],
        "steps": steps(outputs, selected, count),
    }
    start = channels.exact(q, p)
    for side in Side:
        sizes = channels.Sizes(side, most=100 if is_listed else 4)
        found = {
            "runs": lattices.composed([(start, count)], sizes),
            "sample": channels.sampled(rate, start),
        }
        # Some of several steps have an upper bound only if all outputs are listed.
        if is_listed or side is Side.LOW or selected in (1, count):
            steps_of = [(start, count)]
            found["steps"] = lattices.allocated(steps_of, selected, sizes)
        for name, remove in itertools.product(found, (True, False)):
            truth = channels.ball(excess(expected[name], kappa, remove=remove))
            low, high = found[name].delta(channels.ball(kappa).log(), remove=remove)
            if side is Side.LOW:
                assert not low > truth, (name, side)
            else:
                assert not high < truth, (name, side)
            if is_listed:
                assert high - low < 1e-25


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_both_sides_of_noise_are_near(kind):
    """Samples, compositions and allocations; a truth far below any float, too."""
    one = ((1.0, Fraction(1)),)
    none = ((0.0, Fraction(1)),)
    bounds = []
    for side in Side:
        sizes = channels.Sizes(side, cells=200, most=200)
        base = noises.noise(kind, 0.9, one, none, sizes)
        found = [
            base,
            lattices.composed([(channels.sampled(0.125, base), 40)], sizes),
            lattices.allocated([(base, 9)], 1, sizes),
            lattices.composed([(base, 1), (channels.sampled(1e-30, base), 1)], sizes),
        ]
        index = 0 if side is Side.LOW else 1
        both = itertools.product(found, (True, False))
        bounds.append([c.delta(0.5, remove=remove)[index] for c, remove in both])
    for low, high in zip(*bounds, strict=True):
        assert 0 < low <= high
        assert high < low * 1.05


def test_powers_and_divergences_of_a_law():
    channel = channels.exact(
        [Fraction(1, 4), Fraction(3, 4)], [Fraction(3, 4), Fraction(1, 4)]
    )
    low, high = channel.true_positives(0.5, remove=True)
    assert low < 3 / 4 + 1 / 12 + 1e-12 and high > 3 / 4 + 1 / 12 - 1e-12
    expected = math.log((9 / 16) / (1 / 4) + (1 / 16) / (3 / 4))
    assert float(judge.renyi(channel, 2.0, remove=True)) == pytest.approx(expected)
    assert judge.renyi(channel, 2.0, remove=True) <= channels.ball(Fraction(7, 3)).log()
