"""Draws that hit one group or another: never below what two datasets attain."""

import math

import asked
import mpmath
import oracles
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import batch_mechanisms
from dp_accounting_ext.mechanisms import batches
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import sampled_members


def pair_of(size, draws, sigma):
    """A record's sum moves by two norms where another's takes its place."""
    hits = sampled_members.with_replacement(1, size, draws)
    mechanism = batches.replaced_draws(batch_mechanisms.Noise(sigma / 2), hits)
    return mechanism, interface.pairs_of(
        mechanism, Bound.UPPER, accuracy.Accuracy(1e-20)
    ).remove


@pytest.mark.parametrize(
    ("size", "draws", "sigma"), [(1000, 10, 1.0), (50, 25, 5.0), (4, 3, 2.0)]
)
def test_no_two_datasets_are_further_apart(size, draws, sigma):
    """Others anywhere between the two records that replace one another."""
    _, pair = pair_of(size, draws, sigma)
    weights = [
        math.comb(draws, i) * (size - 1) ** (draws - i) / size**draws
        for i in range(min(draws, 12) + 1)
    ]
    for other in (-1.0, -0.4, 0.0):
        p = [((1 - other) * i / sigma, w) for i, w in enumerate(weights)]
        q = [((-1 - other) * i / sigma, w) for i, w in enumerate(weights)]
        for epsilon in (0.0, 0.1, 1.0, 3.0):
            truths = oracles.shift_mixture_deltas(p, q, epsilon)
            for direction in Direction:
                assert pair.delta(epsilon, direction) >= max(truths.values()) * (
                    1 - mpmath.mpf("1e-12")
                )


@pytest.mark.parametrize(
    ("size", "draws", "sigma", "runs", "delta", "most"),
    [
        (50, 25, 5.0, 1, 1e-5, 18.0),
        (60_000, 64, 2.0, 5000, 1e-5, 0.4573),
    ],
)
def test_many_runs_are_below_the_star(size, draws, sigma, runs, delta, most):
    """A star of 0.584 for many; evenly spaced nodes gave 1.112."""
    mechanism, _ = pair_of(size, draws, sigma)
    hits = sampled_members.with_replacement(1, size, draws)
    star = asked.bounds_of(
        {batch_mechanisms.Noise(sigma / 2).on(hits, hits): runs}, 1e-4
    )
    ours = asked.bounds_of({mechanism: runs}, 1e-4)
    found = ours.upper_epsilon(delta)
    assert ours.lower_epsilon(delta) <= found <= min(star.upper_epsilon(delta), most)


def test_rare_hits_are_told():
    mechanism, _ = pair_of(1000, 10, 1.0)
    rare = math.fsum(weight for number, weight in mechanism.hits if number > 7)
    assert rare <= mechanism.rdp([2.0]).failure_probability <= 1e-20
