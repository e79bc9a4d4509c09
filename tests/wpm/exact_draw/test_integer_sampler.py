"""Exact draws."""

import secrets

import numpy as np
import pytest
from scipy import stats

from dp_accounting_ext.wpm.exact_draw import integer_weights


def test_law_of_draws_is_the_weights_by_enumeration(monkeypatch):
    """Every value that randbits can return, once."""
    bits, weights = 8, np.array([[0, 100, 1, 155, 0]])
    values = iter(range(2**bits))
    asked = []

    def randbits(count):
        asked.append(count)
        return next(values)

    monkeypatch.setattr(secrets, "randbits", randbits)
    draws = np.concatenate(
        [integer_weights.draw(weights, bits) for _ in range(2**bits)]
    )
    np.testing.assert_array_equal(np.bincount(draws, minlength=5), weights[0])
    assert asked == [bits] * 2**bits


@pytest.mark.parametrize("bits", [8, 62, 63, 100])
@pytest.mark.parametrize("seed", [None, 0])
def test_law_of_draws_by_chi_square(bits, seed):
    shares = np.array([0.5, 0.25, 0.0, 0.125, 0.125])
    weights = np.array([int(share * 2**bits) for share in shares])
    weights = weights.astype(np.int64 if bits <= 62 else object)
    rng = None if seed is None else np.random.default_rng(seed)
    draws = integer_weights.draw(np.tile(weights, (4000, 1)), bits, rng)
    counts = np.bincount(draws, minlength=5)
    assert counts[2] == 0
    seen = shares > 0
    found = stats.chisquare(counts[seen], 4000 * shares[seen])
    assert found.pvalue > 1e-6


def test_seeded_draws_repeat():
    weights = np.tile(np.array([2**61, 2**61]), (50, 1))
    one, other = (
        integer_weights.draw(weights, 62, np.random.default_rng(5)) for _ in range(2)
    )
    np.testing.assert_array_equal(one, other)
    assert 0 < one.sum() < 50


def test_draws_of_no_rows():
    found = integer_weights.draw(np.zeros((0, 3), dtype=np.int64), 62)
    assert found.shape == (0,) and found.dtype == np.int64


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_every_integer_has_as_many_octets(bits):
    """All strings that a generator can return, as few as hold the bits."""

    class Octets:
        def __init__(self):
            self.count = 0

        def bytes(self, length):
            assert length == -(-bits // 8)
            self.count += 1
            return (self.count - 1).to_bytes(length, "little")

    rng, spare = Octets(), -bits % 8
    found = [integer_weights._uniform(bits, rng) for _ in range(2 ** (bits + spare))]
    assert found == [number >> spare for number in range(2 ** (bits + spare))]
