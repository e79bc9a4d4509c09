"""An audit of recorded batches: which ways of drawing them they fit, or refute.

    findings = audit.audit(run, batches)  # The records of each step, or their number.
    print(audit.in_words(findings))

An ε holds for one way of drawing batches, and recorded batches may show that they were
drawn in another way. Each way is tested by what is certain of it (for example, each
record once in an epoch), and by exact tests, each of which rejects a run of this way
with at most its share of the false-alarm probability (a union bound). The tests cannot
show everything: neither whether the absence of a record would have changed the draws of
other records, nor what an adversary knows.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import textwrap
from typing import Any

from dp_accounting_ext import displays
from dp_accounting_ext.studies import batch_tests
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
_DIGITS = 3


@dataclasses.dataclass(frozen=True)
class Finding(displays.Displayed):
    """The result of testing one way of drawing batches.

    Attributes:
        sampling: The way, a name in `training_run.SCHEMES`.
        refuted_by: What the batches show that this way never does; empty if they fit.
        false_alarm: An upper bound on the probability that batches which were drawn in
            this way are refuted.
        missed: For each other way, an upper bound on the probability that batches which
            were drawn in it fit this one. If it is 1, the record of batches cannot
            distinguish the two ways.
    """

    sampling: str
    refuted_by: str
    false_alarm: float
    missed: Mapping[str, float]

    @property
    def fits(self) -> bool:
        """Whether nothing refutes this way of drawing batches."""
        return not self.refuted_by

    def _display(self) -> displays.Table:
        return Findings([self])._display()


class Findings(displays.Displayed, list[Finding]):
    """A list of findings, displayed as a table."""

    def _display(self) -> displays.Table:
        rows = []
        for each in self:
            missed = [f"{name}: {_up(each.missed[name])}" for name in each.missed]
            columns = "the batches fit", f"passed by {'; '.join(missed)}"
            if not each.fits:
                columns = "refuted", each.refuted_by
            rows.append((each.sampling, *columns))
        return displays.Table(
            "what recorded batches say; probabilities are upper bounds",
            ("sampling", "verdict", "why, or which others fit with what probability"),
            rows,
            names=3,
        )


def audit(
    run: training_run.TrainingRun,
    batches: Sequence[Any],
    *,
    num_records: int | None = None,
    steps_per_epoch: int | None = None,
    false_alarm: float = 1e-3,
) -> Findings:
    """Returns a finding for each way of drawing batches.

    Args:
        run: The training run that is said to have run. Its noise, δ and sampling are
            ignored.
        batches: For each step, in order, the indices of its records, or their number.
            From the numbers alone less can be tested.
        num_records: The length of the dataset; by default the run's `dataset_size`.
        steps_per_epoch: The number of batches of an epoch; by default the run's,
            rounded up. (A loader that drops its last batch has one less.)
        false_alarm: An upper bound on the probability that batches are refuted which
            were drawn in the tested way.

    Returns:
        A finding for each of `AUDITED`.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.

    Guarantees:
        If the batches were drawn in one of these ways, independently of everything
        else, this way is refuted with probability at most `false_alarm`, and they fit
        another way with at most the probability in `missed`.
    """
    level = fields.probability("false_alarm", false_alarm)
    if not 0 < level < 1:
        raise ValueError(f"false_alarm must be in (0, 1). Found {false_alarm}.")
    if not isinstance(run, training_run.TrainingRun):
        raise TypeError(f"run must be a TrainingRun. Found {run!r:.60}.")
    record = batch_tests.Record(run, batches, num_records, steps_per_epoch)
    allocation, poisson, shuffled = AUDITED
    return Findings(
        [
            Finding(
                allocation,
                batch_tests.certain_of_allocation(record)
                or _failed(batch_tests.of_allocation(record), level),
                level,
                {
                    poisson: batch_tests.poisson_as_allocation(record),
                    shuffled: batch_tests.shuffle_as_allocation(record, level),
                },
            ),
            Finding(
                poisson,
                batch_tests.certain_of_poisson(record)
                or _failed(batch_tests.of_poisson(record), level),
                level,
                {
                    allocation: batch_tests.exact_as_poisson(record, level, allocation),
                    shuffled: batch_tests.exact_as_poisson(record, level, shuffled),
                },
            ),
            Finding(
                shuffled,
                batch_tests.certain_of_shuffle(record),
                level,
                {
                    allocation: batch_tests.allocation_as_shuffle(record),
                    poisson: batch_tests.poisson_as_shuffle(record),
                },
            ),
        ]
    )


def in_words(findings: Sequence[Finding]) -> str:
    """Returns the findings as sentences, on lines of at most 80 characters."""
    paragraphs = []
    for finding in findings:
        name = finding.sampling
        if finding.refuted_by:
            words = f"refuted: {finding.refuted_by}. Batches drawn so are refuted with "
            words += f"a probability of at most {finding.false_alarm:g}."
        else:
            words = "the batches fit."
            for other, probability in finding.missed.items():
                words += f" Those of {other} fit with a probability of at most "
                words += _up(probability)
                words += ", so that the test cannot exclude them." * (probability == 1)
                words += "." * (probability < 1)
        paragraphs.append(
            textwrap.fill(f"{name}: {words}", 80, subsequent_indent="    ")
        )
    return "\n".join(paragraphs)


def _up(probability: float) -> str:
    """Returns a probability with few digits, rounded up."""
    for digits in range(_DIGITS, 18):
        found = f"{probability * (1 + 10.0 ** (1 - digits)):.{digits}g}"
        if float(found) >= probability:
            return found if float(found) < 1 else "1"
    return repr(probability)


def _failed(tests: list[batch_tests.Test], level: float) -> str:
    """Returns what the first test shows that rejects at its share of the level."""
    share = level / len(tests) * (1 - batch_tests.ROUNDING)
    for test in tests:
        if test.p_value <= share:
            return f"{test.words} (p = {max(test.p_value, batch_tests.LEAST):.2g})"
    return ""
