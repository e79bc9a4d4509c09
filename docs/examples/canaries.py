"""Audits a small model: trained as claimed, and with noise left out of some steps."""

import dp_accounting
import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext.studies import canaries

RECORDS, CANARIES, STEPS, RATE = 500, 1000, 200, 0.05


def train(rng, members, has_fault):
    """Returns sums of gradients, weighted by step; canary i has feature 20 + i."""
    features = rng.uniform(-0.2, 0.2, (RECORDS, 20))  # No gradient's norm is above 1.
    labels = features @ rng.normal(size=20) > 0
    weights, released = np.zeros(20), np.empty((STEPS, 20 + CANARIES))
    for step in range(STEPS):
        errors = labels - 1 / (1 + np.exp(-features @ weights))
        own = errors * (rng.random(RECORDS) < RATE) @ features
        released[step] = np.append(own, members * (rng.random(CANARIES) < RATE))
        if step % 10 or not has_fault:
            released[step] += rng.normal(size=20 + CANARIES)
        weights += released[step, :20] / (RATE * RECORDS)
    return (released / released.var(axis=1, keepdims=True)).sum(axis=0)


def main(seed=None):
    """Plans guesses for a run with half the noise, before any score is seen."""
    steps = [dp_accounting.GaussianDpEvent(noise) for noise in (1.0, 0.5)]
    events = [dp_accounting.PoissonSampledDpEvent(RATE, step) for step in steps]
    claim, fault = (ext.PLDAccountant().compose(each, STEPS) for each in events)
    guesses, rng = canaries.plan(claim, fault, CANARIES)[0], np.random.default_rng(seed)
    for has_fault in (False, True):
        members = rng.random(CANARIES) < 0.5
        scores = train(rng, members, has_fault)[20:]
        print(canaries.audit(claim, scores, members, guesses=guesses))


if __name__ == "__main__":
    main()
