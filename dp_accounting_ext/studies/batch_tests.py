"""Exact tests of whether recorded batches were drawn in a certain way."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np
from scipy import stats

from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

# Certified: a bound on the relative rounding error of a probability.
ROUNDING = 1e-6
LEAST = 1e-300  # Smaller probabilities are reported as this one.


@dataclasses.dataclass(frozen=True)
class Test:
    """The p-value of a statistic, and what a small one shows, in words."""

    p_value: float
    words: str


class Record:
    """The recorded batches of a run, and statistics of them.

    Attributes:
        num_records: The length N of the dataset.
        steps: The number t of steps of an epoch.
        times: The number k of steps of an epoch in which each record takes part.
        sizes: (T,) sizes of the batches of all steps.
        epochs: The number of whole epochs.
        batch_size: The size of all batches but the last of an epoch, if they have one.
        rate: The probability that a record is in a step, for Poisson samples.
        counts: (epochs, N) how often each record is in an epoch; None if only sizes are
            known.
    """

    def __init__(
        self,
        run: training_run.TrainingRun,
        batches: Sequence[Any],
        num_records: int | None,
        steps_per_epoch: int | None,
    ) -> None:
        size = run.dataset_size if num_records is None else num_records
        name = "num_records, or a run's dataset_size,"
        self.num_records = fields.positive_integer(
            "num_records", training_run.given(name, size)
        )
        steps = run.num_steps
        if run.dataset_size is not None and run.batch_size is not None:
            steps = -(-run.dataset_size // run.batch_size)
        self.steps = fields.positive_integer(
            "steps_per_epoch", steps_per_epoch or steps
        )
        self.run, self.times, self.rate = run, run.batches_per_record, run.sampling_rate
        self.indices = self._indices(batches)
        if self.indices is None:
            sizes = fields.sequence("batches", batches)
            found = [fields.non_negative_integer("batches", each) for each in sizes]
        else:
            found = [each.size for each in self.indices]
        self.sizes: IntArray = np.array(found, dtype=np.int64)
        if not self.sizes.size or self.sizes.max() > self.num_records:
            raise ValueError(
                f"batches must be of one step at least, each of at most num_records = "
                f"{self.num_records} records. Found {self.sizes.size} steps of up to "
                f"{self.sizes.max(initial=0)}."
            )
        self.epochs = self.sizes.size // self.steps
        self.of_epochs = self.sizes[: self.epochs * self.steps].reshape(-1, self.steps)
        # Not read from the batches, as a test must be fixed before they are seen.
        self.batch_size = run.batch_size or -(
            -self.times * self.num_records // self.steps
        )
        self.counts = self._counts()

    def _indices(self, batches: Sequence[Any]) -> list[IntArray] | None:
        """Returns the records of each step, or None if sizes are given."""
        if all(np.ndim(each) == 0 for each in batches):
            return None
        found = [np.asarray(each) for each in batches]
        for each in found:
            if each.ndim != 1 or (each.size and each.dtype.kind not in "iu"):
                raise TypeError(
                    f"batches must be numbers of records, or of each step the indices "
                    f"of its records. Found {each!r:.60}."
                )
            if each.size and not 0 <= each.min() <= each.max() < self.num_records:
                raise ValueError(
                    f"batches must have indices from 0 to num_records − 1 = "
                    f"{self.num_records - 1}. Found {each.min()} to {each.max()}."
                )
        return [each.astype(np.int64) for each in found]

    def _counts(self) -> IntArray | None:
        if self.indices is None:
            return None
        counts = [
            np.bincount(np.concatenate(epoch), minlength=self.num_records)
            for epoch in self._by_epoch(self.indices)
        ]
        shape = (self.epochs, self.num_records)
        return np.array(counts, dtype=np.int64).reshape(shape)

    def _by_epoch(self, parts: list[IntArray]) -> Iterator[list[IntArray]]:
        for first in range(0, self.epochs * self.steps, self.steps):
            yield parts[first : first + self.steps]

    @property
    def is_repeated_within(self) -> bool:
        """Whether a record is twice in one batch."""
        return any(np.unique(x).size < x.size for x in self.indices or [])

    @property
    def rest(self) -> IntArray:
        """(N,) how often each record is in the steps after the last whole epoch."""
        parts = (self.indices or [])[self.epochs * self.steps :]
        whole = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        return np.bincount(whole, minlength=self.num_records)

    def overlaps(self) -> tuple[int, int]:
        """Returns how often records are in the same steps of two epochs, in all pairs.

        It also returns the number of pairs. Each epoch is paired with the next one, and
        none is in two pairs.
        """
        codes = [
            np.concatenate([x * self.steps + step for step, x in enumerate(epoch)])
            for epoch in self._by_epoch(self.indices or [])
        ]
        pairs = list(zip(codes[::2], codes[1::2], strict=False))
        return sum(np.intersect1d(*pair).size for pair in pairs), len(pairs)

    def pairs_of_steps(self) -> tuple[IntArray, IntArray] | None:
        """Returns differences of adjacent sizes, and numbers of records in only one.

        It is None if it is not known which records are in only one of two steps.
        """
        half = self.steps // 2 * 2
        left, right = self.of_epochs[:, :half:2], self.of_epochs[:, 1:half:2]
        if self.times == 1 or self.indices is None:
            alone = left + right if self.times == 1 else None
        else:
            alone = np.array(
                [
                    np.setxor1d(epoch[step], epoch[step + 1]).size
                    for epoch in self._by_epoch(self.indices)
                    for step in range(0, half, 2)
                ],
                dtype=np.int64,
            ).reshape(left.shape)
        return None if alone is None else ((left - right).ravel(), alone.ravel())

    @property
    def cut(self) -> IntArray:
        """(t,) sizes of the batches of an epoch that are cut from a dataset."""
        last = self.times * self.num_records - self.batch_size * (self.steps - 1)
        cut = np.full(self.steps, self.batch_size)
        cut[-1] = min(max(last, 0), self.batch_size)
        return cut


def _rejects(p_values: list[float], others: int, level: float) -> float:
    """Returns 0 if one of these p-values rejects among all tests, otherwise 1."""
    share = level / (len(p_values) + others) * (1 - ROUNDING)
    return 0.0 if min(p_values, default=1.0) <= share else 1.0


def _at_most(logarithm: float) -> float:
    """Returns the probability with a given logarithm, rounded up."""
    return min(max(math.exp(min(logarithm, 0.0)) * (1 + ROUNDING), LEAST), 1.0)


def _too_many_steps(record: Record, steps: int) -> str:
    if record.sizes.size > steps:
        return f"{record.sizes.size} steps ran, and {steps} are accounted for"
    return ""


# Poisson samples.


def certain_of_poisson(record: Record) -> str:
    """Returns what no run of Poisson samples does, or an empty string."""
    if record.is_repeated_within:
        return "a record is twice in one batch"
    return _too_many_steps(record, record.run.num_samples)


def of_poisson(record: Record) -> list[Test]:
    """Returns exact tests of samples at the run's rate, or at a smaller one."""
    sizes = record.sizes
    drawn, number = int(sizes.sum()), record.num_records * sizes.size
    whole = record.of_epochs.sum(axis=1) == record.times * record.num_records
    tests = [
        Test(
            float(stats.binom.sf(drawn - 1, number, record.rate)),
            "batches are too large for the rate",
        ),
        Test(_exact_sums(record, int(whole.sum())), "epochs have all records"),
        Test(
            _exact_sizes(record, int((sizes == record.batch_size).sum())),
            "too many batches have one size",
        ),
    ]
    if record.indices is None or record.counts is None:
        return tests
    alike, pairs = record.overlaps()
    most = int((record.counts.sum(axis=0) + record.rest).max())
    often = stats.binom.sf(most - 1, sizes.size, record.rate) * record.num_records
    again = stats.binom.sf(
        alike - 1, record.num_records * record.steps * pairs, record.rate**2
    )
    exact = int((record.counts == record.times).sum())
    return [
        tests[0],
        Test(float(again), "epochs repeat the batches of others"),
        *tests[1:],
        Test(
            _exact_counts(record, exact), "too many records are as often in each epoch"
        ),
        Test(float(often), "a record is too often in batches"),
    ]


def _exact_sums(record: Record, found: int) -> float:
    """Returns the probability of at least `found` epochs whose sizes sum to k N."""
    drawn, number = record.times * record.num_records, record.num_records * record.steps
    probability = stats.binom.pmf(drawn, number, min(record.rate, drawn / number))
    return float(stats.binom.sf(found - 1, record.epochs, probability))


def _exact_sizes(record: Record, found: int) -> float:
    """Returns the probability of at least `found` steps of the run's batch size."""
    size, number = record.batch_size, record.num_records
    probability = stats.binom.pmf(size, number, min(record.rate, size / number))
    return float(stats.binom.sf(found - 1, record.sizes.size, probability))


def _exact_counts(record: Record, found: int) -> float:
    """Returns the probability of at least `found` records that are in k steps."""
    k, t = record.times, record.steps
    probability = stats.binom.pmf(k, t, min(record.rate, k / t))
    return float(
        stats.binom.sf(found - 1, record.epochs * record.num_records, probability)
    )


def exact_as_poisson(record: Record, level: float, scheme: str) -> float:
    """Returns 1 if epochs without any deviation fit Poisson samples, otherwise 0."""
    records, k = record.num_records, record.times
    is_shuffled = scheme == training_run.SHUFFLED
    is_whole = not is_shuffled or int(record.cut.sum()) == k * records
    p_values = [_exact_sums(record, record.epochs)] * is_whole
    if is_shuffled:
        full = int((record.cut == record.batch_size).sum()) * record.epochs
        p_values.append(_exact_sizes(record, full))
    if record.indices is not None and (is_whole or k == 1):
        covered = records if is_whole else int(record.cut.sum())
        p_values.append(_exact_counts(record, covered * record.epochs))
    return _rejects(p_values, len(of_poisson(record)) - len(p_values), level)


# Random allocation.


def certain_of_allocation(record: Record) -> str:
    """Returns what no run of random allocation does, or an empty string."""
    k, total = record.times, record.times * record.num_records
    times = "once" if k == 1 else f"{k} times"
    if record.is_repeated_within:
        return "a record is twice in one batch"
    if record.steps < record.run.num_steps:
        return (
            f"epochs have {record.steps} steps, and {record.run.num_steps} are "
            f"accounted for"
        )
    if (record.of_epochs.sum(axis=1) != total).any():
        return f"an epoch's batches are not of {total} records in all"
    if record.counts is not None and (
        (record.counts != k).any() or (record.rest > k).any()
    ):
        return f"a record is not {times} in an epoch"
    rest = record.sizes[record.epochs * record.steps :].sum()
    if rest > total:
        return f"the last epoch's batches are of more than {total} records"
    return _too_many_epochs(record)


def _too_many_epochs(record: Record) -> str:
    whole, part = record.run.whole_and_part
    return _too_many_steps(record, whole * record.steps + part)


def of_allocation(record: Record) -> list[Test]:
    """Returns exact tests of records that each draw independently, in every epoch."""
    tests = []
    if record.indices is not None:
        tests.append(Test(_repeated(record), "epochs repeat the batches of others"))
    steps = record.pairs_of_steps()
    if steps is not None:
        tests.append(Test(_too_alike(*steps), "batches are too alike in size"))
    return tests or [Test(1.0, "")]


def _too_alike(differences: IntArray, alone: IntArray) -> float:
    """Returns the p-value of the number of adjacent steps of nearly the same size.

    A record that is in just one of two adjacent steps is in either of them with
    probability 1/2, whatever else is known. So a difference of at most 1 has a known
    probability in each pair, and pairs are independent.

    Source:
        Hoeffding 1956 (Ann. Math. Stat. 27, Theorem 4): a number of successes above the
        mean is most likely if all independent trials have the same probability.
    """
    near = np.asarray(stats.binom.cdf((alone + 1) // 2, alone, 0.5))
    near = near - stats.binom.cdf(alone // 2 - 1, alone, 0.5)
    found, mean = int((np.abs(differences) <= 1).sum()), float(near.sum())
    if not near.size or found < mean + 1:
        return 1.0
    return float(stats.binom.sf(found - 1, near.size, mean / near.size))


def _repeated(record: Record) -> float:
    """Returns a bound on the p-value of the number of draws that epochs share.

    Source:
        Hoeffding 1963 (JASA 58, Theorem 4): the moment generating function of draws
        without replacement is at most that of independent draws.
    """
    alike, pairs = record.overlaps()
    k, t = record.times, record.steps
    number = record.num_records * pairs * k
    if k == 1:
        return float(stats.binom.sf(alike - 1, number, 1 / t))
    share, mean = alike / max(number, 1), k / t
    if share <= mean:
        return 1.0
    if share >= 1:
        return math.exp(number * math.log(mean))
    distance = share * math.log(share / mean)
    distance += (1 - share) * math.log((1 - share) / (1 - mean)) if mean < 1 else 0.0
    return math.exp(-number * distance)


def poisson_as_allocation(record: Record) -> float:
    """Returns the probability that Poisson samples of any rate have exact epochs."""
    k, t, records = record.times, record.steps, record.num_records
    if record.indices is not None:
        each = stats.binom.logpmf(k, t, k / t) * records
    else:
        each = stats.binom.logpmf(k * records, records * t, k / t)
    return _at_most(float(each) * record.epochs)


def shuffle_as_allocation(record: Record, level: float) -> float:
    """Returns 1 if epochs that are cut from a dataset fit allocation, otherwise 0."""
    cut = record.cut
    if int(cut.sum()) != record.times * record.num_records:
        return 0.0 if record.epochs else 1.0
    steps = record.pairs_of_steps()
    if steps is None:
        return 1.0
    half = record.steps // 2 * 2
    left, right = (np.tile(cut[side:half:2], record.epochs) for side in (0, 1))
    alone = left + right if record.times == 1 else steps[1]
    p_value = _too_alike(left - right, alone)
    return _rejects([p_value], len(of_allocation(record)) - 1, level)


# Shuffled or fixed batches.


def certain_of_shuffle(record: Record) -> str:
    """Returns what no run of shuffled or fixed batches does, or an empty string."""
    cut, k = record.cut, record.times
    if record.is_repeated_within:
        return "a record is twice in one batch"
    number = -(-record.sizes.size // record.steps)
    expected = np.tile(cut, number)[: record.sizes.size]
    if (record.sizes != expected).any():
        step = int(np.flatnonzero(record.sizes != expected)[0])
        return (
            f"step {step + 1} has {record.sizes[step]} records, where an epoch that is "
            f"cut has {expected[step]}"
        )
    if record.counts is not None and (
        (record.counts > k).any() or (record.rest > k).any()
    ):
        return f"a record is more than {k} time{'s' * (k > 1)} in an epoch"
    return _too_many_epochs(record)


def poisson_as_shuffle(record: Record) -> float:
    """Returns the probability that Poisson samples have the sizes of cut epochs."""
    size, number = record.batch_size, record.num_records
    full = int((record.cut == size).sum()) * record.epochs
    logarithm = full * float(stats.binom.logpmf(size, number, size / number))
    return _at_most(logarithm)


def allocation_as_shuffle(record: Record) -> float:
    """Returns the probability that draws of each record have the sizes of a cut."""
    cut, records, k = record.cut, record.num_records, record.times
    if int(cut.sum()) != k * records:
        return 0.0 if record.epochs else 1.0
    if k == 1:
        probabilities = np.full(record.steps, 1 / record.steps)
        each = float(stats.multinomial.logpmf(cut, records, probabilities))
    else:  # One step of each epoch is used, so that epochs are independent.
        each = float(stats.binom.logpmf(cut[0], records, k / record.steps))
    return _at_most(each * record.epochs)
