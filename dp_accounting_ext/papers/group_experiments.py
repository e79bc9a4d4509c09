"""The experiments of paper 2: a group's certified δ beside the bounds known before.

Each function returns rows, which `group_figures` draws and
`benchmarks/group_privacy.py` prints.

Source: https://arxiv.org/abs/2403.04867, section 4.
"""

import bisect
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools

from dp_accounting import dp_event as stock
from dp_accounting import privacy_accountant
import numpy as np

from dp_accounting_ext import dp_event
from dp_accounting_ext import pld
from dp_accounting_ext import pld_accountant
from dp_accounting_ext import rdp_accountant
from dp_accounting_ext.papers import group_baselines

# Of the paper's Figures 3 to 5.
DATASET_SIZE = 1000
STEP_RATE = 0.2
LAPLACE_SCALE = 1.0
GAUSSIAN_NOISE = 2.0

PostHoc = Callable[[group_baselines.Profile, int, float], float]

GEOMETRIC: Mapping[str, PostHoc] = {"geometric": group_baselines.post_hoc_geometric}
POST_HOC: Mapping[str, PostHoc] = {
    "optimal": group_baselines.post_hoc_optimal,
    **GEOMETRIC,
    "linear": group_baselines.post_hoc_linear,
}


@dataclasses.dataclass(frozen=True)
class ResponseRow:
    """The Rényi divergence of randomized response, one record substituted.

    Attributes:
        truth: Probability θ of a true answer.
        order: α.
        tight: ε(α), in nats.
        agnostic: The bound for any mechanism of the same RDP.
    """

    truth: float
    order: float
    tight: float
    agnostic: float


@dataclasses.dataclass(frozen=True)
class Row:
    """A group's δ, certified, and upper bounds on it that were known before.

    Attributes:
        group_size: K.
        num_steps: T.
        epsilon: ε, in nats.
        lower: Lower bound on δ.
        upper: Upper bound on δ.
        earlier: From the names of the earlier bounds to their values.
    """

    group_size: int
    num_steps: int
    epsilon: float
    lower: float
    upper: float
    earlier: Mapping[str, float]


def randomized_response(
    truths: Sequence[float], orders: Sequence[float]
) -> list[ResponseRow]:
    """Returns the divergences of randomized response on a batch of one record.

    Source: https://arxiv.org/abs/2403.04867, Figure 3.
    """
    rows = []
    for truth in truths:
        accountant = rdp_accountant.RdpAccountant(
            orders, privacy_accountant.NeighboringRelation.REPLACE_ONE
        )
        accountant.compose(group_baselines.batch_response(truth, DATASET_SIZE))
        base = functools.partial(group_baselines.response_rdp, truth)
        agnostic = group_baselines.agnostic_rdp(orders, base, 1 / DATASET_SIZE)
        for order, tight, known in zip(orders, accountant.rdp, agnostic, strict=True):
            rows.append(ResponseRow(truth, order, float(tight), known))
    return rows


def laplace_step(sizes: Sequence[int], epsilons: Sequence[float]) -> list[Row]:
    """Returns δ of the Laplace mechanism on one Poisson sample, sizes outermost.

    Source: https://arxiv.org/abs/2403.04867, Figure 4.
    """

    def base(count: int, epsilon: float) -> float:
        return group_baselines.laplace_delta(count / LAPLACE_SCALE, epsilon)

    def earlier(size: int, num_steps: int, epsilon: float) -> dict[str, float]:
        delta = group_baselines.mechanism_agnostic(base, STEP_RATE, size, epsilon)
        return {"agnostic": delta}

    step = stock.PoissonSampledDpEvent(STEP_RATE, stock.LaplaceDpEvent(LAPLACE_SCALE))
    return _rows(step, sizes, (1,), epsilons, earlier)


def gaussian_step(
    sizes: Sequence[int],
    epsilons: Sequence[float],
    post_hoc: Mapping[str, PostHoc] = GEOMETRIC,
) -> list[Row]:
    """Returns δ of the Gaussian mechanism on one Poisson sample, sizes outermost.

    Args:
        sizes: Group sizes.
        epsilons: ε.
        post_hoc: Bounds from the profile of a single record, which each row has
            beside the mechanism-agnostic one.

    Source: https://arxiv.org/abs/2403.04867, Figure 5.
    """

    def base(count: int, epsilon: float) -> float:
        return group_baselines.gaussian_profile(count / GAUSSIAN_NOISE)(epsilon)

    single = group_baselines.poisson_sampled_profile(
        functools.partial(base, 1), STEP_RATE
    )

    def earlier(size: int, num_steps: int, epsilon: float) -> dict[str, float]:
        agnostic = group_baselines.mechanism_agnostic(base, STEP_RATE, size, epsilon)
        known = {name: bound(single, size, epsilon) for name, bound in post_hoc.items()}
        return {"agnostic": agnostic, **known}

    step = sampled_gaussian(STEP_RATE, GAUSSIAN_NOISE)
    return _rows(step, sizes, (1,), epsilons, earlier)


def composed_gaussian(
    step: stock.DpEvent,
    sizes: Sequence[int],
    steps: Sequence[int],
    epsilon: float,
    post_hoc: Mapping[str, PostHoc] = GEOMETRIC,
) -> list[Row]:
    """Returns δ of several steps, sizes outermost.

    Args:
        step: One step, as a single record sees it.
        sizes: Group sizes.
        steps: Numbers of steps.
        epsilon: ε.
        post_hoc: Bounds from the profile of a single record.

    Source: https://arxiv.org/abs/2403.04867, Figure 6.
    """

    def earlier(size: int, num_steps: int, epsilon: float) -> dict[str, float]:
        single = pld_accountant.PLDAccountant().compose(step, num_steps).get_delta
        return {name: bound(single, size, epsilon) for name, bound in post_hoc.items()}

    return _rows(step, sizes, steps, (epsilon,), earlier)


def _rows(
    step: stock.DpEvent,
    sizes: Sequence[int],
    steps: Sequence[int],
    epsilons: Sequence[float],
    earlier: Callable[[int, int, float], Mapping[str, float]],
) -> list[Row]:
    rows = []
    for size in sizes:
        for num_steps in steps:
            accountant = group_accountant(step, size, num_steps)
            for epsilon in epsilons:
                bounds = accountant.get_delta_bounds(epsilon)
                known = earlier(size, num_steps, epsilon)
                rows.append(Row(size, num_steps, epsilon, *bounds, known))
    return rows


def sampled_gaussian(rate: float, noise_multiplier: float) -> stock.DpEvent:
    """Returns the Gaussian mechanism on a Poisson sample."""
    return stock.PoissonSampledDpEvent(rate, stock.GaussianDpEvent(noise_multiplier))


def group_accountant(
    step: stock.DpEvent, group_size: int, num_steps: int, interval: float = 1e-4
) -> pld_accountant.PLDAccountant:
    """Returns an accountant of a group, however its records join and leave.

    Args:
        step: One step, as a single record sees it.
        group_size: K.
        num_steps: T.
        interval: Largest loss interval, in nats.
    """
    accountant = pld_accountant.PLDAccountant(value_discretization_interval=interval)
    accountant.compose(dp_event.GroupSubsampledEvent(group_size, step), num_steps)
    return accountant


def tabulated_profile(
    step: stock.DpEvent, num_steps: int, epsilon: float, points: int
) -> group_baselines.Profile:
    """Returns the profile of a single record at the multiples of ε / points alone.

    It is computed once: the optimal post-hoc bound asks for all of them.
    """
    whole = stock.SelfComposedDpEvent(step, num_steps)
    epsilons = (epsilon * np.arange(points + 1) / points).tolist()
    deltas = np.asarray(pld.from_event(whole).get_delta_for_epsilon(epsilons))
    return lambda each: float(deltas[round(each * points / epsilon)])


def affordable_steps(
    delta_at: Callable[[int], float], target: float, candidates: range
) -> int:
    """Returns the largest number of steps whose δ is at most the target.

    Args:
        delta_at: δ of a number of steps, which does not decrease.
        target: The largest δ allowed.
        candidates: Numbers of steps: the first is affordable, the last is not.

    Raises:
        ValueError: If the candidates are not such.
    """
    place = bisect.bisect_right(candidates, target, key=delta_at)
    if not 0 < place < len(candidates):
        first, last = candidates[0], candidates[-1]
        raise ValueError(f"candidates must hold the answer. Found {first} to {last}.")
    return candidates[place - 1]
