"""Events with correlated noise: matrix mechanisms, by the ways of drawing batches."""

from collections.abc import Sequence

import attr
from dp_accounting import dp_event

from dp_accounting_ext.correlated import strategies

__all__ = [
    "CyclicPoissonEvent",
    "MatrixAllocationEvent",
    "MinSepSamplingEvent",
    "PoissonMatrixEvent",
    "SelectedStepsMatrixEvent",
    "WindowedAllocationEvent",
]
__dir__ = __all__.copy


@attr.s(frozen=True, slots=True, auto_attribs=True)
class _MatrixEvent(dp_event.DpEvent):
    """A run with a strategy matrix and noise."""

    strategy: Sequence[float] | Sequence[Sequence[float]] = attr.ib(
        converter=strategies.nested_tuple
    )
    noise_multiplier: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MatrixAllocationEvent(_MatrixEvent):
    """Represents training with correlated noise and balls-in-bins batches.

    Every record draws one of b = `num_bins` bins, uniformly and independently of all
    others, and takes part in the steps i, i + b, i + 2b, … of `num_epochs` epochs,
    n = b · `num_epochs` steps in all.

    The run releases C x + z. The matrix x has one row for each step. A record
    contributes a vector of norm at most 1 to the row of each step in which it takes
    part. The strategy C is a lower triangular (n, n) matrix with no negative entry.
    The noise z is Gaussian with the standard deviation `noise_multiplier`. Later
    contributions may depend on what was released. The draws are secret.

    Let m_i be the sum of the columns i, i + b, … of C. P is the mean of N(m_i, σ² I)
    over the bins i, and Q is N(0, σ² I).

    Source: https://arxiv.org/abs/2410.06266, Lemma 3.2.

    Attributes:
        strategy: C: the first column (c_0, c_1, …) of a Toeplitz matrix, zeros beyond
            its end, or the n rows of any matrix.
        noise_multiplier: σ, over the largest norm of a contribution (not of a column).
        num_bins: The number of bins, and of steps of an epoch, b.
        num_epochs: The number of epochs, and of steps in which each record takes part.
    """

    num_bins: int
    num_epochs: int

    @classmethod
    def from_buffered_toeplitz(
        cls,
        decays: Sequence[float],
        scales: Sequence[float],
        noise_multiplier: float,
        num_bins: int,
        num_epochs: int,
    ) -> "MatrixAllocationEvent":
        """Returns the event of a buffered linear Toeplitz matrix (BLT).

        Args:
            decays: The decay θ of each buffer.
            scales: The scale ω of each buffer: c_0 = 1 and c_t = Σ ω θ^{t − 1}.
            noise_multiplier: As for the event.
            num_bins: As for the event.
            num_epochs: As for the event.

        Raises:
            TypeError, ValueError: If decays and scales are not equally many numbers,
                if a decay is not in [0, 1], or if there are too many steps.
        """
        _, steps = strategies.bins(num_bins, num_epochs)
        column = strategies.buffered_toeplitz(decays, scales, steps)
        return cls(column, noise_multiplier, num_bins, num_epochs)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class WindowedAllocationEvent(_MatrixEvent):
    """Represents training with correlated noise and fresh windows with a guard.

    The run has `num_cycles` cycles of L = `window` + `separation` − 1 steps. In every
    cycle every record takes part with probability `sampling_probability`. It then
    takes part in one step, drawn uniformly from the first `window` steps of the cycle.
    No record takes part in the other steps, the guard. Each record draws anew in each
    cycle, independently of all other records, and the draws are secret. Any two of its
    steps are at least `separation` apart. So that batches have similar sizes, a
    record's cycles may begin at an offset of its own, which is public and does not
    depend on the data. Steps are then counted modulo the run's length,
    n = L · `num_cycles`.

    The run releases C x + z. The matrix x has one row for each step. A record
    contributes a vector of norm at most 1 to the row of each step in which it takes
    part. The strategy C is a lower triangular Toeplitz matrix with no negative
    entry and at most `separation` bands. The noise z is Gaussian with the standard
    deviation `noise_multiplier`. Later contributions may depend on what was
    released.

    The columns of steps in different cycles are orthogonal. Let c_i be the columns of
    C. Then Q is N(0, σ² I), and P is a product over the cycles. Its factor for a cycle
    is (1 − q) N(0, σ² I) plus q times the mean of N(c_i, σ² I) over the window. With a
    window of one step this is cyclic Poisson sampling, with the probability q in each
    cycle.

    Source: https://arxiv.org/abs/2306.08153, Theorem 4, for a window of one step;
    docs/matrix.md, "Fresh windows", for all.

    Attributes:
        strategy: The first column (c_0, c_1, …) of C, zeros beyond its end.
        noise_multiplier: σ, over the largest norm of a contribution (not of a column).
        window: The steps of a cycle from which a record draws one, w ≥ 1.
        separation: The least distance between two steps of a record, b ≥ 1.
        num_cycles: The number of cycles.
        sampling_probability: The probability q that a record takes part in a cycle.
    """

    window: int
    separation: int
    num_cycles: int
    sampling_probability: float = 1.0


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MinSepSamplingEvent(_MatrixEvent):
    """Represents training with correlated noise and b-min-sep sampling.

    In each of `num_steps` steps every record that is ready takes part with probability
    p = `sampling_probability`, independently of all others. A record that took part is
    ready again `separation` = b steps later, so that any two of its steps are at least
    b apart. At the start all records are ready. With a warm start, each record is in
    the stationary state instead: it is ready at step 0 with probability
    1 / (1 + (b − 1) p), and becomes ready at step i with probability
    p / (1 + (b − 1) p), for each i from 1 to b − 1. Every batch then has a share of
    p / (1 + (b − 1) p) of all records on average. The draws are secret.

    The run releases C x + z. The matrix x has one row for each step. A record
    contributes a vector of norm at most 1 to the row of each step in which it takes
    part. The strategy C is a lower triangular matrix with no negative entry and at
    most b bands. The noise z is Gaussian with the standard deviation
    `noise_multiplier`. Later contributions may depend on what was released.

    Let c_i be the columns of C, and S the random set of a record's steps. P is the
    mixture of N(Σ_{i ∈ S} c_i, σ² I) over S, and Q is N(0, σ² I).

    Source: https://arxiv.org/abs/2602.09338 for the scheme; docs/matrix.md, "A record
    that stays out for b steps", for its bounds.

    Attributes:
        strategy: C: the first column (c_0, c_1, …) of a Toeplitz matrix, zeros beyond
            its end, or the n rows of any matrix.
        noise_multiplier: σ, over the largest norm of a contribution (not of a column).
        sampling_probability: The probability p that a record takes part in a step, if
            it is ready.
        separation: The least distance between two steps of a record, b ≥ 1.
        num_steps: The number of steps, n.
        warm_start: Whether records are in their stationary state at the start.
    """

    sampling_probability: float
    separation: int
    num_steps: int
    warm_start: bool = True


@attr.s(frozen=True, slots=True, auto_attribs=True)
class CyclicPoissonEvent(_MatrixEvent):
    """Represents training with cyclic Poisson sampling whose groups are secret.

    Every record draws one of b = `cycle_length` groups, uniformly and independently of
    all others. In each of `num_steps` steps the batch is a Poisson sample of one group,
    with probability `sampling_probability`. It is the first group in steps 0, b, 2b, …,
    the second group in steps 1, b + 1, …, and so on. Groups and samples are secret. (If
    a record's group is known, the run is a composition of Poisson samples, one for each
    cycle.)

    The run releases C x + z. The matrix x has one row for each step. A record
    contributes a vector of norm at most 1 to the row of each step in which it takes
    part. The strategy C is a lower triangular matrix with no negative entry. The noise
    z is Gaussian with the standard deviation `noise_multiplier`. Later contributions
    may depend on what was released. With more than b bands, the steps of a record share
    noise, which costs more.

    Let c_i be the columns of C, and S the random set of a record's steps: each step of
    its group is in S with probability q. P is the mixture of N(Σ_{i ∈ S} c_i, σ² I)
    over the groups and S, and Q is N(0, σ² I).

    Source: https://arxiv.org/abs/2306.08153, Theorem 4, for a group that is known and
    at most b bands; docs/matrix.md has a proof for any law of a record's steps.

    Attributes:
        strategy: C: the first column (c_0, c_1, …) of a Toeplitz matrix, zeros beyond
            its end, or the n rows of any matrix.
        noise_multiplier: σ, over the largest norm of a contribution (not of a column).
        sampling_probability: The probability q that a record of the group takes part.
        cycle_length: The number of groups, b ≥ 1.
        num_steps: The number of steps.
    """

    sampling_probability: float
    cycle_length: int
    num_steps: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PoissonMatrixEvent(_MatrixEvent):
    """Represents training with correlated noise on Poisson samples.

    In each of `num_steps` steps the batch is a Poisson sample of all records with
    probability `sampling_probability`. It is drawn anew in each step, and is secret. A
    record may take part in steps that are near each other, whose noise is correlated.
    This costs more privacy than schemes that keep a record's steps apart, such as
    `MinSepSamplingEvent`.

    The run releases C x + z. The matrix x has one row for each step. A record
    contributes a vector of norm at most 1 to the row of each step in which it takes
    part. The strategy C is a lower triangular matrix with no negative entry. The noise
    z is Gaussian with the standard deviation `noise_multiplier`. Later contributions
    may depend on what was released.

    Let c_i be the columns of C, and S a random set that holds each step with
    probability q, independently of the others. P is the mixture of
    N(Σ_{i ∈ S} c_i, σ² I) over S, and Q is N(0, σ² I).

    Source: https://arxiv.org/abs/2410.06266, Lemma 3.2; docs/matrix.md has a proof for
    any law of a record's steps.

    Attributes:
        strategy: C: the first column (c_0, c_1, …) of a Toeplitz matrix, zeros beyond
            its end, or the n rows of any matrix.
        noise_multiplier: σ, over the largest norm of a contribution (not of a column).
        sampling_probability: The probability q that a record takes part in a step.
        num_steps: The number of steps.
    """

    sampling_probability: float
    num_steps: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SelectedStepsMatrixEvent(_MatrixEvent):
    """Represents training with correlated noise where each record joins k of t steps.

    In every one of `num_epochs` epochs, and independently of all others, each record
    draws a set of `num_selected` of the epoch's `num_steps` steps, uniformly at random.
    The draws are secret. A record may take part in steps that are near each other,
    whose noise is correlated: that costs more than schemes which keep its steps apart,
    such as `MatrixAllocationEvent` (balls in bins).

    The run has n = `num_steps` · `num_epochs` steps. It releases C x + z. The matrix x
    has one row for each step. A record contributes a vector of norm at most 1 to the
    row of each step in which it takes part. The strategy C is a lower triangular (n, n)
    matrix with no negative entry. The noise z is Gaussian with the standard deviation
    `noise_multiplier`. Later contributions may depend on what was released.

    Let c_i be the columns of C, and S the random set of a record's steps. P is the mean
    of N(Σ_{i ∈ S} c_i, σ² I) over all sets S that can be drawn, and Q is N(0, σ² I).

    Source: https://arxiv.org/abs/2410.06266, Lemma 3.2; docs/matrix.md has a proof for
    any law of a record's steps.

    Attributes:
        strategy: C: the first column (c_0, c_1, …) of a Toeplitz matrix, zeros beyond
            its end, or the n rows of any matrix.
        noise_multiplier: σ, over the largest norm of a contribution (not of a column).
        num_selected: In how many steps of an epoch each record takes part, k ≥ 1.
        num_steps: The number of steps of an epoch, t ≥ k.
        num_epochs: The number of epochs.
    """

    num_selected: int
    num_steps: int
    num_epochs: int = 1
