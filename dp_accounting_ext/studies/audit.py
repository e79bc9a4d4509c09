"""Which way of drawing batches recorded batches fit, and which they refute.

    findings = audit.audit(run, batches)  # The records of each step, or their number.
    print(audit.in_words(findings))

An ε is of the way in which batches were drawn, and recorded batches can show another
one. Each way of drawing them is tested by what is certain of it (each record once in an
epoch) and by exact tests, of which none rejects a run of its own with more than its
share of the false alarms (a union bound). They cannot show everything: neither whether
a record's absence would have moved others, nor what an adversary knows.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import textwrap
from typing import Any

import numpy as np
from scipy import stats

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.validation import fields

__all__ = [
    "AUDITED",
    "Finding",
    "Findings",
    "audit",
    "in_words",
]
__dir__ = __all__.copy


AUDITED = (
    training_run.RANDOM_ALLOCATION,
    training_run.POISSON_SAMPLING,
    training_run.SHUFFLED,
)
# Certified: more than the rounding of a chance, relatively.
_ROUNDING = 1e-6
_LEAST = 1e-300  # Chances that are smaller are said to be this.
_DIGITS = 3


@dataclasses.dataclass(frozen=True)
class Finding(displays.Displayed):
    """What recorded batches say of one way of drawing them.

    Attributes:
        sampling: The way, a name in `training_run.SCHEMES`.
        refuted_by: What they show that it does not do; empty where they fit.
        false_alarm: The chance, at most, that batches drawn so are refuted.
        missed: Of each other way, the chance, at most, that batches drawn so fit this
            one. Where it is 1, this record of batches cannot tell the two apart.
    """

    sampling: str
    refuted_by: str
    false_alarm: float
    missed: Mapping[str, float]

    @property
    def fits(self) -> bool:
        """Whether nothing refutes it."""
        return not self.refuted_by

    def _display(self) -> displays.Table:
        return Findings([self])._display()


class Findings(displays.Displayed, list[Finding]):
    """A list of findings that shows itself as a table."""

    def _display(self) -> displays.Table:
        rows = []
        for each in self:
            missed = [f"{name}: {_up(each.missed[name])}" for name in each.missed]
            told = "the batches fit", f"passed by {'; '.join(missed)}"
            if not each.fits:
                told = "refuted", each.refuted_by
            rows.append((each.sampling, *told))
        return displays.Table(
            "what recorded batches say; chances are upper bounds",
            ("sampling", "verdict", "why, or which others fit with what chance"),
            rows,
            names=3,
        )


@dataclasses.dataclass(frozen=True)
class _Test:
    """A chance that the statistic is as large, and what that would show."""

    chance: float
    words: str


class _Record:
    """The batches of a run, and what is counted of them.

    Attributes:
        num_records: N.
        steps: Steps of an epoch, t.
        times: Steps of an epoch that a record is in, k.
        sizes: (T,) of each step.
        epochs: Whole epochs among these.
        batch_size: Of all batches but an epoch's last, where they have one size.
        rate: The chance that a record is in a step, of Poisson samples.
        counts: (epochs, N) how often each record is in an epoch; None of sizes alone.
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
        # Not of the batches: what is tested is to be known before they are seen.
        self.batch_size = run.batch_size or -(
            -self.times * self.num_records // self.steps
        )
        self.counts = self._counts()

    def _indices(self, batches: Sequence[Any]) -> list[IntArray] | None:
        """Returns the records of each step; None where sizes are given."""
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
        """Returns how often records are in the same steps of two epochs, and pairs.

        Epochs are paired, each with the next one and none twice.
        """
        codes = [
            np.concatenate([x * self.steps + step for step, x in enumerate(epoch)])
            for epoch in self._by_epoch(self.indices or [])
        ]
        pairs = list(zip(codes[::2], codes[1::2], strict=False))
        return sum(np.intersect1d(*pair).size for pair in pairs), len(pairs)

    def pairs_of_steps(self) -> tuple[IntArray, IntArray] | None:
        """Returns, of neighboring steps, sizes' differences and records of just one.

        None where those in just one are not known.
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
        """(t,) sizes of an epoch's batches, where they are cut from a dataset."""
        last = self.times * self.num_records - self.batch_size * (self.steps - 1)
        cut = np.full(self.steps, self.batch_size)
        cut[-1] = min(max(last, 0), self.batch_size)
        return cut


def audit(
    run: training_run.TrainingRun,
    batches: Sequence[Any],
    *,
    num_records: int | None = None,
    steps_per_epoch: int | None = None,
    false_alarm: float = 1e-3,
) -> Findings:
    """Returns what recorded batches say of each way of drawing them.

    Args:
        run: What is said to have run; its noise, δ and sampling are not looked at.
        batches: Of each step, in order, the indices of its records, or their number.
            From sizes alone less can be told.
        num_records: Length of the dataset; by default the run's `dataset_size`.
        steps_per_epoch: Batches of an epoch; by default the run's, rounded up. (A
            loader that drops its last batch has one less.)
        false_alarm: The chance, at most, that batches are refuted which were drawn so.

    Returns:
        A finding for each of `AUDITED`.

    Raises:
        TypeError, ValueError: If an argument is not what its name says.

    Guarantees:
        A run whose batches were drawn in one of these ways, independently of all else,
        is refuted as such with the chance `false_alarm` at most, and fits another one
        with the chance in `missed` at most.
    """
    level = fields.probability("false_alarm", false_alarm)
    if not 0 < level < 1:
        raise ValueError(f"false_alarm must be in (0, 1). Found {false_alarm}.")
    if not isinstance(run, training_run.TrainingRun):
        raise TypeError(f"run must be a TrainingRun. Found {run!r:.60}.")
    record = _Record(run, batches, num_records, steps_per_epoch)
    allocation, poisson, shuffled = AUDITED
    return Findings(
        [
            Finding(
                allocation,
                _certain_of_allocation(record)
                or _failed(_of_allocation(record), level),
                level,
                {
                    poisson: _poisson_as_allocation(record),
                    shuffled: _shuffle_as_allocation(record, level),
                },
            ),
            Finding(
                poisson,
                _certain_of_poisson(record) or _failed(_of_poisson(record), level),
                level,
                {
                    allocation: _exact_as_poisson(record, level, allocation),
                    shuffled: _exact_as_poisson(record, level, shuffled),
                },
            ),
            Finding(
                shuffled,
                _certain_of_shuffle(record),
                level,
                {
                    allocation: _allocation_as_shuffle(record),
                    poisson: _poisson_as_shuffle(record),
                },
            ),
        ]
    )


def in_words(findings: Sequence[Finding]) -> str:
    """Returns the findings as sentences, on lines of at most 80 letters."""
    told = []
    for finding in findings:
        name = finding.sampling
        if finding.refuted_by:
            words = f"refuted: {finding.refuted_by}. Batches drawn so are refuted with "
            words += f"a chance of at most {finding.false_alarm:g}."
        else:
            words = "the batches fit."
            for other, chance in finding.missed.items():
                words += f" Those of {other} fit with a chance of at most "
                words += f"{_up(chance)}{', so are not told apart' * (chance == 1)}."
        told.append(textwrap.fill(f"{name}: {words}", 80, subsequent_indent="    "))
    return "\n".join(told)


def _up(chance: float) -> str:
    """Returns a chance in few digits, not below it."""
    for digits in range(_DIGITS, 18):
        found = f"{chance * (1 + 10.0 ** (1 - digits)):.{digits}g}"
        if float(found) >= chance:
            return found if float(found) < 1 else "1"
    return repr(chance)


def _failed(tests: list[_Test], level: float) -> str:
    """Returns what the first test shows that rejects at its share of the level."""
    share = level / len(tests) * (1 - _ROUNDING)
    for test in tests:
        if test.chance <= share:
            return f"{test.words} (p = {max(test.chance, _LEAST):.2g})"
    return ""


def _rejects(chances: list[float], others: int, level: float) -> float:
    """Returns 0 if one of these chances is small enough among all tests, or else 1."""
    share = level / (len(chances) + others) * (1 - _ROUNDING)
    return 0.0 if min(chances, default=1.0) <= share else 1.0


def _at_most(logarithm: float) -> float:
    """Returns a chance, rounded up."""
    return min(max(math.exp(min(logarithm, 0.0)) * (1 + _ROUNDING), _LEAST), 1.0)


def _too_many_steps(record: _Record, steps: int) -> str:
    if record.sizes.size > steps:
        return f"{record.sizes.size} steps ran, and {steps} are accounted for"
    return ""


# Poisson samples.


def _certain_of_poisson(record: _Record) -> str:
    if record.is_repeated_within:
        return "a record is twice in one batch"
    return _too_many_steps(record, record.run.num_samples)


def _of_poisson(record: _Record) -> list[_Test]:
    """Returns exact tests of samples at the run's rate, or at a smaller one."""
    sizes = record.sizes
    drawn, number = int(sizes.sum()), record.num_records * sizes.size
    whole = record.of_epochs.sum(axis=1) == record.times * record.num_records
    tests = [
        _Test(
            float(stats.binom.sf(drawn - 1, number, record.rate)),
            "batches are too large for the rate",
        ),
        _Test(_exact_sums(record, int(whole.sum())), "epochs have all records"),
        _Test(
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
        _Test(float(again), "epochs repeat the batches of others"),
        *tests[1:],
        _Test(
            _exact_counts(record, exact), "too many records are as often in each epoch"
        ),
        _Test(float(often), "a record is too often in batches"),
    ]


def _exact_sums(record: _Record, found: int) -> float:
    """Returns the chance of so many epochs in which the sizes' sum is k N."""
    drawn, number = record.times * record.num_records, record.num_records * record.steps
    chance = stats.binom.pmf(drawn, number, min(record.rate, drawn / number))
    return float(stats.binom.sf(found - 1, record.epochs, chance))


def _exact_sizes(record: _Record, found: int) -> float:
    """Returns the chance of so many steps of the run's batch size."""
    size, number = record.batch_size, record.num_records
    chance = stats.binom.pmf(size, number, min(record.rate, size / number))
    return float(stats.binom.sf(found - 1, record.sizes.size, chance))


def _exact_counts(record: _Record, found: int) -> float:
    """Returns the chance of so many records that are just k times in an epoch."""
    k, t = record.times, record.steps
    chance = stats.binom.pmf(k, t, min(record.rate, k / t))
    return float(stats.binom.sf(found - 1, record.epochs * record.num_records, chance))


def _exact_as_poisson(record: _Record, level: float, scheme: str) -> float:
    """Returns the chance that exact epochs fit Poisson samples: it is 0 or 1."""
    records, k = record.num_records, record.times
    is_shuffled = scheme == training_run.SHUFFLED
    is_whole = not is_shuffled or int(record.cut.sum()) == k * records
    chances = [_exact_sums(record, record.epochs)] * is_whole
    if is_shuffled:
        full = int((record.cut == record.batch_size).sum()) * record.epochs
        chances.append(_exact_sizes(record, full))
    if record.indices is not None and (is_whole or k == 1):
        covered = records if is_whole else int(record.cut.sum())
        chances.append(_exact_counts(record, covered * record.epochs))
    return _rejects(chances, len(_of_poisson(record)) - len(chances), level)


# Random allocation.


def _certain_of_allocation(record: _Record) -> str:
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


def _too_many_epochs(record: _Record) -> str:
    whole, part = record.run.whole_and_part
    return _too_many_steps(record, whole * record.steps + part)


def _of_allocation(record: _Record) -> list[_Test]:
    """Returns exact tests of records that draw on their own and anew."""
    tests = []
    if record.indices is not None:
        tests.append(_Test(_repeated(record), "epochs repeat the batches of others"))
    steps = record.pairs_of_steps()
    if steps is not None:
        tests.append(_Test(_too_alike(*steps), "batches are too alike in size"))
    return tests or [_Test(1.0, "")]


def _too_alike(differences: IntArray, alone: IntArray) -> float:
    """Returns the chance of so many pairs of steps that are of nearly one size.

    Of the records that are in just one of two steps each is in either with the chance
    1/2, whatever else is known: a difference of 1 at most has a chance of its own in
    each pair, and pairs are independent.

    Source:
        Hoeffding 1956 (Ann. Math. Stat. 27, Theorem 4): of independent trials, so many
        successes above the mean are no likelier than with their mean chance for all.
    """
    near = np.asarray(stats.binom.cdf((alone + 1) // 2, alone, 0.5))
    near = near - stats.binom.cdf(alone // 2 - 1, alone, 0.5)
    found, mean = int((np.abs(differences) <= 1).sum()), float(near.sum())
    if not near.size or found < mean + 1:
        return 1.0
    return float(stats.binom.sf(found - 1, near.size, mean / near.size))


def _repeated(record: _Record) -> float:
    """Returns a bound on the chance that epochs have so many draws in common.

    Source:
        Hoeffding 1963 (JASA 58, Theorem 4): draws without replacement have the moment
        generating function of independent ones at most.
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


def _poisson_as_allocation(record: _Record) -> float:
    """Returns the chance that Poisson samples, of any rate, have exact epochs."""
    k, t, records = record.times, record.steps, record.num_records
    if record.indices is not None:
        each = stats.binom.logpmf(k, t, k / t) * records
    else:
        each = stats.binom.logpmf(k * records, records * t, k / t)
    return _at_most(float(each) * record.epochs)


def _shuffle_as_allocation(record: _Record, level: float) -> float:
    """Returns the chance that cut epochs fit draws of each record: it is 0 or 1."""
    cut = record.cut
    if int(cut.sum()) != record.times * record.num_records:
        return 0.0 if record.epochs else 1.0
    steps = record.pairs_of_steps()
    if steps is None:
        return 1.0
    half = record.steps // 2 * 2
    left, right = (np.tile(cut[side:half:2], record.epochs) for side in (0, 1))
    alone = left + right if record.times == 1 else steps[1]
    chance = _too_alike(left - right, alone)
    return _rejects([chance], len(_of_allocation(record)) - 1, level)


# Shuffled or fixed batches.


def _certain_of_shuffle(record: _Record) -> str:
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


def _poisson_as_shuffle(record: _Record) -> float:
    """Returns the chance that Poisson samples, of any rate, have the sizes of a cut."""
    size, number = record.batch_size, record.num_records
    full = int((record.cut == size).sum()) * record.epochs
    logarithm = full * float(stats.binom.logpmf(size, number, size / number))
    return _at_most(logarithm)


def _allocation_as_shuffle(record: _Record) -> float:
    """Returns the chance that draws of each record have the sizes of a cut."""
    cut, records, k = record.cut, record.num_records, record.times
    if int(cut.sum()) != k * records:
        return 0.0 if record.epochs else 1.0
    if k == 1:
        chances = np.full(record.steps, 1 / record.steps)
        each = float(stats.multinomial.logpmf(cut, records, chances))
    else:  # Of one step of each epoch: epochs are independent.
        each = float(stats.binom.logpmf(cut[0], records, k / record.steps))
    return _at_most(each * record.epochs)
