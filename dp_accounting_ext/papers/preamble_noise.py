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

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math
import time

from dp_accounting import dp_event as stock
from dp_accounting import mechanism_calibration
from scipy import optimize

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld_accountant
from dp_accounting_ext.papers import allocation_baselines

# The paper's.
DIMENSION = 2**20
COMMUNICATION = 2**15
EPOCHS = 10
TARGET_EPSILON = 1.0
DELTA = 1e-6
# Tuning: the ratios that are read off a picture or a table have five digits.
RATIO_TOLERANCE = 1e-5
_INTERVAL = 1e-4


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

    @property
    def num_updates(self) -> int:
        """Returns E/q."""
        return round(EPOCHS / self.rate)

    @property
    def contribution(self) -> float:
        """Returns √t/k, what a user of norm 1 adds to a block it sends."""
        return math.sqrt(self.num_steps) / self.num_selected

    def event(self, noise_multiplier: float) -> stock.DpEvent:
        """Returns the whole training, with a noise multiplier z."""
        blocks = dp_event.RandomAllocationEvent(
            stock.GaussianDpEvent(noise_multiplier),
            self.num_selected,
            self.num_steps,
        )
        update = dp_event.PLDSubsampleEvent(self.rate, blocks)
        return stock.SelfComposedDpEvent(update, self.num_updates)


@dataclasses.dataclass(frozen=True)
class Row:
    """The noise that a setting needs.

    Attributes:
        setting: The setting.
        plain_noise: z₀, the noise multiplier of plain DP-SGD.
        noise_multiplier: z.
        ratio: z over z₀, of a coordinate of the gradient's estimate.
        seconds: CPU time of the search for it.
    """

    setting: Setting
    plain_noise: float
    noise_multiplier: float
    ratio: float
    seconds: float


def noise_needed(
    rates: Sequence[float],
    block_sizes: Sequence[int],
    tolerance: float = RATIO_TOLERANCE,
) -> Iterator[Row]:
    """Yields the noise of every setting as it is found, rates outermost.

    Source: https://arxiv.org/abs/2602.17284, Figure 5.
    """
    for rate in rates:
        plain = plain_noise(rate)
        for block_size in block_sizes:
            setting = Setting(block_size, rate)
            begin = time.process_time()
            ratio = ratio_needed(setting, tolerance)
            seconds = time.process_time() - begin
            yield Row(setting, plain, noise_of(setting, ratio), ratio, seconds)


def epsilon_bounds(setting: Setting, noise_multiplier: float) -> tuple[float, float]:
    """Returns certified bounds on ε of the whole training."""
    accountant = pld_accountant.PLDAccountant()
    accountant.compose(setting.event(noise_multiplier))
    return accountant.get_epsilon_bounds(DELTA)


@functools.cache
def plain_noise(rate: float) -> float:
    """Returns z₀, the noise multiplier of plain DP-SGD."""
    return float(
        mechanism_calibration.calibrate_dp_mechanism(
            pld_accountant.PLDAccountant,
            lambda noise: stock.SelfComposedDpEvent(
                dp_event.PLDSubsampleEvent(rate, stock.GaussianDpEvent(noise)),
                round(EPOCHS / rate),
            ),
            TARGET_EPSILON,
            DELTA,
            bracket_interval=mechanism_calibration.LowerEndpointAndGuess(0.3, 1.0),
        )
    )


def noise_of(setting: Setting, ratio: float) -> float:
    """Returns z for a ratio to plain DP-SGD's noise."""
    return ratio * plain_noise(setting.rate) / setting.contribution


def ratio_needed(setting: Setting, tolerance: float = RATIO_TOLERANCE) -> float:
    """Returns the least ratio found that the certified upper bound allows."""
    return float(
        mechanism_calibration.calibrate_dp_mechanism(
            pld_accountant.PLDAccountant,
            lambda ratio: setting.event(noise_of(setting, ratio)),
            TARGET_EPSILON,
            DELTA,
            bracket_interval=mechanism_calibration.LowerEndpointAndGuess(0.9, 1.1),
            tol=tolerance,
        )
    )


def renyi_ratio(setting: Setting, tolerance: float = RATIO_TOLERANCE) -> float:
    """Returns the ratio that Rényi divergences alone allow, as in the paper's baseline.

    Source: https://arxiv.org/abs/2602.17284, Figure 5.
    """

    def excess(log_ratio: float) -> float:
        epsilon = allocation_baselines.sampled_allocation_epsilon(
            noise_of(setting, math.exp(log_ratio)),
            setting.num_selected,
            setting.num_steps,
            setting.rate,
            setting.num_updates,
            DELTA,
        )
        return math.log(epsilon / TARGET_EPSILON)

    # Nearly a line in logarithms, so that few are asked for.
    low, high = math.log(0.5), math.log(16.0)
    return math.exp(optimize.brentq(excess, low, high, xtol=tolerance))
