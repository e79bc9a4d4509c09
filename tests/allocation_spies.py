"""Small pairs, and functions that are watched: for tests of routes and stages."""

import numpy as np

from dp_accounting_ext.amplification import allocation_routes
from dp_accounting_ext.kernel import dominating_pair

Bound = dominating_pair.Bound


def pair_of(ratios, masses, *, infinity=0.0, zero=0.0, bound=Bound.UPPER):
    return dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), infinity, zero, bound
    )


EVEN = pair_of([0.5, 1.5], [0.5, 0.5])


def spied(monkeypatch, module, name, answer=None):
    """Lists the calls of a function that now gives an answer."""
    calls = []

    def spy(*arguments, **options):
        calls.append((*arguments, *options.values()))
        return answer

    monkeypatch.setattr(module, name, spy)
    return calls


def bulk_of(monkeypatch, large, deviation):
    return spied(monkeypatch, allocation_routes, "bulk", (large, deviation))
