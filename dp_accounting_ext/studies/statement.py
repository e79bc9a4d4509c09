"""Privacy statements of training runs, in words to publish beside a model."""

from collections.abc import Sequence
import dataclasses
import math
import re
import textwrap

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run

__all__ = [
    "Statement",
    "brief",
    "claims",
    "privacy_statement",
    "warnings",
]
__dir__ = __all__.copy

_DIGITS = 4
_WIDTH = 80

_ASSUMPTIONS = {
    training_run.RANDOM_ALLOCATION: (
        "In each epoch each example joins {once} of t = {t}, drawn uniformly, in "
        "secret and independently of all other examples, so that batches differ in "
        "size. Fewer steps of an epoch than t break it, and so do more epochs, "
        "batches that are cut from a shuffled dataset, and one draw that all epochs "
        "share."
    ),
    training_run.POISSON_SAMPLING: (
        "Each of {steps} draws its batch anew, each example with probability "
        "q = {rate}, in secret and independently of all others, so that batches differ "
        "in size. More steps than that break it, and so do a larger q, shuffled "
        "batches, batches of a fixed size, and truncated or padded ones that leave out "
        "or repeat examples."
    ),
    training_run.NO_AMPLIFICATION: (
        "Each example is in {once} of each epoch, once in each; anybody may know in "
        "which. All others stay in theirs, whether it is there or not. Examples in "
        "more batches than that, or twice in one, break it, as do more epochs, and "
        "batches that are cut from a dataset, where an example is added or removed."
    ),
    training_run.SHUFFLED: (
        "The dataset, in an order that does not depend on the examples, shuffled anew "
        "in each epoch or not, is cut into batches, each example in {once} of each "
        "epoch, once in each. It holds where an example is replaced by another: where "
        "one is added or removed, others move to other batches. Examples in more "
        "batches than that break it, as do more epochs."
    ),
}
_ALWAYS = (
    "{hold} for the release of every step's noisy gradient, so of all checkpoints and "
    "the final model. {ask} that each example's gradient be clipped "
    "on its own (not a microbatch's mean), that fresh Gaussian noise of the multiplier "
    "times the clip be added to the sum in every step, also of an empty batch, and "
    "that the sum be divided, if at all, by a number that was fixed beforehand, such "
    "as the expected batch size: dividing by the size of the batch that was drawn "
    "breaks each bound for batches that differ in size, as the noise then reveals that "
    "size; and so does a number made of the number of examples, where one is "
    "added or removed. Dataset size, batch size, noise and number of epochs must not "
    "be chosen by looking at this data. Runs that tuned them on it count as "
    "releases, too."
)
_ONE_ROW = "This holds", "It asks"
_NO_USER = (
    "Nothing is promised to a user with several examples: that takes a bound on their "
    "number, the group size."
)
_CHANGED = {"add or remove": "is added or removed", "replace": "is replaced"}


class Statement(str):
    """A statement in words: a text, which notebooks display as formatted paragraphs."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def claims(
    run: training_run.TrainingRun, progress: progress_of.Progress | None = None
) -> comparison.Rows:
    """Returns the bounds of a run for one example, and for a user with several.

    Args:
        run: The run. If its `sampling` is given, only this way of drawing batches is
            bounded. The number of examples of a user is the run's `group_size`.
        progress: Called after each row with the number of rows that are done, and of
            all.

    Raises:
        TypeError: If the run is not a `TrainingRun`.
        ValueError: If noise or δ is not given, a strategy is, or the group is too
            large.
    """
    runs = training_run.schemes_of(run)
    if run.strategy is not None:
        raise ValueError(
            f"strategy must be left out of a statement, which has no words for "
            f"correlated noise. Found {run.strategy!r:.60}."
        )
    asked = [
        (dataclasses.replace(way, group_size=size), relation)
        for size in dict.fromkeys((1, run.group_size))
        for way in runs
        for relation in comparison.ADJACENCIES
    ]
    return comparison.Rows(
        comparison.bracket(*way) for way in progress_of.counted(asked, progress)
    )


def privacy_statement(
    run: training_run.TrainingRun, rows: Sequence[comparison.Row] | None = None
) -> Statement:
    """Returns the claims in words, on lines of at most 80 letters.

    Args:
        run: As in `claims`.
        rows: The rows that `claims` returned; by default they are computed.

    Raises:
        TypeError, ValueError: As `claims` does.

    Guarantees:
        Every ε is an upper bound, rounded up; "none known" stands where there is no
        theorem.
    """
    rows = claims(run) if rows is None else rows
    parts = [_of_run(run), *warnings(run, rows)]
    schemes = list(dict.fromkeys(row.sampling for row in rows))
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    for size in dict.fromkeys(row.group_size for row in rows):
        level = "Example level" if size == 1 else f"User level, {size} examples a user"
        of_size = [row for row in rows if row.group_size == size]
        lines, notes = [["", *dict.fromkeys(row.adjacency for row in of_size)]], []
        for number, scheme in enumerate(schemes, start=1):
            lines.append([f"{scheme} ({number})"])
            for row in of_size:
                if row.sampling == scheme:
                    cell = decimals.rounded_up(row.epsilon_upper, _DIGITS)
                    if row.is_wide:
                        letter = next(letters)
                        cell += f" ({letter})"
                        lower = decimals.rounded_down(row.epsilon_lower, _DIGITS)
                        words = f"Not tight: the true ε is {lower} at least."
                        if row.epsilon_upper == math.inf:
                            words = "No finite bound is known."
                        notes.append(f"({letter}) {words}")
                    lines[-1].append(cell)
        parts += [f"{level}: ε at δ = {run.delta!r} is at most", _table(lines), *notes]
    parts += [_NO_USER] * (run.group_size == 1)
    for number, scheme in enumerate(schemes, start=1):
        parts.append(f"({number}) {_assumptions(scheme, run)}")
    hold, ask = ("All rows hold", "They ask") if len(schemes) > 1 else _ONE_ROW
    parts.append(_ALWAYS.format(hold=hold, ask=ask))
    paragraphs = "\n\n".join(
        paragraph if paragraph.startswith("|") else textwrap.fill(paragraph, _WIDTH)
        for paragraph in parts
    )
    return Statement(paragraphs)


def _table(lines: list[list[str]]) -> str:
    head, *body = [f"| {line} |" for line in displays.aligned(lines, " | ")]
    return "\n".join([head, re.sub("[^|]", "-", head), *body])


def brief(run: training_run.TrainingRun, rows: Sequence[comparison.Row]) -> Statement:
    """Returns claims of a run in three sentences."""
    promises = []
    for size in dict.fromkeys(row.group_size for row in rows):
        who = "one example" if size == 1 else f"{size} examples of one user"
        for adjacency, changed in _CHANGED.items():
            bounds = [
                f"{decimals.rounded_up(row.epsilon_upper, _DIGITS)} ({row.sampling}"
                f"{', not tight' * row.is_wide})"
                for row in rows
                if (row.group_size, row.adjacency) == (size, adjacency)
                and row.epsilon_upper is not None
            ]
            verb = changed if size == 1 else changed.replace("is ", "are ")
            if bounds:
                promises.append(f"{', '.join(bounds)} if {who} {verb}")
    sentences = [
        _of_run(run),
        f"At δ = {run.delta!r}, ε is certified to be at most {'; '.join(promises)}.",
        "It holds for all checkpoints, if batches were drawn as named, each example's "
        "gradient was clipped, and fresh Gaussian noise was added in every step.",
    ]
    paragraph = " ".join([*warnings(run, rows), *sentences])
    return Statement(textwrap.fill(paragraph, _WIDTH))


def warnings(
    run: training_run.TrainingRun, rows: Sequence[comparison.Row] = ()
) -> list[str]:
    """Returns the warnings that a statement begins with; usually there are none.

    Args:
        run: The run.
        rows: Its claims. There is a warning if an ε promises nothing.
    """
    void = [row for row in rows if row.promises_nothing]
    names = list(dict.fromkeys(row.sampling for row in void))
    sentences = training_run.warnings_of(run)
    if void:
        sentences.append(
            f"Warning: for {' and '.join(names)}, {comparison.NOTHING}, so that a test "
            f"whose false alarms are as rare as δ may find every member."
        )
    return sentences


def _assumptions(scheme: str, run: training_run.TrainingRun) -> str:
    """Returns the assumptions of a scheme about batches, and what violates them."""
    k, steps = run.batches_per_record, run.run_steps
    words = _ASSUMPTIONS[scheme].format(
        once="one batch" if k == 1 else f"{k} batches",
        t=run.epoch_steps,
        rate=run.rate_in_words,
        steps=f"{steps} step{'s' * (steps > 1)}",
    )
    _, rest = run.whole_and_part
    if rest and scheme == training_run.RANDOM_ALLOCATION:
        words += f" The last epoch ended after {rest} of its {run.epoch_steps} "
        words += "steps; more of them break it, too."
    return words


def _of_run(run: training_run.TrainingRun) -> str:
    """Returns the sentence that describes the run."""
    return f"DP-SGD: {run.in_words}, noise multiplier {run.noise_multiplier!r}."
