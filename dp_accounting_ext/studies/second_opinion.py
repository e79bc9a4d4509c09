"""Verification of a training run's ε by a second, independent computation."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from dp_accounting_ext import displays
from dp_accounting_ext.bounds import decimals
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import progress as progress_of
from dp_accounting_ext.studies import training_run
from dp_accounting_ext.verify import verification

__all__ = [
    "Opinion",
    "Opinions",
    "of_claims",
    "opinion",
    "sentence",
    "worst",
]
__dir__ = __all__.copy

_DIGITS = 4
Verdict = verification.Verdict


@dataclasses.dataclass(frozen=True)
class Opinion(displays.Displayed):
    """A verification, and the claim that it verifies.

    Attributes:
        sampling: How batches are drawn.
        adjacency: "add or remove", or "replace".
        group_size: Number of records that are protected together.
        verification: Both brackets.
    """

    sampling: str
    adjacency: str
    group_size: int
    verification: verification.Verification

    def _display(self) -> displays.Table:
        return Opinions([self])._display()

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields by their names, those of the verification among them."""
        names = "sampling", "adjacency", "group_size"
        fields = {name: getattr(self, name) for name in names}
        return {**fields, **self.verification.to_dict()}

    @property
    def name(self) -> str:
        """The run and the group that the opinion is about, in words."""
        group = f", groups of {self.group_size}" * (self.group_size > 1)
        return f"{self.sampling} ({self.adjacency}{group})"

    @property
    def in_words(self) -> str:
        """The verdict with the numbers of both computations, in a few sentences."""
        result = self.verification
        answer = next((a for a in result.answers if a.is_wrong), result.answers[0])
        own = _bracket(answer.lower, answer.upper)
        claimed = _bracket(answer.claimed_lower, answer.claimed_upper)
        how = "computed apart"
        if result.is_sampled:
            how = "by draws from its definition, with probability 1 − 1e-6"
        if result.verdict is Verdict.CONFIRMED:
            words = f"confirmed: ε is in {own}, {how}; the accountant says {claimed}"
            if result.possible_error:
                share = _percent(result.possible_error)
                words += (
                    f", and its upper bound is at most {share} too small, if at all"
                )
            return f"{self.name} is {words}."
        if result.verdict is Verdict.DISAGREES:
            return (
                f"{self.name} disagrees: {_question(answer)} is in {own}, {how}; the "
                f"accountant says {claimed}. One of them is wrong: please report it."
            )
        if result.verdict is Verdict.NOT_REFUTED:
            low = decimals.rounded_down(result.lower, _DIGITS)
            high = decimals.rounded_up(result.claimed_upper, _DIGITS)
            words = f"ε is at least {low}, {how}; claimed {high}. A bound on ε that is "
            words += f"{_percent(result.visible_error)} smaller would have been refuted"
            best = min(result.answers, key=lambda answer: answer.visible_error)
            if best.kind != "ε":
                words += f", and one on {_question(best)} that is "
                words += f"{_percent(best.visible_error)} smaller"
            return f"{self.name} is not refuted: {words}."
        reason = result.reason or f"no bound better than {own}"
        return f"{self.name} is not confirmed: there is {reason}."


def _question(answer: verification.Answer) -> str:
    """Returns what an answer is about."""
    if answer.kind == "δ":
        return f"δ at ε = {answer.at:.4g}"
    return "ε" if answer.kind == "ε" else f"the true positive rate at {answer.at:g}"


def _percent(share: float) -> str:
    return f"{decimals.rounded_up(100 * share, 2)} %"


def _bracket(lower: float, upper: float) -> str:
    ends = decimals.rounded_down(lower, _DIGITS), decimals.rounded_up(upper, _DIGITS)
    return f"[{ends[0]}, {ends[1]}]"


class Opinions(displays.Displayed, list[Opinion]):
    """A list of opinions that shows itself as a table."""

    def _display(self) -> displays.Table:
        rows = []
        for opinion in self:
            result = opinion.verification
            lower = decimals.rounded_down(result.lower)
            upper = decimals.rounded_up(result.upper)
            claimed = decimals.rounded_up(result.claimed_upper)
            rows.append((opinion.name, lower, upper, claimed, result.verdict.value))
        heads = "sampling", "ε lower", "ε upper", "claimed", "verdict"
        return displays.Table("second opinions", heads, rows)


def opinion(
    run: training_run.TrainingRun,
    neighboring_relation: training_run.NeighborRel | None = None,
) -> Opinion:
    """Returns the second opinion on a run whose way of drawing batches is given.

    Args:
        run: The run.
        neighboring_relation: Which datasets are adjacent; by default the run's own.

    Raises:
        ValueError: If noise, δ or sampling is not given, or no bound is known.
        ModuleNotFoundError: If python-flint is not installed.
    """
    relation = neighboring_relation or run.neighboring_relation
    delta = training_run.given("delta", run.delta)
    result = verification.verify_epsilon(run.accountant(relation), delta)
    adjacency = comparison.ADJACENCIES[relation]
    return Opinion(run.scheme, adjacency, run.group_size, result)


def of_claims(
    run: training_run.TrainingRun,
    rows: Sequence[comparison.Row],
    progress: progress_of.Progress | None = None,
) -> Opinions:
    """Returns second opinions on the rows of a statement that have bounds.

    Args:
        run: The run that the statement is about.
        rows: The rows that `statement.claims` returned for it.
        progress: Called after each row with the number of rows that are done, and of
            all.

    Raises:
        ModuleNotFoundError: If python-flint is not installed.
    """
    relations = {words: relation for relation, words in comparison.ADJACENCIES.items()}
    bounded = [row for row in rows if row.epsilon_upper is not None]
    return Opinions(
        opinion(
            dataclasses.replace(run, sampling=row.sampling, group_size=row.group_size),
            relations[row.adjacency],
        )
        for row in progress_of.counted(bounded, progress)
    )


def worst(opinions: Sequence[Opinion]) -> Verdict:
    """Returns the worst verdict. A disagreement is worse than any other verdict."""
    order = Verdict.CONFIRMED, Verdict.NOT_REFUTED, Verdict.UNDECIDED, Verdict.DISAGREES
    verdicts = [opinion.verification.verdict for opinion in opinions]
    return max(verdicts, key=order.index, default=Verdict.CONFIRMED)


def sentence(opinions: Sequence[Opinion]) -> str:
    """Returns the sentence of a statement about second opinions on its numbers."""
    by_verdict: dict[Verdict, list[Opinion]] = {verdict: [] for verdict in Verdict}
    for opinion in opinions:
        by_verdict[opinion.verification.verdict].append(opinion)
    names = {
        key: "; ".join(o.name for o in of_key) for key, of_key in by_verdict.items()
    }
    if wrong := by_verdict[Verdict.DISAGREES]:
        return f"Do not rely on these numbers: {' '.join(o.in_words for o in wrong)}"
    parts = []
    if agreed := by_verdict[Verdict.CONFIRMED]:
        error = _percent(max(o.verification.possible_error for o in agreed))
        words = "A second computation, in ball arithmetic, by code that shares nothing "
        words += f"with the first, confirms ε of {names[Verdict.CONFIRMED]}; no number "
        parts.append(words + f"is too small by more than {error}.")
    if drawn := by_verdict[Verdict.NOT_REFUTED]:
        error = _percent(max(o.verification.visible_error for o in drawn))
        words = "Lower bounds that share no code with the accountant do not refute ε "
        words += f"of {names[Verdict.NOT_REFUTED]}; they would have refuted a number "
        parts.append(words + f"that is {error} smaller.")
    if by_verdict[Verdict.UNDECIDED]:
        if not parts:
            return "No second computation was able to confirm these numbers."
        parts.append(f"Not looked at: {names[Verdict.UNDECIDED]}.")
    return " ".join(parts)
