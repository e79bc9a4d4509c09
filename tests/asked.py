"""Accountants and bounds of compositions, for tests that ask one number at a time."""

from dp_accounting import privacy_accountant
import numpy as np

import dp_accounting_ext as ext
from dp_accounting_ext.bounds import privacy_bounds

NeighborRel = privacy_accountant.NeighboringRelation


def accountant_of(event, count=1, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return ext.PLDAccountant(relation).compose(event, count)


def bounds(event, delta=1e-5, relation=NeighborRel.ADD_OR_REMOVE_ONE):
    return accountant_of(event, relation=relation).get_epsilon_bounds(delta)


def lower_epsilon(accountant, delta):
    """A lower bound on ε alone: an upper one takes most of the time of both."""
    scenarios = accountant._answers()._privacy.scenarios
    return max(Asked(each).lower_epsilon(delta) for each in scenarios)


class Asked:
    """Bounds of which one number at a time is asked."""

    def __init__(self, bounds):
        self.bounds = bounds

    def upper_epsilon(self, delta):
        return float(self.bounds.upper_epsilons(np.array([delta]))[0])

    def lower_epsilon(self, delta):
        return float(self.bounds.lower_epsilons(np.array([delta]))[0])


def bounds_of(counts, interval=1e-4):
    return Asked(privacy_bounds.PrivacyBounds(counts, interval))
