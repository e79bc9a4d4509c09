"""Profiles from their values, against rational arithmetic."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
import numpy as np

from dp_accounting_ext.amplification.k_of_t import minorant

POSITIVE = st.floats(1e-6, 1e6)


def exact_value(place, ratios, masses, sink):
    value = Fraction(sink)
    for ratio, mass in zip(ratios.tolist(), masses.tolist(), strict=True):
        value += Fraction(mass) * max(Fraction(ratio) - Fraction(place), 0)
    return value


@given(
    st.lists(POSITIVE, min_size=1, max_size=12, unique=True),
    st.lists(st.floats(0.0, 1e6), max_size=8),
    st.floats(0.0, 1.0),
    st.integers(0, 10**6),
)
def test_values_are_those_of_the_atoms(ratios, places, sink, seed):
    ratios = np.sort(np.array(ratios))
    masses = np.random.default_rng(seed).random(ratios.size) ** 6
    places = np.concatenate([np.array(places), ratios])
    found = minorant.values_at(places, ratios, masses, sink)
    allowed = 2 * (ratios.size + 4) * Fraction(1, 2**53)
    for place, value in zip(places.tolist(), found.tolist(), strict=True):
        truth = exact_value(place, ratios, masses, sink)
        assert abs(Fraction(value) - truth) <= allowed * truth


@given(
    st.lists(POSITIVE, min_size=1, max_size=30, unique=True),
    st.integers(0, 10**6),
    st.floats(0.0, 0.5),
)
def test_atoms_have_the_greatest_convex_function_below(places, seed, sink):
    generator = np.random.default_rng(seed)
    places = np.sort(np.array(places))
    values = np.exp(-places / generator.uniform(0.1, 10)) + sink
    values = np.minimum(values * generator.uniform(0.8, 1.2, places.size), 0.999)
    ratios, masses, beyond = minorant.atoms_above(places, values)
    assert (masses >= 0).all()
    all_places = np.append(0.0, places)
    all_values = np.minimum.accumulate(np.append(1.0, values))
    found = minorant.values_at(all_places, ratios, masses, beyond)
    assert found[0] >= 1.0
    exact = [list(map(Fraction, each.tolist())) for each in (all_places, all_values)]
    # Lines that are nowhere above the values are nowhere above the function.
    for slope in map(Fraction, (-10.0, -1.0, -0.1, -0.01, -1e-4, 0.0)):
        at_zero = min(v - slope * p for p, v in zip(*exact, strict=True))
        for place, value in zip(exact[0], found.tolist(), strict=True):
            assert Fraction(value) >= at_zero + slope * place
    # And it is none above the values, but for a billionth.
    assert (found <= all_values * (1 + 1e-8) + 1e-240).all()
