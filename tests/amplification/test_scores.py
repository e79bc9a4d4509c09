"""The lower bound for k out of t, against the mechanism itself by enumeration."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import scores
from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction


def lower_pair(pair, selected, steps, direction, tail_mass):
    return scores.lower_pair(
        [step_laws.Kind(pair, steps)],
        selected,
        [((selected,), 1.0)],
        direction,
        tail_mass=tail_mass,
    )


ACCURACY = Fraction(1, 10**9)  # Of lower bounds that could be the truth.


@settings(max_examples=8)
@given(strategies.pairs(Bound.LOWER, most_atoms=3), st.data())
def test_it_is_below_a_mechanism_with_sinks(pair, data):
    steps = data.draw(st.integers(2, 5))
    selected = data.draw(st.integers(1, steps))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    divergences = oracles.remove_divergence, oracles.add_divergence
    for direction, divergence in zip(Direction, divergences, strict=True):
        found = lower_pair(pair, selected, steps, direction, tail_mass=1e-12)
        # Or what is made of many of them is too large.
        assert math.fsum(found.masses) <= 1
        sink = infinity if direction is Direction.REMOVE else 0
        for epsilon in (-2.0, -0.5, 0.0, 0.3, 1.0, 2.5, 5.0):
            kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
            assert found.delta(epsilon, direction) <= divergence(law, kappa, sink)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("selected", "steps", "epsilons"),
    [
        (3, 3, [0.0, 0.2, 1.0]),
        (2, 5, [0.0, 0.1, 0.3]),
        (60, 60, [0.5, 3.0, 8.0, 14.0]),
        (4, 7, [0.0, 0.3, 1.0]),
        (12, 60, [0.5, 2.0, 3.0]),
        (40, 300, [0.0, 1.0, 3.0, 4.5]),
    ],
)
def test_nothing_is_lost_where_the_sum_tells_all(direction, selected, steps, epsilons):
    pair = lower_pair(
        strategies.coin(Bound.LOWER), selected, steps, direction, tail_mass=1e-14
    )
    assert pair.bound is Bound.LOWER
    for epsilon in epsilons:
        # κ is moved against the bound by more than the rounding of exp.
        kappa = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
        truth = oracles.coin_divergence(
            selected, steps, kappa, is_removed=direction is Direction.REMOVE
        )
        found = pair.delta(epsilon, direction)
        assert (1 - ACCURACY) * truth <= found <= truth


@pytest.mark.parametrize(
    ("mass_error", "ratio_error"), [(2.0**-30, 2.0**-34), (2.0**-34, 2.0**-30)]
)
def test_errors_of_the_step_are_carried_and_those_of_the_sums_added(
    mass_error, ratio_error
):
    """A product of t masses, and of k ratios, errs t and k times as much as one."""
    exact, rough = (
        lower_pair(step, 4, 50, Direction.REMOVE, tail_mass=1e-12)
        for step in (
            strategies.coin(Bound.LOWER),
            strategies.coin(
                Bound.LOWER, mass_error=mass_error, ratio_error=ratio_error
            ),
        )
    )
    carried = rough.mass_error - exact.mass_error
    assert carried == pytest.approx(50 * (mass_error + ratio_error), rel=1e-6)
    # The masses count as exact: a ratio of sums errs as four ratios do, either way.
    carried = rough.ratio_error - exact.ratio_error
    assert carried == pytest.approx(2 * 4 * ratio_error, rel=1e-6)
