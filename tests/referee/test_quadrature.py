"""Two runs of sampled noise, composed or allocated, by integrals over both outputs."""

import dataclasses

import channels
import dp_accounting
from dp_accounting import privacy_accountant
import mpmath
import pytest
import truths

import dp_accounting_ext as ext
from dp_accounting_ext import pld

Gaussian = dp_accounting.GaussianDpEvent
Laplace = dp_accounting.LaplaceDpEvent
ADD = privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Noise on a Poisson sample: its ratio at an output, and divergences of it.

    Attributes:
        event: Gaussian or Laplace noise.
        rate: Inclusion probability.
    """

    event: object
    rate: float

    @property
    def scale(self):
        return mpmath.mpf(self.event.noise_multiplier)

    @property
    def is_laplace(self):
        return isinstance(self.event, Laplace)

    def below(self, x):
        """Returns the probability of an output below x without the record."""
        x = x / self.scale
        if self.is_laplace:
            return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2
        return mpmath.ncdf(x)

    def density(self, x):
        x = x / self.scale
        if self.is_laplace:
            return mpmath.exp(-abs(x)) / (2 * self.scale)
        return mpmath.npdf(x) / self.scale

    def ratio(self, x):
        if self.is_laplace:
            loss = (abs(x) - abs(x - 1)) / self.scale
        else:
            loss = (2 * x - 1) / (2 * self.scale**2)
        return 1 - self.rate + self.rate * mpmath.exp(loss)

    def threshold(self, level):
        """Returns the output above which the ratio is above a level."""
        inner = (level - 1 + self.rate) / self.rate
        if inner <= 0:
            return -mpmath.inf
        loss = mpmath.log(inner)
        if not self.is_laplace:
            return self.scale**2 * loss + mpmath.mpf(1) / 2
        if abs(loss) >= 1 / self.scale:
            return mpmath.sign(loss) * mpmath.inf
        return (1 + self.scale * loss) / 2

    def excess(self, level, *, above):
        """Returns E (ratio − level)_+ without the record; below, E (level − ratio)_+"""
        at = self.threshold(level)
        with_record = self.rate * self.below(at - 1) + (1 - self.rate) * self.below(at)
        without = self.below(at)
        if above:
            return max((1 - with_record) - level * (1 - without), mpmath.mpf(0))
        return max(level * without - with_record, mpmath.mpf(0))

    def integral(self, function, kinks):
        """Returns the mean of a function of the output without the record.

        And a bound on its error, from the quadrature's own estimate.
        """
        reach = 90 if self.is_laplace else 14
        ends = -reach * self.scale, 1 + reach * self.scale
        inside = [x for x in (*kinks, mpmath.mpf(0), mpmath.mpf(1))]
        grid = [ends[0] + (ends[1] - ends[0]) * i / 16 for i in range(17)]
        points = sorted({*grid, *(x for x in inside if ends[0] < x < ends[1])})
        value, error = mpmath.quad(
            lambda x: function(x) * self.density(x), points, error=True
        )
        # What lies beyond has less probability than 1e-38, and ratios of e^50.
        return value, 10 * error + mpmath.mpf(10) ** -15


def two_runs(one, epsilon, *, allocated, remove):
    """Returns δ of two runs and a bound on the error of it."""
    with mpmath.workdps(20):
        kappa = mpmath.exp(mpmath.mpf(epsilon))
        level = kappa if remove else 1 / kappa

        def inner(x):
            first = one.ratio(x)
            # Both ratios' product, or mean: a (second ratio) + b.
            a, b = (0.5, first / 2) if allocated else (first, 0)
            found = a * one.excess((level - b) / a, above=remove)
            return found if remove else kappa * found

        # Where the first ratio alone decides, the integrand has a kink.
        edges = [1 - one.rate]
        if one.is_laplace:
            edges = [one.ratio(mpmath.mpf(x)) for x in (0, 1)]
        kinks = [
            one.threshold(2 * level - edge if allocated else level / edge)
            for edge in edges
            if allocated or edge > 0
        ]
        return one.integral(inner, kinks)


CASES = [
    (Sampled(Gaussian(1.0), 1.0), False),
    (Sampled(Gaussian(0.7), 0.2), False),
    (Sampled(Gaussian(3.0), 0.01), False),
    (Sampled(Laplace(1.5), 1.0), False),
    (Sampled(Laplace(0.4), 0.3), False),
    (Sampled(Gaussian(1.3), 1.0), True),
    (Sampled(Gaussian(0.8), 0.4), True),
    (Sampled(Laplace(0.9), 1.0), True),
    (Sampled(Laplace(0.3), 0.1), True),
]


def event_of(one, allocated):
    event = dp_accounting.PoissonSampledDpEvent(one.rate, one.event)
    if allocated:
        return ext.RandomAllocationEvent(event, 1, 2)
    return dp_accounting.SelfComposedDpEvent(event, 2)


@pytest.mark.parametrize(("one", "allocated"), CASES)
def test_two_runs(one, allocated):
    event = event_of(one, allocated)
    accountant = ext.PLDAccountant().compose(event)
    distributions = [pld.from_event(event, pessimistic_estimate=s) for s in (0, 1)]
    top = accountant.get_epsilon(1e-7)
    for epsilon in (0.3 * top, top):
        truth = [
            two_runs(one, epsilon, allocated=allocated, remove=way)
            for way in (True, False)
        ]
        value, error = max(truth)
        lower, upper = accountant.get_delta_bounds(epsilon)
        assert lower <= value + error
        assert value - error <= upper
        # The truth is known to far more than the bracket is wide.
        assert error <= 1e-6 * value + 1e-12
        for way, name in enumerate(("_pmf_remove", "_pmf_add")):
            value, error = truth[way]
            low, high = (
                getattr(d, name).get_delta_for_epsilon(epsilon) for d in distributions
            )
            assert low <= value + error
            assert value - error <= high


@pytest.mark.parametrize(("one", "allocated"), CASES[::2])
def test_the_referee_itself(one, allocated):
    """Channels in cells hold the integrals between them, within a few percent."""
    event = event_of(one, allocated)
    low, high = (
        truths.readings(event, ADD, side)[0]
        for side in (channels.Side.LOW, channels.Side.HIGH)
    )
    for way in (True, False):
        value, error = two_runs(one, 0.2, allocated=allocated, remove=way)
        least = low.delta(0.2, remove=way)[0]
        most = high.delta(0.2, remove=way)[1]
        assert least <= value + error
        assert value - error <= most
        assert most <= least * 1.1 + 1e-9
