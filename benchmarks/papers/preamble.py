"""The noise of DP-SGD with PREAMBLE against that of plain DP-SGD.

A gradient of dimension d is cut into t = d/B blocks of size B, of which each user of a
Poisson sample of rate q sends k = C/B, drawn at random: C numbers a user in place of d.
Over E epochs that is E/q times the Poisson(q) sample of k-out-of-t random allocation of
the Gaussian mechanism.

Two noise levels. The event's noise multiplier z is relative to what a user adds to one
block. To compare with plain DP-SGD take the noise of the estimate of the gradient. A
gradient of norm 1 that is spread evenly over the blocks (a random rotation makes any
nearly so) has blocks of norm 1/√t. Those that are sent are scaled by t/k, so that the
estimate is unbiased: a user adds (t/k)/√t = √t/k to a block, and the noise of each
coordinate is z √t/k. Plain DP-SGD adds the whole gradient, of norm 1, and its noise is
its multiplier z₀. So

    ratio = (z √t/k) / z₀.

The ratio is 1 for k = t (t Gaussians of multiplier z are one of z/√t), and tends to 1
where the noise is large, so that sampling amplifies in full: it is the price of sending
less. Variance that the choice of blocks itself adds is not counted. The paper says no
more of its scale than "the ratio between the noise level required"; the scale is ours.

Source: https://arxiv.org/abs/2602.17284, section 5, Figure 5;
https://eprint.iacr.org/2025/490.
"""

import dataclasses
import functools
import math

import dp_accounting
from scipy import optimize

import dp_accounting_ext as ext
from papers import earlier_allocation

# The paper's.
DIMENSION = 2**20
COMMUNICATION = 2**15
EPOCHS = 10
TARGET_EPSILON = 1.0
DELTA = 1e-6


@dataclasses.dataclass(frozen=True)
class Setting:
    """A block size and a sampling rate.

    Attributes:
        block_size: B, which divides C.
        rate: q, whose inverse is a whole number.
        dimension: d.
        communication: C.
    """

    block_size: int
    rate: float
    dimension: int = DIMENSION
    communication: int = COMMUNICATION

    @property
    def num_selected(self) -> int:
        """Returns k."""
        return self.communication // self.block_size

    @property
    def num_steps(self) -> int:
        """Returns t."""
        return self.dimension // self.block_size

    def event(self, noise_multiplier: float) -> dp_accounting.DpEvent:
        """Returns the whole training, with a noise multiplier z."""
        blocks = ext.RandomAllocationEvent(
            dp_accounting.GaussianDpEvent(noise_multiplier),
            self.num_selected,
            self.num_steps,
        )
        update = ext.PLDSubsampleEvent(self.rate, blocks)
        return dp_accounting.SelfComposedDpEvent(update, round(EPOCHS / self.rate))

    def noise(self, ratio: float) -> float:
        """Returns z for a ratio to plain DP-SGD's noise."""
        contribution = math.sqrt(self.num_steps) / self.num_selected
        return ratio * plain_noise(self.rate) / contribution


@functools.cache
def plain_noise(rate: float) -> float:
    """Returns z₀, the noise multiplier of plain DP-SGD."""

    def event(noise: float) -> dp_accounting.DpEvent:
        step = ext.PLDSubsampleEvent(rate, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(step, round(EPOCHS / rate))

    bracket = dp_accounting.LowerEndpointAndGuess(0.3, 1.0)
    return float(
        dp_accounting.calibrate_dp_mechanism(
            ext.PLDAccountant, event, TARGET_EPSILON, DELTA, bracket_interval=bracket
        )
    )


def ratio_needed(setting: Setting, tolerance: float = 1e-5) -> float:
    """Returns the least ratio found that the certified upper bound allows."""
    bracket = dp_accounting.LowerEndpointAndGuess(0.9, 1.1)
    return float(
        dp_accounting.calibrate_dp_mechanism(
            ext.PLDAccountant,
            lambda ratio: setting.event(setting.noise(ratio)),
            TARGET_EPSILON,
            DELTA,
            bracket_interval=bracket,
            tol=tolerance,
        )
    )


def renyi_ratio(setting: Setting, tolerance: float = 1e-3) -> float:
    """Returns the ratio that Rényi divergences alone allow, as in the paper's baseline.

    Source: https://arxiv.org/abs/2602.17284, Figure 5.
    """

    def excess(log_ratio: float) -> float:
        epsilon = earlier_allocation.sampled_allocation_epsilon(
            setting.noise(math.exp(log_ratio)),
            setting.num_selected,
            setting.num_steps,
            setting.rate,
            round(EPOCHS / setting.rate),
            DELTA,
        )
        return math.log(epsilon / TARGET_EPSILON)

    # Nearly a line in logarithms, so that few are asked for.
    low, high = math.log(0.5), math.log(16.0)
    return math.exp(optimize.brentq(excess, low, high, xtol=tolerance))
