"""Laws of what membership tests find: they say the same as δ and ε do."""

import math

from hypothesis import given
from hypothesis import strategies as st
from lawful import accountant_of
from lawful import cases
from lawful import law
from scipy import special
import tree_strategies

rates = st.floats(-320.0, 0.0).map(lambda x: 10.0**x) | st.sampled_from(
    [0.0, 0.5, *tree_strategies.beside(1e-320, 1e-100)]
)


@law
@given(cases, rates, rates)
def test_rates_are_ordered_and_grow(case, one, other):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    small, large = sorted([one, other])
    low, high = accountant.get_true_positive_rate_bounds(small)
    low_2, high_2 = accountant.get_true_positive_rate_bounds(large)
    assert 0 <= low <= high <= 1 and low_2 <= high_2
    assert small <= high and low <= high_2


@law
@given(cases, rates, st.floats(0.0, 1.0))
def test_a_test_finds_no_more_than_delta_allows(case, rate, share):
    """TPR ≤ e^ε FPR + δ(ε) for every ε, with equality for one of them."""
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    low, _ = accountant.get_true_positive_rate_bounds(rate)
    epsilon = share * min(accountant.get_epsilon(1e-9), 700.0)
    # e^ε is rounded to the nearest float, and so is the product.
    allowed = math.exp(epsilon) * rate * (1 + 1e-13) + 5e-324
    assert low <= allowed + accountant.get_delta(epsilon) * (1 + 1e-15)


@law
@given(cases, st.floats(0.0, 1.0), st.floats(0.001, 0.4))
def test_the_tests_that_are_found_show_delta(case, share, rate):
    """δ(ε) ≥ TPR − e^ε FPR of every test."""
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    epsilon = share * min(accountant.get_epsilon(1e-9), 700.0)
    low, _ = accountant.get_true_positive_rate_bounds(rate)
    # e^ε is rounded to the nearest float, and so is the product.
    shown = low - math.exp(epsilon) * rate * (1 + 1e-13)
    assert shown <= accountant.get_delta(epsilon) * (1 + 1e-15)


@law
@given(cases, st.floats(0.0, 1.0))
def test_mu_covers_what_the_tests_find(case, share):
    event, relation = case
    accountant = accountant_of(event, relation=relation)
    low, high = accountant.get_gdp_parameter_bounds(least_false_positive_rate=1e-6)
    assert 0 <= low <= high
    rate = 10 ** (-6 + share * 5.6)
    found, _ = accountant.get_true_positive_rate_bounds(rate)
    if math.isfinite(high):
        assert found <= special.ndtr(special.ndtri(rate) + high) * (1 + 1e-9)
