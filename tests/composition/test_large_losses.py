"""Compositions with heavy tails against direct convolution, exact in every digit."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import large_losses
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
BOUNDS = list(Bound)
EPSILONS = np.array([0.3, 0.97, 1.5, 2.5, 4.9])


def heavy(bound, count, rare=1e-14, infinity_mass=0.0):
    """Losses of ±0.01 and, rarely, of 1 to 5: a tail far from any exponential."""
    losses = np.array([-0.01, 0.01, 1.0, 2.0, 3.0, 4.0, 5.0])
    tail = rare * np.array([1.0, 0.5, 0.3, 0.2, 0.1])
    high = 1 / (1 + math.exp(-0.01))
    masses = np.concatenate([[1 - high, high], tail])
    masses[:2] *= 1 - tail.sum() - infinity_mass
    return loss_distribution.LossDistribution(
        losses, masses, infinity_mass, count, bound
    )


def composed(laws, interval=1e-4, delta=1e-16):
    # Atom by atom it would be exact, whatever the tail.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composed_loss, "_MOST_COPIES", 0)
        loss = large_losses.HeavyTailedLoss(laws, interval, delta)
    return loss


@pytest.fixture(autouse=True)
def _on_the_lattice(monkeypatch):
    """Parts of few atoms are composed by transforms, too, as those of many are."""
    monkeypatch.setattr(composed_loss, "_MOST_COPIES", 0)


def exact_deltas(laws, epsilons):
    """Every multiset of losses of the copies, in fifty digits."""
    with mpmath.workdps(50):
        terms = {0: mpmath.mpf(1)}
        finite = mpmath.mpf(1)
        # In hundredths, so that equal sums meet.
        for law in laws:
            places = [round(100 * loss) for loss in law.losses]
            for _ in range(law.count):
                finite *= 1 - mpmath.mpf(law.infinity_mass)
                following = {}
                for at, mass in terms.items():
                    for place, own in zip(places, law.masses.tolist(), strict=True):
                        key = at + place
                        following[key] = following.get(key, 0) + mass * mpmath.mpf(own)
                terms = following
        return [
            1
            - finite
            + mpmath.fsum(
                mass * (1 - mpmath.exp(mpmath.mpf(epsilon) - mpmath.mpf(at) / 100))
                for at, mass in terms.items()
                if mpmath.mpf(at) / 100 > epsilon
            )
            for epsilon in epsilons.tolist()
        ]


def assert_certain(bound, found, truths, width):
    """No tolerance on the safe side; relative on the other."""
    for value, truth in zip(found.tolist(), truths, strict=True):
        if bound is Bound.UPPER:
            assert truth <= value <= truth * (1 + width)
        else:
            assert truth * (1 - width) <= value <= truth


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("infinity_mass", [0.0, 1e-16, 1e-13])
def test_deltas_of_a_heavy_tail(bound, infinity_mass):
    law = heavy(bound, 6, infinity_mass=infinity_mass)
    found = composed([law]).deltas(EPSILONS)
    assert_certain(bound, found, exact_deltas([law], EPSILONS), 1e-3)


@pytest.mark.parametrize("infinity_mass", [0.0, 1e-16])
def test_epsilons_of_a_heavy_tail(infinity_mass):
    deltas = np.array([3e-14, 1e-14, 2e-15])
    upper, lower = (
        composed([heavy(bound, 6, infinity_mass=infinity_mass)]).epsilons(deltas)
        for bound in (Bound.UPPER, Bound.LOWER)
    )
    law = heavy(Bound.LOWER, 6, infinity_mass=infinity_mass)
    for above, below, delta in zip(
        exact_deltas([law], upper), exact_deltas([law], lower), deltas, strict=True
    ):
        assert above <= delta <= below
    assert (lower <= upper).all() and (upper <= lower * (1 + 1e-3)).all()


@pytest.mark.parametrize("bound", BOUNDS)
def test_laws_that_differ(bound):
    """One large loss of any of them; two are rarer than δ."""
    laws = [heavy(bound, 1, 3e-14), heavy(bound, 2, 1e-14, 1e-17), heavy(bound, 1)]
    found = composed(laws).deltas(EPSILONS)
    assert_certain(bound, found, exact_deltas(laws, EPSILONS), 1e-3)


def test_two_large_losses_are_counted():
    """Two losses of one make all of δ at 1.5: an upper bound has them."""
    losses, rare = np.array([0.0, 1.0]), 1e-9
    law = loss_distribution.LossDistribution(
        losses, np.array([1 - rare, rare]), 0.0, 2, Bound.UPPER
    )
    (truth,) = exact_deltas([law], np.array([1.5]))
    split = large_losses._Split([law], 1e-3, -11)
    assert truth <= split.deltas(np.array([1.5]))[0] <= 12 * truth


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_light_tail_is_composed_whole(bound, monkeypatch):
    law = loss_distribution.LossDistribution(
        np.array([-0.1, 0.1]),
        np.array([1, math.exp(0.1)]) / (1 + math.exp(0.1)),
        0.0,
        30,
        bound,
    )
    monkeypatch.setattr(large_losses.HeavyTailedLoss, "_apart", None)
    both = composed([law])
    deltas, epsilons = np.array([0.1, 1e-5]), np.array([0.0, 0.5, 2.5])
    assert both.deltas(epsilons).tolist() == both.whole.deltas(epsilons).tolist()
    assert both.epsilons(deltas).tolist() == both.whole.epsilons(deltas).tolist()
    assert (both.deltas(epsilons) > 0).all() and (both.epsilons(deltas) > 0).all()


def unseen(bound, count=3):
    """Bulk losses of 1e-3, and at δ = 1e-17 one of 0.1 to 5 makes ε."""
    tail = 1e-10 * np.geomspace(1, 1e-9, 40)
    losses = np.concatenate([[-0.001, 0.001], np.geomspace(0.02, 5.0, 40)])
    half = (1 - tail.sum()) / 2
    masses = np.concatenate([[half, half], tail])
    return loss_distribution.LossDistribution(losses, masses, 0.0, count, bound)


def test_what_no_tilt_shows():
    found, plain = {}, {}
    delta = np.array([1e-17])
    for bound in BOUNDS:
        both = composed([unseen(bound)], delta=1e-20)
        found[bound], plain[bound] = both.epsilons(delta), both.whole.epsilons(delta)
    gap = found[Bound.UPPER] - found[Bound.LOWER]
    assert 0 <= gap < 5e-3 * found[Bound.UPPER]
    assert plain[Bound.UPPER] - plain[Bound.LOWER] > 10 * gap


@pytest.mark.parametrize("bound", BOUNDS)
def test_an_answer_depends_on_its_question_alone(bound):
    """To the last bit: one by one, backwards, and all at once."""
    deltas = np.geomspace(1e-12, 1e-19, 8)
    epsilons = np.linspace(0.05, 4.5, 8)
    both = composed([unseen(bound)], delta=1e-20)
    at_once = both.epsilons(deltas), both.deltas(epsilons)
    assert (at_once[0] != both.whole.epsilons(deltas)).any()
    other = composed([unseen(bound)], delta=1e-20)
    for place in reversed(range(8)):
        one = slice(place, place + 1)
        assert other.deltas(epsilons[one])[0] == at_once[1][place]
        assert other.epsilons(deltas[one])[0] == at_once[0][place]


def test_pieces_keep_all_mass():
    law = heavy(Bound.UPPER, 10, infinity_mass=1e-20)
    cut = large_losses._first_large(law, 1e-12)
    assert cut == 2
    whole = large_losses._Piece(0, slice(cut), 9)
    large = large_losses._Piece(0, slice(cut, None), 1)
    pieces = large_losses._Pieces([law], [whole, large])
    assert [piece.losses.size for piece in pieces] == [2, 5]
    assert [piece.count for piece in pieces] == [9, 1]
    assert [piece.infinity_mass for piece in pieces] == [0, 0]
    (infinite,) = large_losses._Pieces([law], [whole], with_infinite=True)
    assert infinite.infinity_mass == 1e-20
    assert large_losses._first_large(law, 1e-30) is None
    assert large_losses._first_large(law, 1.0) == 2
    assert large_losses._first_large(law, 100.0) == 1
    rare = 10 * law.masses[2:].sum()
    chance = large_losses._chance_of_two([law], [cut])
    assert rare**2 / 2 <= chance <= 2.1 * rare**2 / 2
    assert large_losses._chance_of_two([law, law], [None, None]) == 0


@pytest.mark.parametrize("upper", [True, False])
def test_roots_are_found_from_their_side(upper):
    asked = []
    goals = np.array([9.0, 2.0, 100.0, 1.0])

    def excess(places, here):
        asked.extend(places.tolist())
        return goals[here] - places**2

    starts = np.array([0.3, 2.0, 30.0, 1.0])
    found = large_losses._roots(excess, starts, upper=upper)
    assert set(found.tolist()) <= set(asked)
    assert ((found**2 >= goals) if upper else (found**2 <= goals)).all()
    np.testing.assert_allclose(found, np.sqrt(goals), rtol=1e-3)


def test_no_root_in_sight_says_nothing():
    start = np.ones(1)
    above = large_losses._roots(lambda x, _: np.ones(x.size), start, upper=True)
    below = large_losses._roots(lambda x, _: np.full(1, -np.inf), start, upper=False)
    assert (above[0], below[0]) == (math.inf, 0.0)
