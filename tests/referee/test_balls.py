"""The referee itself: beside exact fractions, and by the gap between its two sides."""

import fractions
import itertools
import math

from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import judge
import own_readings
import pytest

from dp_accounting_ext.verify import channels
from dp_accounting_ext.verify import lattices
from dp_accounting_ext.verify import noises

assert own_readings  # It sets the precision.
Fraction = fractions.Fraction
Side = channels.Side
weights = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any)
# Where e^ε is a fraction: at atoms of the laws, and between them.
kappas = st.builds(Fraction, st.integers(1, 12), st.integers(1, 12))


def law(numbers):
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
    q, p = law(one), law(other)
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
            "runs": lattices.power(start, count, sizes),
            "sample": channels.sampled(rate, start),
            "steps": lattices.allocated([(start, count)], selected, sizes),
        }
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
            lattices.power(channels.sampled(0.125, base), 40, sizes),
            lattices.allocated([(base, 9)], 1, sizes),
            lattices.product(base, channels.sampled(1e-30, base), sizes),
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
