"""What the laws share: how often they are tried, and how bounds are compared.

Each law is a property of bounds of any tree, whatever the numbers are: two ways to say
one mechanism have brackets that meet; what tells less has no lower bound above the
other's upper one. With LAW_EXAMPLES=1000 in the environment each law is tried that
often, on other trees than by default.
"""

import collections
import math
import os

from dp_accounting import privacy_accountant
from hypothesis import HealthCheck
from hypothesis import Phase
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import tree_strategies

import dp_accounting_ext as ext

NeighborRel = privacy_accountant.NeighboringRelation
ADD = NeighborRel.ADD_OR_REMOVE_ONE
SPECIAL = NeighborRel.REPLACE_SPECIAL
EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "0"))

# Two steps of t take seconds each: of trees that few are tried of, one.
SELECTED = 2 if EXAMPLES else 1
LARGE = tree_strategies.Sizes(count=8, steps=16, selected=SELECTED)
MILD = tree_strategies.Sizes(
    count=8, steps=12, selected=SELECTED, extremes=False, depth=2
)
trees = tree_strategies.sampled_trees(LARGE)
mild_trees = tree_strategies.sampled_trees(MILD)
# Of two, one with losses of 1e-9 or of 700 nats, and counts beside thresholds.
any_trees = trees | tree_strategies.edge_trees(most=20)
cases = tree_strategies.cases(LARGE) | st.tuples(
    tree_strategies.edge_trees(most=20), st.sampled_from([ADD, SPECIAL])
)
deltas = tree_strategies.log_scale(1e-30, 0.9) | tree_strategies.edge_deltas


def law(function):
    """Tries a law on some trees, the same in every run; on many others if asked."""
    return settings(
        max_examples=EXAMPLES or 2,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        # To shrink a tree takes minutes: ask for it where there is need.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(function)


_ANSWERS = collections.OrderedDict()


def accountant_of(*events, relation=ADD, **options):
    """Composes; of several names of one composition, only one is computed."""
    accountant = ext.PLDAccountant(relation, **options)
    for event in events:
        accountant.compose(event)
    runs = accountant._composed
    # Sums are made in the order of the mechanisms: another order is computed, too.
    order = tuple(runs.counts.items())
    key = relation, tuple(options.items()), runs.group, order
    answers = _ANSWERS[key] = _ANSWERS.pop(key, None) or accountant._answers()
    accountant._composed, accountant._memory = answers.composed, answers
    if len(_ANSWERS) > 16:
        _ANSWERS.popitem(last=False)
    return accountant


def brackets(accountant, delta):
    return accountant.get_epsilon_bounds(delta), accountant.get_delta_bounds(0.5)


def pairs_of_brackets(one, other, delta):
    """Yields brackets of both: ε at δ, and δ at many ε, one of them their own."""
    first = one.get_epsilon_bounds(delta)
    yield first, other.get_epsilon_bounds(delta)
    at = np.array([0.0, 0.5, 300.0, 600.0, 690.0, *filter(math.isfinite, first)])
    lows, highs = one.get_delta_bounds(at)
    lows_2, highs_2 = other.get_delta_bounds(at)
    every = lows, highs, lows_2, highs_2
    for low, high, low_2, high_2 in zip(*(x.tolist() for x in every), strict=True):
        yield (low, high), (low_2, high_2)


def assert_meet(one, other, delta):
    """Requires brackets that meet."""
    for (low, high), (low_2, high_2) in pairs_of_brackets(one, other, delta):
        assert low <= high_2 and low_2 <= high


def assert_no_worse(better, worse, delta):
    """Requires that what tells less is not certain to tell more."""
    for (low, _), (_, high) in pairs_of_brackets(better, worse, delta):
        assert low <= high
