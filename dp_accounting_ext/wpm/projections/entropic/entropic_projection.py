"""The entropic projection, accelerated, stopped on a certified duality gap.

The map of the paper's iteration is mixed over its last steps (Anderson). A mixed
step counts only where it raises the dual, which a plain step never lowers; where it
does not, the history is dropped and a plain step follows. This needs hundreds of
passes where the plain iteration needs tens of thousands.

A batch moves in lockstep: arrays keep their shapes, and a user who is done is frozen,
so that no user's result depends on what the others in the batch hold.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import alternating_projections
from dp_accounting_ext.wpm.projections.entropic import gibbs_kernel

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IndexArray = npt.NDArray[np.intp]

_MEMORY = 8
_RIDGE = 1e-12
_CHECK_EVERY = 6
_BATCH = 512
# A gap below this share of the largest cost is rounding.
_ROUNDING = 1e-12
_SUM_ERROR = 1e-10
_TINY = float(np.finfo(float).tiny)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What an iterate proves, for every user, in units of λ.

    Attributes:
        values: (n,) costs, without the entropy, of plans from μ to the distributions.
        gaps: (n,) regularised costs of these plans above the dual's value.
    """

    values: FloatArray
    gaps: FloatArray

    def renewed(self, latest: "Certificate", users: BoolArray) -> "Certificate":
        """Returns this certificate with the latest one's figures for some users."""
        return Certificate(
            np.where(users, latest.values, self.values),
            np.where(users, latest.gaps, self.gaps),
        )


def error_bound(regularization: float, num_outputs: int) -> float:
    """Returns how much more than the exact projection the entropic one can cost.

    With p the order of the distance, W_p is larger by at most the p-th root.

    Args:
        regularization: The parameter λ.
        num_outputs: The number k_v of outputs.

    Returns:
        λ log k_v. Given its row sums, a plan's entropy lies within log k_v of that
        of μ; where k_v ≤ k, this is at most half of the paper's 2λ log k.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition 4.1.
    """
    return regularization * math.log(num_outputs)


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    regularization: float,
    *,
    relative_gap: float = 1e-6,
    max_iterations: int = 5000,
) -> solution.Solution:
    """Returns entropic projections of n users.

    Args:
        masses: (n, k) distributions.
        cost: (k, k_v) costs.
        polytope: The allowed distributions.
        regularization: The parameter λ.
        relative_gap: Stop at a regularised duality gap of this share of the cost.
        max_iterations: Stop then in any case.
    """
    outputs = np.flatnonzero(polytope.upper > 0)
    inner = ldp_polytope.LdpPolytope(polytope.lower[outputs], polytope.upper[outputs])
    scaled = cost[:, outputs] / regularization
    size = _BATCH if in_one_batch(cost, polytope, regularization) else 1
    parts = []
    for start in range(0, masses.shape[0], size):
        users = masses[start : start + size]
        problem = alternating_projections.make_problem(users, scaled, inner)
        parts.append(_solve_batch(problem, scaled, relative_gap, max_iterations))
    return _join(parts, outputs, polytope.lower.size, regularization)


def in_one_batch(
    cost: FloatArray, polytope: ldp_polytope.LdpPolytope, regularization: float
) -> bool:
    """Tells whether users share a kernel, so that a batch is faster than its parts."""
    return gibbs_kernel.shareable(cost[:, polytope.upper > 0] / regularization)


def certify(
    problem: alternating_projections.Problem,
    iterate: alternating_projections.Iterate,
    scaled_cost: FloatArray,
) -> Certificate:
    """Returns the cost of plans made feasible from an iterate, and their gap.

    The iterate's plan has the right columns. Its rows are scaled down to at most
    those of μ, and what is missing is added as a product of its margins. The
    entropy of the sum is bounded by convexity.
    """
    support = problem.support
    sums = problem.kernel.log_row_sums(iterate.prices)
    potentials = np.minimum(iterate.potentials, np.log(support.masses) - sums)
    rows = np.minimum(np.exp(potentials + sums), support.masses)
    columns = np.exp(iterate.prices + problem.kernel.log_column_sums(potentials))
    added, mixed = _completion(
        support,
        support.masses - rows,
        np.maximum(iterate.distributions - columns, 0.0),
        scaled_cost,
    )
    regularized = support.sums(rows * potentials) + added + mixed
    regularized += (columns * iterate.prices).sum(axis=1)
    # A sum other than one would be no distribution, and prove nothing.
    proper = np.abs(iterate.distributions.sum(axis=1) - 1) <= _SUM_ERROR
    gaps = np.maximum(regularized - iterate.dual, 0.0)
    return Certificate(
        problem.kernel.plan_costs(potentials, iterate.prices) + added,
        np.where(proper, gaps, np.inf),
    )


def _completion(
    support: gibbs_kernel.Support,
    left: FloatArray,
    right: FloatArray,
    scaled_cost: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Returns what a product of the margins that are missing adds to a plan.

    Args:
        support: Where the users have mass.
        left: What rows miss, flat.
        right: (n, k_v) what columns miss.
        scaled_cost: (k, k_v) costs over λ.

    Returns:
        (n,) its cost, and a bound of the entropy term of the whole above the plan's
        own: x log x is convex, and the whole a mix of the plan and the product.
    """
    missing = support.sums(left)
    left_shares = left / np.maximum(missing, _TINY)[support.users]
    right_shares = right / np.maximum(right.sum(axis=1, keepdims=True), _TINY)
    product = ((support.dense(left_shares) @ scaled_cost) * right_shares).sum(axis=1)
    mixed = support.sums(np.asarray(special.xlogy(left_shares, left_shares)))
    mixed += special.xlogy(right_shares, right_shares).sum(axis=1)
    mixed *= missing
    kept = np.maximum(1 - missing, 0.0)
    return missing * product, mixed - special.xlogy(kept, kept)


class _Mixing:
    """Differences of the last steps, and the mix of them that cancels the residual."""

    def __init__(self, users: int, size: int, reach: float) -> None:
        self._reach = reach
        self._images = np.zeros((users, _MEMORY, size))
        self._residuals = np.zeros((users, _MEMORY, size))
        self._place = 0

    def add(self, images: FloatArray, residuals: FloatArray, kept: BoolArray) -> None:
        """Notes a step's differences, for users whose history is kept."""
        keep = kept[:, np.newaxis]
        self._images[~kept] = 0.0
        self._residuals[~kept] = 0.0
        self._images[:, self._place] = np.where(keep, images, 0.0)
        self._residuals[:, self._place] = np.where(keep, residuals, 0.0)
        self._place = (self._place + 1) % _MEMORY

    def mixed(
        self, image: FloatArray, residual: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Returns the image, less the mix of differences that explains the residual.

        Without a history it is the image itself, a plain step.
        """
        weighted = self._residuals * weights[:, np.newaxis]
        gram = weighted @ self._residuals.transpose(0, 2, 1)
        target = (weighted @ residual[..., np.newaxis])[..., 0]
        scale = np.trace(gram, axis1=1, axis2=2)
        ridge = np.maximum(_RIDGE * scale, np.finfo(float).tiny)
        gram += ridge[:, np.newaxis, np.newaxis] * np.eye(_MEMORY)
        sound = np.isfinite(gram).all(axis=(1, 2)) & np.isfinite(target).all(axis=1)
        gram[~sound], target[~sound] = np.eye(_MEMORY), 0.0
        shares = np.linalg.solve(gram, target[..., np.newaxis])
        found = image - (shares * self._images).sum(axis=1)
        # No price differs from another by more than the costs do, or hardly.
        near = np.abs(found - image).max(axis=1, keepdims=True) <= self._reach
        return np.asarray(np.where(near, found, image))


def _solve_batch(
    problem: alternating_projections.Problem,
    scaled_cost: FloatArray,
    relative_gap: float,
    max_iterations: int,
) -> solution.Solution:
    users, size = problem.support.shape[0], problem.polytope.lower.size
    rounding = _ROUNDING * float(scaled_cost.max())
    tried = np.zeros((users, size))
    found = alternating_projections.step(problem, tried)
    residual = found.prices - tried
    mixing = _Mixing(users, size, float(scaled_cost.max()))
    certificate = certify(problem, found, scaled_cost)
    done = certificate.gaps <= relative_gap * certificate.values + rounding
    iterations = np.ones(users, dtype=np.int64)
    for count in range(2, max_iterations + 1):
        if done.all():
            break
        tried = mixing.mixed(found.prices, residual, found.distributions)
        new = alternating_projections.step(problem, tried)
        plain = (tried == found.prices).all(axis=1)
        better = plain | (new.dual >= found.dual)
        moved = better & ~done
        mixing.add(new.prices - found.prices, new.prices - tried - residual, better)
        residual = np.where(moved[:, np.newaxis], new.prices - tried, residual)
        found = _choose(moved, problem.support.users, new, found)
        iterations[~done] = count
        if count % _CHECK_EVERY == 0 or count == max_iterations:
            latest = certify(problem, found, scaled_cost)
            certificate = certificate.renewed(latest, ~done)
            done |= latest.gaps <= relative_gap * latest.values + rounding
    return solution.Solution(
        ldp_polytope.nearest(found.distributions, problem.polytope),
        found.prices,
        certificate.values,
        certificate.gaps,
        iterations,
        done,
    )


def _choose(
    first: BoolArray,
    users: IndexArray,
    one: alternating_projections.Iterate,
    other: alternating_projections.Iterate,
) -> alternating_projections.Iterate:
    """Returns the one iterate for some users, the other for the rest."""
    column = first[:, np.newaxis]
    return alternating_projections.Iterate(
        np.where(first[users], one.potentials, other.potentials),
        np.where(column, one.prices, other.prices),
        np.where(column, one.distributions, other.distributions),
        np.where(first, one.dual, other.dual),
    )


def _join(
    parts: list[solution.Solution],
    outputs: IndexArray,
    size: int,
    regularization: float,
) -> solution.Solution:
    """Returns the batches as one, in all outputs and in the unit of the costs."""
    inner = np.concatenate([part.distributions for part in parts])
    distributions = np.zeros((inner.shape[0], size))
    prices = np.zeros_like(distributions)
    distributions[:, outputs] = inner
    prices[:, outputs] = np.concatenate([part.prices for part in parts])
    return solution.Solution(
        distributions,
        regularization * prices,
        regularization * np.concatenate([part.values for part in parts]),
        regularization * np.concatenate([part.regularized_gaps for part in parts]),
        np.concatenate([part.iterations for part in parts]),
        np.concatenate([part.converged for part in parts]),
    )
