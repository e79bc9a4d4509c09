"""Bounds of compositions, for tests that ask for one number at a time."""

import numpy as np

from dp_accounting_ext.bounds import privacy_bounds


class Asked:
    """Bounds of which one number at a time is asked."""

    def __init__(self, bounds):
        self.bounds = bounds

    def upper_epsilon(self, delta):
        return float(self.bounds.upper_epsilons(np.array([delta]))[0])

    def lower_epsilon(self, delta):
        return float(self.bounds.lower_epsilons(np.array([delta]))[0])

    def upper_delta(self, epsilon):
        return float(self.bounds.upper_deltas(np.array([epsilon]))[0])

    def lower_delta(self, epsilon, upper):
        lower = self.bounds.lower_deltas(np.array([epsilon]), np.array([upper]))
        return float(lower[0])

    def epsilon_bounds(self, delta):
        lower, upper = self.bounds.epsilon_bounds(np.array([delta]))
        return float(lower[0]), float(upper[0])

    def delta_bounds(self, epsilon):
        lower, upper = self.bounds.delta_bounds(np.array([epsilon]))
        return float(lower[0]), float(upper[0])


def bounds_of(counts, interval=1e-4):
    return Asked(privacy_bounds.PrivacyBounds(counts, interval))
